"""What `extrapolate check` finds in whole models holds for every registered encoding."""

from collections.abc import Callable

import pytest
import torch

from extrapolate import specs
from extrapolate.contract.autocast import check_autocast
from extrapolate.contract.small_model import small_model
from extrapolate.model.model import Model
from extrapolate.model.whole import check_cache, check_chunks, check_extensions


@pytest.mark.parametrize("check", [check_chunks, check_cache, check_extensions, check_autocast])
def test_the_check_finds_nothing(name: str, check: Callable[[Model, object], None]) -> None:
    spec = specs.parse(name)
    torch.manual_seed(0)  # ExPE's logits differ under autocast by 1 to 6 %, depending on the weights that are drawn
    check(small_model(spec.name, spec.arguments, 64), "mine.py")
