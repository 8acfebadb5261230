"""PaTH: products of its matrices, multiplied one token at a time in float64, against blocks of tokens."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings import path
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.errors import UserError
from extrapolate.model.attention import chunk_context
from extrapolate.model.model import layer_encodings

B, H, K, D, T = 2, 3, 4, 10, 23
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several in a window, and none that fills it."""
    monkeypatch.setattr(path, "BLOCK", 7)


def made(spec: str, move: float = 0.5) -> Encoding:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    encoding = layer_encodings(parsed.name, parsed.arguments, DIMS)[0]
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(move * torch.randn_like(parameter))
    return encoding


def window(length: int = T) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, length, K), torch.randn(B, H, length, K), torch.randn(B, length, D)


def scores(encoding: Encoding, q: Tensor, k: Tensor, x: Tensor, queries: int = 100) -> Tensor:
    """[B, H, T, T], some queries at a time, 0 for hidden keys."""
    length, state, rows = q.shape[2], encoding.prepare(x), []
    pos = torch.arange(length, dtype=torch.float32)
    for start in range(0, length, queries):
        context = chunk_context(encoding, pos, pos, state, start, min(start + queries, length))
        made = encoding.scores(q[:, :, context.queries], k[:, :, context.keys], context)
        made = made.masked_fill(context.hidden_TS, 0.0)
        rows.append(torch.nn.functional.pad(made, (context.keys.start, length - context.keys.stop)))
    return torch.cat(rows, dim=2)


def formula(encoding: Encoding, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
    """The paper's, with every matrix written out."""
    p = {name: value.double() for name, value in encoding.named_parameters()}
    q, k, x = q.double(), k.double(), x.double()
    found = q.new_zeros(*q.shape[:3], q.shape[2])
    for b in range(q.shape[0]):
        projected = x[b] @ p["narrow.weight"].T @ p["wide.weight"].T
        for h in range(H):
            matrices = []
            for t in range(len(x[b])):
                w = sum(p["taps_UC"][lag] * projected[t - lag] for lag in range(min(3, t + 1)))[h * K : (h + 1) * K]
                w = w / (1 + torch.exp(-w))
                w = w / torch.sqrt(w @ w + 1e-6)
                beta = 2 / (1 + torch.exp(-(p["strength.weight"][h] @ x[b, t] + p["strength.bias"][h])))
                matrices.append(torch.eye(K, dtype=torch.float64) - beta * torch.outer(w, w))
            for i in range(q.shape[2]):
                row, forgotten = q[b, h, i], 0.0
                for j in range(i, -1, -1):
                    found[b, h, i, j] = (row @ k[b, h, j] + forgotten) / math.sqrt(K)
                    row = row @ matrices[j]
                    if "gate.weight" in p:
                        gate = p["gate.weight"][h] @ x[b, j] + p["gate.bias"][h]
                        forgotten = forgotten - torch.log(1 + torch.exp(-gate))
    return found


@cache
def expected(spec: str) -> Tensor:
    """The formula's scores of a window."""
    with torch.no_grad():
        return formula(made(spec), *window())


@pytest.mark.parametrize("queries", [100, 1, 5, 7, 9, 16])
@pytest.mark.parametrize("spec", ["path", "path:forget=true,rank=3"])
def test_scores_are_the_products(spec: str, queries: int) -> None:
    with torch.no_grad():
        actual = scores(made(spec), *window(), queries)
    torch.testing.assert_close(actual.double(), expected(spec), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 6, 7, 8, 14, 15])
def test_windows_of_any_length(length: int) -> None:
    encoding = made("path:forget=true")
    with torch.no_grad():
        theirs = formula(encoding, *window(length))
        torch.testing.assert_close(scores(encoding, *window(length), 4).double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seen", [1, 4, 7, 10, 16])
def test_keys_before_a_window_are_left_out_and_change_nothing(seen: int) -> None:
    encoding = made("path")
    with torch.no_grad():
        whole = scores(encoding, *window())
        distance = torch.arange(T)[:, None] - torch.arange(T)
        some = scores(encoding.copy_with(window=seen), *window(), 5)
    torch.testing.assert_close(some, whole.masked_fill(distance >= seen, 0.0), rtol=1e-5, atol=1e-5)


def test_gradients_are_the_formulas() -> None:
    encoding = made("path:forget=true")
    q, k, x = (part.requires_grad_() for part in window(17))
    leaves = [q, k, x, *encoding.parameters()]
    weights = torch.randn(B, H, 17, 17)
    by_hand = torch.autograd.grad((formula(encoding, q, k, x) * weights).sum(), leaves)
    actual = torch.autograd.grad((scores(encoding, q, k, x, 6) * weights).sum(), leaves)
    for mine, theirs in zip(actual, by_hand, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())


def test_without_strength_it_is_no_encoding() -> None:
    """beta = 0 makes every matrix the identity."""
    encoding = made("path")
    with torch.no_grad():
        encoding.strength.weight.zero_()
        encoding.strength.bias.fill_(-100.0)
        q, k, x = window()
        plain = (q @ k.mT / math.sqrt(K)).tril()
        torch.testing.assert_close(scores(encoding, q, k, x, 5), plain, rtol=1e-5, atol=1e-5)


def test_it_starts_as_projections() -> None:
    encoding = made("path", move=0.0)
    _, _, x = window()
    with torch.no_grad():
        encoding.strength.weight.zero_()
        w, solved, _ = encoding.prepare(x)
    torch.testing.assert_close(w.square().sum(dim=-1), torch.ones(B, H, T), rtol=1e-2, atol=0.0)
    torch.testing.assert_close(solved.diagonal(dim1=-2, dim2=-1).flatten(2)[..., :T], torch.ones(B, H, T))


def test_strong_reflections_do_not_overflow_or_grow() -> None:
    """beta near 2 and w nearly alike: the block's system is then at its worst, and products keep a query's length."""
    encoding = made("path")
    q, k, x = window(600)
    x = x[:, :1] + 0.01 * x
    with torch.no_grad():
        encoding.strength.bias.fill_(100.0)
        found = scores(encoding, q, k, x, 128)
    assert torch.isfinite(found).all()
    bound = q.norm(dim=-1)[..., None] * k.norm(dim=-1)[:, :, None] / math.sqrt(K)
    assert (found.abs() <= bound + 1e-3).all()


def test_no_tensor_is_as_large_as_all_pairs() -> None:
    """What `prepare` makes grows with the length alone."""
    sizes = [sum(x.numel() for x in made("path").prepare(window(length)[2])[:2]) for length in (70, 140)]
    assert sizes[1] == 2 * sizes[0]


def test_a_rank_is_at_least_1() -> None:
    with pytest.raises(UserError, match="path: rank must be at least 1, not 0"):
        made("path:rank=0")
