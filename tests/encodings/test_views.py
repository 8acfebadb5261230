"""Views of an encoding, and a plan resolved once for all layers."""

import pytest
import torch
from torch import nn

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

DIMS = Dims(32, 2, 16, seq_len=16)


def test_a_view_has_modules_of_its_own_and_shares_the_rest() -> None:
    encoding = layer_encodings("random", {"base": "t5"}, DIMS)[0]
    other = layer_encodings("alibi", {}, DIMS)[0]
    view = encoding.copy_with(inner=other)
    assert list(view.children()) == [other]
    assert not isinstance(encoding.inner, type(other))
    assert list(encoding.children()) == [encoding.inner]
    again = encoding.copy_with(window=3)
    assert [*map(id, again.parameters())] == [*map(id, encoding.parameters())]
    assert (again.window, encoding.window) == (3, None)


def test_a_view_may_replace_a_parameter_by_a_tensor() -> None:
    class Phase(Encoding):
        def __init__(self, dims: Dims) -> None:
            super().__init__(dims)
            self.phase = nn.Parameter(torch.ones(2))

    encoding = Phase(DIMS)
    view = encoding.copy_with(phase=encoding.phase * 2)
    assert view.phase.tolist() == [2, 2]
    assert not list(view.parameters())
    assert encoding.phase.tolist() == [1, 1]


def test_a_setting_is_resolved_once_and_gives_what_its_plan_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    sizes = ModelConfig(vocab_size=61, width=32, layers=3, heads=2, kv_heads=2, head_dim=16, ff_width=48)
    model, tokens = Model(sizes, "rope", {}, 16).eval(), torch.randint(61, (2, 40))
    plan, extended, asked = Plan(frequency_scale=(0.5,) * 8), RoPE.extended, []
    with torch.inference_mode():
        plain, changed = model(tokens), model(tokens, plan)
        monkeypatch.setattr(RoPE, "extended", lambda self, plan: asked.append(plan) or extended(self, plan))
        setting = model.resolve(plan)
        assert asked == [plan] * 3
        assert all(torch.equal(model(tokens, setting), changed) for _ in range(2))
        assert len(asked) == 3
        assert torch.equal(model(tokens, model.resolve(PLAIN)), plain)
    assert not torch.equal(plain, changed)


def test_a_setting_follows_the_weights() -> None:
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
    model, tokens = Model(sizes, "pope", {}, 16), torch.randint(61, (2, 16))
    setting = model.resolve(PLAIN, "bf16")
    model.loss(tokens, tokens, setting).backward()
    assert all(block.encoding.delta_HK.grad is not None for block in model.blocks)
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert torch.equal(model(tokens, setting), model(tokens, model.resolve(PLAIN, "bf16")))
