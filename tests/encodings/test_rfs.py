"""Random Float Sampling: what is drawn, the evenly spaced positions by their formula, and RoPE within L."""

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import LOGITS, Dims, Encoding
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

L = 7
SIZES = ModelConfig(vocab_size=31, width=33, layers=2, heads=3, kv_heads=3, head_dim=22, ff_width=13)


def made(spec: str, seq_len: int = L) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, Dims(33, 3, 22, seq_len, layers=2))[0]


def model_of(spec: str) -> Model:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    return Model(SIZES, parsed.name, parsed.arguments, L)


def index(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


@pytest.mark.parametrize(("given", "reference"), [("", 7.0), (":max=1", 1.0), (":max=29", 29.0)])
def test_training_positions_are_sorted_uniform_draws(given: str, reference: float) -> None:
    torch.manual_seed(0)
    encoding = made(f"rfs{given}").train()
    drawn_RT = torch.stack([encoding.positions(index(L)) for _ in range(3000)])
    assert drawn_RT.dtype == torch.float32
    assert (drawn_RT.diff(dim=1) >= 0).all()
    assert 0 <= drawn_RT.min() < 0.001 * reference
    assert 0.999 * reference < drawn_RT.max() <= reference
    for i in range(L):  # the order statistics of T uniform numbers
        assert drawn_RT[:, i].mean().item() == pytest.approx(reference * (i + 1) / (L + 1), abs=0.02 * reference)
    for part in range(1, 10):
        assert (drawn_RT < reference * part / 10).double().mean().item() == pytest.approx(part / 10, abs=0.02)


def test_a_seed_repeats_them_and_steps_differ() -> None:
    encoding = made("rfs").train()
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)
        drawn.append([encoding.positions(index(L)).tolist() for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize(("given", "reference"), [("", 7), (":max=29", 29)])
@pytest.mark.parametrize("length", [1, 5, 7, 8, 112, 30_011])
def test_evaluation_positions_by_the_paper_s_formula(given: str, reference: int, length: int) -> None:
    encoding = made(f"rfs{given}").eval()
    before = torch.random.get_rng_state()
    found = encoding.positions(index(length))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert found.dtype == torch.float32
    expected = [reference * (2 * i - 1) / (2 * max(L, length)) for i in range(1, length + 1)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).float(), rtol=1e-7, atol=0)


@pytest.mark.parametrize("base", ["rope", "alibi", "kerple"])
def test_a_relative_encoding_is_itself_in_windows_of_up_to_l(base: str) -> None:
    wrapped, plain = model_of(f"rfs:base={base}").eval(), model_of(base).eval()
    wrapped.load_state_dict({key.replace("encoding.", "encoding.inner."): v for key, v in plain.state_dict().items()})
    x = torch.randint(0, 31, (2, 2 * L))
    with torch.no_grad():
        torch.testing.assert_close(wrapped(x[:, :L]), plain(x[:, :L]), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(wrapped(x), plain(x), atol=1e-4)


def test_beyond_l_scores_are_rope_s_at_half_the_distance() -> None:
    encoding, N = made("rfs").eval(), 2 * L
    pos = encoding.positions(index(N))
    q, k = torch.randn(2, 3, N, 22), torch.randn(2, 3, N, 22)
    rotated_q, rotated_k = encoding.rotate(q, k, pos, pos)
    found = rotated_q @ rotated_k.mT
    for i in range(N):
        for j in range(i + 1):
            expected = torch.zeros(2, 3, dtype=torch.float64)
            for m in range(11):
                angle = torch.tensor((i - j) / 2 * 10_000.0 ** (-m / 11), dtype=torch.float64)
                a, b, c, d = (
                    x.double() for x in (q[:, :, i, m], q[:, :, i, m + 11], k[:, :, j, m], k[:, :, j, m + 11])
                )
                expected += (a * c + b * d) * angle.cos() + (a * d - b * c) * angle.sin()
            torch.testing.assert_close(found[:, :, i, j].double(), expected, rtol=1e-5, atol=1e-4)


def test_defaults_captions_and_what_extensions_may_change() -> None:
    encoding = made("rfs")
    assert encoding.arguments() == {"base": "rope:theta=10000.0,pairing=half", "max": L, "curriculum": 0.0}
    assert encoding.label() == "RFS(RoPE)"
    assert made("rfs:max=70").label() == "RFS(RoPE, max=70)"
    assert encoding.accepts == {LOGITS}
    assert encoding.max_length is None
    assert "our reading of arXiv 2602.14050" in encoding.caption
    both = made("rfs:base=hope").caption
    assert encoding.caption in both
    assert "2410.21216" in both
