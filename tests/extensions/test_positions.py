"""Position interpolation and ExPE's scaling."""

import pytest
import torch

from extrapolate.config import ModelConfig
from extrapolate.encodings.base import encodings
from extrapolate.extensions.base import PLAIN, Plan, build, check_applies, extensions
from extrapolate.model import Model

L = 16
SIZES = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
PAIRS = [
    (extension, encoding)
    for extension in extensions.names()
    for encoding in encodings.names()
    if extensions[extension].applies_to(Model(SIZES, encoding, {}, L).encoding)
]


def logits(model: Model, length: int, plan: Plan) -> torch.Tensor:
    x = torch.randint(0, 61, (2, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(x, plan)


def test_what_applies_to_what() -> None:
    nothing = {"none", "learned", "shaw", "cope", "fox", "wall"}
    assert set(PAIRS) == {("pi", name) for name in encodings.names() if name not in nothing} | {
        ("expe-scale", "expe"), ("expe-scale", "exqpe"),
    }  # fmt: skip


@pytest.mark.parametrize(("extension", "encoding"), PAIRS)
def test_factor_one_changes_nothing_exactly(extension: str, encoding: str) -> None:
    plan = build(f"{extension}:factor=1").plan(L, 4 * L)
    assert plan == PLAIN
    model = Model(SIZES, encoding, {}, L).eval()
    assert torch.equal(logits(model, 4 * L, plan), logits(model, 4 * L, PLAIN))


@pytest.mark.parametrize(("extension", "encoding"), PAIRS)
def test_another_factor_changes_something(extension: str, encoding: str) -> None:
    model = Model(SIZES, encoding, {}, L).eval()
    plan = build(extension).plan(L, 4 * L)
    assert not torch.allclose(logits(model, 4 * L, plan), logits(model, 4 * L, PLAIN), atol=1e-4)


@pytest.mark.parametrize(("extension", "encoding"), PAIRS)
def test_nothing_is_left_behind(extension: str, encoding: str) -> None:
    model = Model(SIZES, encoding, {}, L).eval()
    before = logits(model, 2 * L, PLAIN)
    logits(model, 2 * L, build(extension).plan(L, 2 * L))
    assert torch.equal(logits(model, 2 * L, PLAIN), before)


@pytest.mark.parametrize(("length", "scale"), [(8, 1.0), (16, 1.0), (32, 1 / 2), (256, 1 / 16)])
def test_a_factor_left_out_is_computed_for_each_length(length: int, scale: float) -> None:
    assert build("pi").plan(L, length) == Plan(position_scale=scale)
    assert build("expe-scale").plan(L, length) == Plan(value_scale=scale)


def test_pi_is_transformers_linear_scaling() -> None:
    """The whole model, against transformers' Llama with rope_type linear."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from extrapolate.encodings.base import Dims
    from extrapolate.encodings.rope import RoPE

    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=16,
        rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
    )
    q = torch.randn(1, 4, 50, 16)
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(50)[None])
    half = torch.cat([-q[..., 8:], q[..., :8]], dim=-1)
    expected = q * cos[:, None] + half * sin[:, None]
    pos = torch.arange(50, dtype=torch.float32) * build("pi:factor=4").plan(64, 256).position_scale
    actual, _ = RoPE(Dims(64, 4, 16, 64)).rotate(q, q, pos, pos)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "label"), [("pi", "PI"), ("pi:factor=2", "PI(2)"), ("expe-scale:factor=0.5", "Scale(0.5)")]
)
def test_labels(text: str, label: str) -> None:
    assert build(text).label() == label


@pytest.mark.parametrize("factor", ["0", "-1", "inf", "nan"])
def test_factors_that_are_refused(factor: str) -> None:
    with pytest.raises(ValueError, match=r"must be a positive number|is not a finite number"):
        build(f"pi:factor={factor}")


@pytest.mark.parametrize(("text", "encoding"), [("pi", "none"), ("pi", "learned"), ("expe-scale", "rope")])
def test_what_means_nothing_is_refused_with_what_does(text: str, encoding: str) -> None:
    model = Model(SIZES, encoding, {}, L).eval()
    with pytest.raises(ValueError, match="means nothing for") as caught:
        check_applies(text, model.encoding, model.encoding.display)
    applies = "what applies: pi" if encoding == "rope" else "what applies: no extension"
    assert applies in str(caught.value)


def test_docstrings_name_their_source() -> None:
    for name in extensions.names():
        assert extensions[name].source.removeprefix("arXiv ") in (extensions[name].__doc__ or "")
