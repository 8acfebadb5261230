"""Llama 4's temperature: its formula, and the encodings with layers that it is for. By hand it is in test_layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.plan import Plan
from extrapolate.extensions import stack

L = 16


def test_llama4_clashes_with_ssmax(make_model: Any) -> None:
    assert "llama4" not in stack.applicable(make_model("rnope", L, ssmax=True))
    assert "llama4" in stack.applicable(make_model("rnope", L))


def test_the_formula_in_float64() -> None:
    scale = Plan(log_steps=(0.1, 5), log_length=7, logit_scale=2.0).query_scale(40, torch.device("cpu"))
    assert isinstance(scale, Tensor)
    expected = [2 * max(1.0, math.log(i + 1) / math.log(7)) * (1 + 0.1 * math.log1p((i + 1) // 5)) for i in range(40)]
    torch.testing.assert_close(scale[0].double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


NAMES = "none alibi expe fox rnope dape rope p-rope pope xpos local-global random"


@pytest.mark.parametrize("name", NAMES.split())
def test_it_is_for_models_with_a_layer_that_does_not_rotate(name: str, make_model: Any) -> None:
    """RNoPE has such a layer among others; random wraps RoPE."""
    applies = name in ("none", "alibi", "expe", "fox", "rnope", "dape")
    assert ("llama4" in stack.applicable(make_model(name, L))) == applies
