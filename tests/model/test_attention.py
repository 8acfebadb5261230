"""The attention paths against a dense float64 computation of the definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.encodings.base import Context, Dims, Encoding, scaled_product
from extrapolate.encodings.plan import Branch
from extrapolate.model import attention
from extrapolate.model.branches import Rotated, attend_branches
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

B, H, K = 2, 4, 8


class Windowed(Encoding):
    """A window and nothing else."""

    def __init__(self, dims: Dims, window: int) -> None:
        super().__init__(dims)
        self.window = window


def dense(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, window: int | None) -> Tensor:
    """Softmax attention, one query at a time, in float64."""
    q, k, v = q.double(), k.double(), v.double()
    groups = q.shape[1] // k.shape[1]
    out = torch.zeros_like(q)
    for h in range(q.shape[1]):
        for t in range(q.shape[2]):
            first = 0 if window is None else max(0, t - window + 1)
            scores = (k[:, h // groups, first : t + 1] @ q[:, h, t, :, None])[..., 0] / math.sqrt(q.shape[-1])
            if bias is not None:
                scores = scores + bias[h, t, first : t + 1].double()
            out[:, h, t] = (scores.softmax(dim=-1)[..., None] * v[:, h // groups, first : t + 1]).sum(dim=1)
    return out


@pytest.mark.parametrize("length", [1, 7, 40])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("kind", ["none", "alibi", "window"])
@pytest.mark.parametrize("path", ["explicit", "fused", "chunked"])
def test_every_path_is_the_definition(
    path: str, kind: str, kv_heads: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, heads, length, K) for heads in (H, kv_heads, kv_heads))
    dims = Dims(H * K, H, K, seq_len=16)
    encoding = Windowed(dims, window=5) if kind == "window" else layer_encodings(kind, {}, dims)[0]
    pos = torch.arange(length, dtype=torch.float32)
    expected = dense(q, k, v, encoding.bias(pos, pos), encoding.window)
    if path == "chunked":
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 3)
    with torch.set_grad_enabled(path == "explicit"):
        actual = attention.attend(q, k, v, attention.Scoring(encoding, pos))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5)


class OfChunks(Encoding):
    """Adds to the scores what tells the chunk."""

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        queries, keys = context.queries, context.keys
        return scaled_product(q_BHTK, k_BHSK) * (queries.start + 3 * queries.stop + keys.stop)


@pytest.mark.parametrize("pairs", [False, True], ids=["plain", "branches"])
@pytest.mark.parametrize("first", [1, 6, 7, 20, 22])
def test_which_queries_are_wanted_does_not_change_their_chunks(first: int, pairs: bool) -> None:
    """Evaluations want some queries alone, and the check for looking ahead wants all."""
    torch.manual_seed(0)
    q, encoding, pos = torch.randn(1, H, 23, K), OfChunks(Dims(H * K, H, K, seq_len=16)), torch.arange(23.0)
    whole, some = (attention.Scoring(encoding, pos, first_wanted=one, queries_per_chunk=7) for one in (0, first))
    if pairs:
        everywhere = Branch(lambda index: index, lambda index: index, lambda i, j: j <= i)
        rotated = [Rotated(everywhere, q, q, pos, pos)]
        expected, found = (attend_branches(rotated, q, scoring) for scoring in (whole, some))
    else:
        expected, found = (attention.attend(q, q, q, scoring) for scoring in (whole, some))
    assert torch.equal(found, expected[:, :, first:])


def test_a_long_window_holds_no_square_of_the_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest bias asked for has QUERIES_PER_CHUNK rows, whatever the length."""
    rows = []
    encoding = layer_encodings("alibi", {}, Dims(H * K, H, K, seq_len=16))[0]
    original = encoding.bias

    def spy(pos_T: Tensor, pos_S: Tensor) -> Tensor | None:
        rows.append(len(pos_T))
        return original(pos_T, pos_S)

    monkeypatch.setattr(encoding, "bias", spy)
    q = torch.randn(1, H, 1024, K)
    with torch.no_grad():
        attention.attend(q, q, q, attention.Scoring(encoding, torch.arange(1024, dtype=torch.float32)))
    assert max(rows) == attention.QUERIES_PER_CHUNK
    assert sum(rows) >= 1024


def test_a_bias_is_not_rounded_to_the_queries_precision() -> None:
    """At distance 1000 bfloat16 would move ALiBi's bias by a nat: the chunked path must not round it."""
    encoding = layer_encodings("alibi", {}, Dims(H * K, H, K, seq_len=16))[0]
    pos = torch.arange(1024, dtype=torch.float32)
    q, k, v = torch.randn(3, 1, H, 1024, K).bfloat16().unbind()
    with torch.no_grad():
        actual = attention.attend(q, k, v, attention.Scoring(encoding, pos))
    expected = dense(q, k, v, encoding.bias(pos, pos), None)
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_gradient_of_the_rounded_softmax(precision: torch.dtype) -> None:
    """It is that of the softmax, in float64, to the precision in which the softmax is kept."""
    torch.manual_seed(0)
    scores, grad = torch.randn(2, 3, 8, 40), torch.randn(2, 3, 8, 40)
    scores[..., 30:] = float("-inf")
    exact = scores.double().requires_grad_()
    (expected,) = torch.autograd.grad(exact.softmax(dim=-1), exact, grad.to(precision).double())
    scores.requires_grad_()
    rounded = attention._Softmax.apply(scores, precision)
    (own,) = torch.autograd.grad(rounded, scores, grad.to(precision))
    assert rounded.dtype == precision
    assert own.dtype == torch.float32
    tolerance = 4 * torch.finfo(precision).eps
    torch.testing.assert_close(own.double(), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize(("name", "wide"), [("rope", 16), ("pope", 32), ("learned", 16)])
def test_values_are_as_wide_as_keys_and_no_wider(name: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoPE's queries and keys are twice as wide as its values; with another width the kernel takes a slow path."""
    seen = []
    kernel = F.scaled_dot_product_attention

    def spy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: object) -> torch.Tensor:
        seen.append({x.shape[-1] for x in (q, k, v)})
        return kernel(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    sizes = ModelConfig(vocab_size=31, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff_width=16)
    with torch.no_grad():
        Model(sizes, name, {}, 16)(torch.zeros(1, 12, dtype=torch.long))
    assert seen == [{wide}] * 2
