"""The contract finds advantages planted into models. Faults of an encoding's own hooks are in test_parts.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from extrapolate.contract.scale import check_scale
from extrapolate.contract.small_model import SIZES, fresh_model
from extrapolate.errors import UserError
from extrapolate.model.llama import Block
from extrapolate.model.model import Model

FILE = Path("mine.py")
L = 16
PLANTED: dict[str, Callable[[Model], object]] = {
    "embeddings doubled": lambda model: model.embedding.weight.mul_(2),
    "an output projection halved": lambda model: block(model).attention.out.weight.mul_(0.5),
    "values scaled": lambda model: block(model).attention.qkv.weight[-values(model) :].mul_(1.1),
    "a larger head": lambda model: model.head.weight.mul_(1.1),
    "a hidden norm": lambda model: model.embedding.register_forward_hook(
        lambda module, inputs, x: torch.nn.functional.rms_norm(x, x.shape[-1:])
    ),
    "a norm after attention": lambda model: block(model).attention.register_forward_hook(
        lambda module, inputs, x: torch.nn.functional.rms_norm(x, x.shape[-1:])
    ),
    "a feed-forward network drawn larger": lambda model: block(model).feed_forward.down.weight.mul_(1.1),
}


def block(model: Model) -> Block:
    """The last one."""
    found = model.blocks[-1]
    assert isinstance(found, Block)
    return found


def values(model: Model) -> int:
    return block(model).attention.sizes[1]


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_a_planted_advantage_is_found(plant: Callable[[Model], object]) -> None:
    model = fresh_model("rope", {}, L)
    with torch.no_grad():
        plant(model)
    with pytest.raises(UserError, match="its model starts with other weights than one without an encoding"):
        check_scale(model, fresh_model("none", {}, L), FILE)


def test_weights_of_another_seed_are_other_weights() -> None:
    with pytest.raises(UserError, match="other weights"):
        check_scale(fresh_model("rope", {}, L), Model(SIZES, "none", {}, L).eval(), FILE)
