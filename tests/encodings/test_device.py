"""Every encoding computes where the model is: what it makes itself, positions and tables and masks, is not on the CPU.

The device is torch's "meta", which every machine has: it knows shapes alone, and refuses tensors of other devices.
"""

import contextlib

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import encodings
from extrapolate.extensions import recipe as recipes
from extrapolate.extensions.base import extensions
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN, Plan

L, N = 16, 64
SIZES = ModelConfig(
    vocab_size=61, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff_width=48, qk_norm=True, ssmax=True
)
VARIANTS = ["fire:shared=true,depth=2", "dape:base=fire", "cope:scaled=true", "fox:form=cable", "expe:learned=fixed",
            "random:base=alibi", "random:base=learned,evaluate=spread", "random:base=shaw,evaluate=first"]  # fmt: skip
# What each extension is tried on, where that is not RoPE.
BASES = {"expe-scale": "expe", "table-resize": "learned"}


@pytest.fixture(autouse=True)
def _meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast has no rule for this device, and a mask without values is taken for one that hides nothing."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda _: True)


def check(model: Model, plan: Plan, length: int) -> None:
    """Training and evaluating, whole windows and their last tokens alone."""
    tokens = torch.zeros(2, length, dtype=torch.long, device="meta")
    assert model(tokens, plan).device.type == "meta"
    with torch.no_grad():
        assert model.eval()(tokens, plan).device.type == "meta"
        assert model.hidden(tokens, plan, length - 3).shape == (2, 3, SIZES.width)


def make(text: str) -> Model:
    spec = specs.parse(text)
    return Model(SIZES, spec.name, spec.arguments, L).to("meta")


@pytest.mark.parametrize("name", encodings.names() + VARIANTS)
def test_every_encoding_computes_where_the_model_is(name: str) -> None:
    model = make(name)
    check(model, PLAIN, min(N, model.encoding.max_length or N))


@pytest.mark.parametrize("name", extensions.names())
def test_every_extension_computes_where_the_model_is(name: str) -> None:
    model = make(BASES.get(name, "rope"))
    recipe = recipes.parse(name)
    if recipe.to_fit is not None:
        recipe = recipe.fitted(0.1)
    check(model, recipe.plan(model.encoding, L, N), N)


def test_a_tensor_left_on_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device does tell: what follows is what the tests above would see."""
    model = make("alibi")
    monkeypatch.setattr(type(model.encoding), "bias", lambda self, pos_T, pos_S: torch.zeros(2, len(pos_T), len(pos_S)))
    with pytest.raises(RuntimeError, match="device"):
        check(model, PLAIN, N)
