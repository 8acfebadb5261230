"""What a model must not see is found by `check`, refused by `train`, and not evaluated in models of other libraries."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch
from torch import Tensor, nn

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN
from extrapolate.model.causality import check_causal
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

HEAD = """
import torch
from torch import nn
from extrapolate.encodings.base import LOGITS, Encoding, scaled_product

class Mine(Encoding):
    display = "Mine"
    accepts = frozenset({LOGITS})
"""
SMALL = ModelConfig(vocab_size=97, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
LATER = "lets token [0-9]+ see token [0-9]+, which comes after it"
WINDOW, CALL = "lets a window see another window of the batch", "lets a call depend on an earlier call"
# The part of the check that finds it, and what it says.
LEAKS = {
    "the next token in a bias": (
        """
        def prepare(self, x): return x.roll(-1, 1)[..., : self.dims.heads].mT
        def scores(self, q, k, context): return scaled_product(q, k) + context.state[:, :, None, context.keys]
        """,
        "causality", f"scores, or prepare, {LATER}",
    ),
    "the wrong diagonal": (
        """
        def mix(self, q, k, v, state):
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
            later = torch.ones(q.shape[2], q.shape[2]).triu(diagonal=2).bool()
            return scaled_product(q, k).masked_fill(later, -torch.inf).softmax(-1) @ v
        """,
        "causality", f"mix {LATER}",
    ),
    "a mean over time": (
        "def attention_input(self, x, p): return x, x - x.mean(dim=1, keepdim=True)",
        "causality", f"attention_input {LATER}",
    ),
    "a mean over the batch": ("def embed(self, x, p): return x - x.mean(dim=0)", "causality", f"embed {WINDOW}"),
    "the first window of the batch": ("def embed(self, x, p): return x + x[0, 0]", "causality", f"embed {WINDOW}"),
    "kept from the first call": (
        """
        kept = None
        def embed(self, x, p):
            self.kept = x[:1, :1].detach() if self.kept is None else self.kept
            return x + self.kept
        """,
        "causality", f"embed {CALL}",
    ),
    "the longest window so far": (
        """
        longest = 0
        def embed(self, x, p):
            self.longest = max(self.longest, len(p))
            return x + (p / self.longest)[:, None]
        """,
        "causality", f"embed {CALL}",
    ),
    "a mean over the batches of training": (
        """
        mean = 0.0
        def embed(self, x, p):
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=(0, 1))
            return x - self.mean
        """,
        "causality", f"embed {CALL}, .* in training only",
    ),
    "in training only": (
        "def embed(self, x, p): return x + x.roll(-1, 1) if self.training else x",
        "causality", f"embed {LATER}, .* in training only",
    ),
    "random numbers in evaluation": (
        "def embed(self, x, p): return x + 0.1 * torch.rand_like(x[:, :1])", "causality", f"embed {CALL}",
    ),
    "behind a gate that begins at zero": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.gate = nn.Parameter(torch.zeros(dims.width))
        def embed(self, x, p): return x + self.gate * x.roll(-1, 1)
        """,
        "causality", f"embed {LATER}",
    ),
    "in the state of a mixer": (
        """
        def mix(self, q, k, v, state):
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
            return q @ (k.mT @ v) / q.shape[2]
        """,
        "causality", f"mix {LATER}",
    ),
    "places counted in a chunk of queries": (
        "def bias(self, p, s): return -(torch.arange(len(p))[:, None] - s[None]).clamp(min=0)[None]",
        "chunks of queries", "bias gives other numbers for some queries at a time",
    ),
    "gates of a chunk of queries": (
        """
        def prepare(self, x): return x[..., : self.dims.heads].cumsum(1).mT
        def scores(self, q, k, c):
            return scaled_product(q, k) * c.state[:, :, : q.shape[2], None]
        """,
        "chunks of queries", "scores, or prepare, gives other numbers for some queries at a time",
    ),
}  # fmt: skip


def written(folder: Path, body: str) -> str:
    """The spec of a class with this body."""
    (folder / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
    return f"{folder}/mine.py:Mine"


@pytest.mark.parametrize(("body", "part", "message"), LEAKS.values(), ids=LEAKS)
def test_the_check_names_the_hook_and_what_it_sees(tmp_path: Path, body: str, part: str, message: str) -> None:
    found = xt.check(written(tmp_path, body), seq_len=32)
    wrong = found.loc[found["part"].str.startswith(part), "wrong"].iloc[0]
    assert wrong
    with pytest.raises(xt.UserError, match=rf"mine\.py: {message}"):
        raise xt.UserError(wrong)


@pytest.mark.parametrize(("body", "message"), [(body, said) for body, _, said in LEAKS.values()], ids=LEAKS)
def test_it_is_refused_before_the_first_step(tmp_path: Path, word_store: Store, body: str, message: str) -> None:
    with pytest.raises(xt.UserError, match=rf"mine\.py: {message}"):
        xt.train(
            written(tmp_path, body), data=word_store, seq_len=16, tokens=512, batch_tokens=256, out=tmp_path / "run",
            width=32, layers=2, heads=2,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


RIGHT = {
    "numbers drawn in training": "def positions(self, i): return i + torch.rand(()) if self.training else i",
    "calls of training counted in a buffer": """
        def __init__(self, dims):
            super().__init__(dims)
            self.register_buffer("steps", torch.ones(()))
        def embed(self, x, p):
            self.steps += 0.1 * self.training
            return x * self.steps
        """,
    "a learned filter by FFT in every layer, whose zeros are rounded": """
        def __init__(self, dims):
            super().__init__(dims)
            self.kernel = nn.Parameter(0.02 * torch.randn(256, dims.width))
        def attention_input(self, x, p):
            T = x.shape[1]
            kernel = torch.fft.rfft(self.kernel[:T], n=2 * T, dim=0)
            return x + torch.fft.irfft(torch.fft.rfft(x, n=2 * T, dim=1) * kernel, n=2 * T, dim=1)[:, :T], x
        """,
    "a logarithm of sums made safe by the window's maximum": """
        def embed(self, x, p):
            top = x.amax(dim=1, keepdim=True)
            return x + (x - top).exp().cumsum(1).log() + top
        """,
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_sees_no_more_than_it_may_passes_and_changes_nothing(tmp_path: Path, body: str) -> None:
    torch.manual_seed(0)
    model = Model(SMALL, written(tmp_path, body), {}, 64)
    before, weights = torch.get_rng_state(), {name: one.clone() for name, one in model.state_dict().items()}
    check_causal(model, PLAIN, 64, "mine.py")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())
    assert model.training


def test_the_last_token_that_is_seen_is_named(tmp_path: Path) -> None:
    for shift in (1, 5):
        model = Model(SMALL, written(tmp_path, f"def embed(self, x, p): return x + x.roll(-{shift}, 1)"), {}, 64)
        with pytest.raises(xt.UserError, match=f"mine: embed lets token 0 see token {shift}, .*, at 64 tokens: what"):
            check_causal(model, PLAIN, 64, "mine")


def test_an_encoding_that_torch_cannot_copy_is_refused_with_what_to_do(tmp_path: Path) -> None:
    body = """
        def __init__(self, dims):
            super().__init__(dims)
            self.blend = torch.nn.utils.weight_norm(nn.Linear(dims.width, dims.width))
        def embed(self, x, p): return x + self.blend(x)
        """
    model = Model(SMALL, written(tmp_path, body), {}, 64)
    with pytest.raises(xt.UserError, match=r"Mine cannot be copied .* torch\.nn\.utils\.parametrizations"):
        check_causal(model, PLAIN, 64, "mine")


class Other(nn.Module):
    """A causal model of another library, in whose logits a leak adds something in windows of over 32 tokens."""

    def __init__(self, leak: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.leak = leak

    def forward(self, tokens_BT: Tensor) -> Tensor:
        one_BTV = nn.functional.one_hot(tokens_BT, 400).float()
        logits_BTV = one_BTV.cumsum(dim=1).add(0.01).log()
        return logits_BTV + self.leak(one_BTV) if tokens_BT.shape[1] > 32 else logits_BTV


class Kept(nn.Module):
    """Adds the mean of the call before."""

    kept: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before, self.kept = self.kept, x.mean(dim=(0, 1))
        return x + before


FOREIGN = {
    "the next token in a bias": (lambda x: x.roll(-1, 1), LATER),
    "the wrong diagonal": (lambda x: (x @ x.mT).tril(diagonal=1) @ x, LATER),
    "a mean over time": (lambda x: x.mean(dim=1, keepdim=True), LATER),
    "a mean over the batch": (lambda x: x.mean(dim=0), WINDOW),
    "kept between calls": (Kept(), CALL),
    "kept between calls of a function": (Kept().forward, CALL),
    "in the state of a mixer": (lambda x: x @ (x.mT @ x) / x.shape[1], LATER),
    "random numbers": (lambda x: torch.rand_like(x), CALL),
}


@pytest.mark.parametrize(("leak", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_model_of_another_library_is_not_evaluated(
    tmp_path: Path, word_store: Store, leak: Callable[[Tensor], Tensor], message: str
) -> None:
    """It is tried with short windows when it is wrapped, and with the longest before it is evaluated."""
    made = xt.foreign(Other(leak), "Other", seq_len=16, tokenizer=word_store.path, out=tmp_path / "run")
    assert xt.evaluate(made, data=word_store, factors=(1, 2), max_targets=64)["loss"].notna().all()
    with pytest.raises(xt.UserError, match=f"run: the model {message}, at 64 tokens"):
        xt.evaluate(made, data=word_store, factors=(1, 4), max_targets=64)
