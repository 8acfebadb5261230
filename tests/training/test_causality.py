"""An encoding that sees the future is not trained."""

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.training.causality import check_causality
from extrapolate.training.loop import train

HEAD = """
import torch
from torch import nn
from extrapolate.encodings.base import Encoding, scaled_product

def by_fft(x, kernel_ND):
    # A causal convolution, whose zeros are rounded.
    size, length = 2 * x.shape[1], x.shape[1]
    kernel = torch.fft.rfft(kernel_ND[:length], n=size, dim=0)
    return torch.fft.irfft(torch.fft.rfft(x, n=size, dim=1) * kernel, n=size, dim=1)[:, :length]

class Mine(Encoding):
    display = "Mine"
"""
SIZES = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
BUDGET = {"seq_len": 16, "tokens": 512, "batch_tokens": 256, "precision": "fp32"}
KEPT = "the encoding gives other numbers after other tokens, lengths or positions than at first, at 16 tokens"
LATER = "lets token [0-9]+ see tokens that come after it, at 16 tokens"
GATED = """
    def __init__(self, dims):
        super().__init__(dims)
        self.gate = nn.Parameter(START)
    def embed(self, x, pos_T):
        return x + self.gate * x.roll(-1, dims=1)
    """
LEAKS = {
    "embed": ("def embed(self, x, p): return nn.functional.pad(x[:, :-1] + x[:, 1:], (0, 0, 0, 1))", f"embed {LATER}"),
    "values of all tokens": (
        "def attention_input(self, x, p): return x, x - x.mean(dim=1, keepdim=True)", f"attention_input {LATER}",
    ),
    "gates from behind": (
        """
        def prepare(self, x): return x[..., :2].flip(1).cummax(1).values.flip(1).mT
        def scores(self, q, k, c): return scaled_product(q, k) + c.state[:, :, None, c.keys]
        """,
        f"scores, or prepare, {LATER}",
    ),
    "keys rolled": ("def rotate(self, q, k, p, s, state): return q, k + k.roll(-1, dims=2)", f"rotate {LATER}"),
    "in evaluation alone": (
        "def embed(self, x, p): return x if self.training else x + x.roll(-1, dims=1)", f"embed {LATER}:",
    ),
    "in inference mode alone": (
        "def embed(self, x, p): return x + torch.is_inference_mode_enabled() * x.roll(-1, dims=1)", f"embed {LATER}:",
    ),
    "in training alone, without a gradient": (
        "def embed(self, x, p): return x + x.detach().roll(-1, dims=1) if self.training else x",
        f"embed {LATER} in training:",
    ),
    "the next token's largest channel": (
        "def embed(self, x, p): return x + 0.01 * x.roll(-1, dims=1).argmax(-1, keepdim=True)", f"embed {LATER}",
    ),
    "of some contents": (
        "def embed(self, x, p): return torch.where(x[..., :1] > 0.02, x.roll(-1, 1), x)", f"embed {LATER}",
    ),
    "kept from the first call": (
        """
        kept = None
        def embed(self, x, p):
            self.kept = x[:, :1].detach() if self.kept is None else self.kept
            return x + self.kept
        """, KEPT,
    ),
    "a table that is kept by length": (
        """
        tables = {}
        def embed(self, x, p): return x + self.tables.setdefault(len(p), p.sin()[:, None])
        """, KEPT,
    ),
    "the longest window so far": (
        """
        longest = 16
        def embed(self, x, p):
            self.longest = max(self.longest, len(p))
            return x + (p / self.longest).sin()[:, None]
        """, KEPT,
    ),
    "where a token recurs after the same one": (
        """
        def embed(self, x, p):
            same = torch.cdist(x, x) == 0
            again = (same[:, 1:, 1:] & same[:, :-1, :-1]).sum(-1) > 1
            return x + nn.functional.pad(again, (1, 0))[..., None]
        """,
        f"embed {LATER}",
    ),
    "at every eighth place": (
        "def embed(self, x, p): return torch.where((p % 8 == 5)[:, None], x.roll(-1, 1), x)", f"embed {LATER}",
    ),
    "a convolution of neighbours that starts as the identity": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.blend = nn.Conv1d(dims.width, dims.width, 3, padding=1, groups=dims.width, bias=False)
            nn.init.dirac_(self.blend.weight, groups=dims.width)
        def embed(self, x, p): return self.blend(x.mT).mT
        """,
        f"embed {LATER}",
    ),
    "in one layer": (
        "def attention_input(self, x, p): return (x, x.roll(-1, 1)) if self.dims.layer else (x, x)",
        f"attention_input {LATER}",
    ),
    "a gate that is closed at first": (GATED.replace("START", "torch.zeros(dims.width)"), f"embed {LATER}"),
    "a gate that is too small for float32": (
        GATED.replace("START", "1e-9 * torch.randn(dims.width)"), f"embed {LATER}",
    ),
    "a gate that a sigmoid closes": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.gate = nn.Parameter(torch.full((dims.width,), -30.0))
        def embed(self, x, p): return x + self.gate.sigmoid() * x.roll(-1, dims=1)
        """,
        f"embed {LATER}",
    ),
    "a mean over the batches of training": (
        """
        mean = 0.0
        def embed(self, x, p):
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=(0, 1))
            return x - self.mean
        """,
        "embed makes a window depend on the windows beside it in a batch, at 16 tokens in training",
    ),
    "the largest number of the batch": ("def embed(self, x, p): return x / x.abs().max()", "embed .* at 16 tokens"),
    "an anchor that forgot the windows": (
        "def embed(self, x, p): return x + 0.5 * x[0, 0]",
        "embed makes a window depend on the windows beside it in a batch, at 16 tokens",
    ),
    "a cache of contents that the class keeps": (
        """
        cache = {}
        def prepare(self, x):
            key = (self.dims.layer, x.shape)
            if key not in self.cache:
                self.cache[key] = x.mean(1, keepdim=True).detach()
            return self.cache[key]
        def scores(self, q, k, context):
            return scaled_product(q, k) * (1 + context.state.sum(-1)[:, None, :, None])
        """, KEPT,
    ),
    **{
        f"in a branch that is taken if torch.{rare}": (
            f"def embed(self, x, p): return x + x.roll(-1, 1) if self.training and torch.{rare} else x",
            f"embed {LATER} in training",
        )
        for rare in ("rand(()) < 0.02", "rand(()) > 0.98", "randint(0, 10, ()) == 7", "randperm(6)[0] == 1")
    },
    "in a branch that evaluation rarely takes": (
        "def embed(self, x, p): return x if self.training or torch.rand(()) < 0.9 else x.roll(-1, 1)",
        "embed draws random numbers in evaluation, at 16 tokens: draw them in training alone",
    ),
    **{
        f"if another library draws {what}": (
            f"""
            def embed(self, x, p):
                import random
                return {what} if self.training else x
            """,
            "embed gives other numbers for the same tokens when called again, at 16 tokens in training: draw random",
        )
        for what in ("x * random.random()", "x.roll(-1, 1) if random.random() < 1e-9 else x")
    },
    "beside random numbers, of which the tokens decide how many are drawn": (
        """
        def embed(self, x, p):
            y, chosen = x.clone(), x[..., 0] > 0
            y[:, :-1] += 2 * x[:, 1:]
            y[chosen] += 1e-3 * torch.randn(int(chosen.sum()), x.shape[-1])
            return y
        """,
        f"embed {LATER}",
    ),
    "with gradients alone": (
        "def embed(self, x, p): return x + x.roll(-1, 1).detach() if torch.is_grad_enabled() else x",
        f"embed {LATER} in training:",
    ),
    "of what is trained": (
        "def embed(self, x, p): return x + x.roll(-1, 1).detach() if x.requires_grad else x",
        f"embed {LATER} in training:",
    ),
    "kept from batch to batch of training": (
        """
        kept = 0.0
        def embed(self, x, p):
            before = self.kept
            if self.training:
                self.kept = x[:1, :1].detach()
            return x + before
        """,
        "the encoding gives other numbers after .* than at first, at 16 tokens in training",
    ),
    "the window before in the batch": (
        "def embed(self, x, p): return x + x.roll(1, dims=0)", "embed makes a window depend on the windows beside it",
    ),
    "in float32 alone, of which float64 shows nothing": (
        "def attention_input(self, x, p): return x, x.roll(-1, 1) if x.dtype == torch.float32 else x",
        f"attention_input {LATER}",
    ),
    "a mean over the window if it is alone": (
        "def embed(self, x, p): return x - x.mean(dim=1, keepdim=True) if len(x) == 1 else x",
        "the encoding gives one window alone other numbers, at 16 tokens",
    ),
    "a mean over the batch": (
        "def embed(self, x, p): return x - x.mean(dim=0)", "embed makes a window depend on the windows beside it",
    ),
}  # fmt: skip
# In bfloat16 alone, as kernels of their own have errors of their own.
IN_BF16 = {
    "embed": "(self, x, p): return x + 0.01 * x.roll(-1, 1) if torch.is_autocast_enabled('cpu') else x",
    "rotate": "(self, q, k, p, s, state): return q, k + 0.5 * k.roll(-1, 2) if k.dtype == torch.bfloat16 else k",
}
RIGHT = {
    "a bias for later keys, which attention hides": "def bias(self, p, s): return (s[None, :] - p[:, None])[None]",
    "a constant mask that is kept as a parameter": """
        def __init__(self, dims):
            super().__init__(dims)
            self.mask = nn.Parameter(torch.ones(64, 64).tril(), requires_grad=False)
        def embed(self, x, p): return self.mask[: x.shape[1], : x.shape[1]] @ x
        """,
    "numbers drawn in training": "def positions(self, i): return i + torch.rand(()) if self.training else i",
    "a convolution by FFT, whose zeros are rounded": """
        def __init__(self, dims):
            super().__init__(dims)
            self.kernel = nn.Parameter(torch.randn(256, dims.width))
        def embed(self, x, p): return by_fft(x, self.kernel)
        """,
    "a learned filter by FFT, in every layer": """
        def __init__(self, dims):
            super().__init__(dims)
            self.kernel = nn.Parameter(0.02 * torch.randn(256, dims.width))
        def attention_input(self, x, p): return x + by_fft(x, self.kernel), x
        """,
    "a mean by FFT with learned decays": """
        def __init__(self, dims):
            super().__init__(dims)
            self.decay = nn.Parameter(torch.full((dims.width,), 0.9))
        def embed(self, x, p): return by_fft(x, self.decay ** torch.arange(x.shape[1])[:, None])
        """,
    "noise for some tokens alone": """
        def embed(self, x, p):
            if not self.training:
                return x
            chosen = x[..., 0] > 0
            y = x.clone()
            y[chosen] += 0.1 * torch.randn_like(y[chosen])
            return y
        """,
    "what is left of a sum": """
        def embed(self, x, p):
            later = x.flip(1).cumsum(1).flip(1) - x
            return x + x.sum(dim=1, keepdim=True) - later
        """,
    "a logarithm of sums made safe by the window's maximum": """
        def embed(self, x, p):
            top = x.amax(dim=1, keepdim=True)
            return x + (x - top).exp().cumsum(1).log() + top
        """,
    "a sum of later tokens, which moves all keys that are seen alike": """
        def prepare(self, x): return x[..., :2].flip(1).cumsum(1).flip(1).mT
        def scores(self, q, k, c): return scaled_product(q, k) + c.state[:, :, None, c.keys]
        """,
}


def written(folder: Path, body: str) -> Path:
    (folder / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
    return folder / "mine.py"


def request_for(file: Path, **training: Any) -> TrainingRequest:
    return TrainingRequest(pe=f"{file}:Mine", model=SIZES, training=BUDGET | training)


@pytest.mark.parametrize(("body", "message"), LEAKS.values(), ids=LEAKS)
def test_an_encoding_that_sees_more_than_it_may_is_not_trained(
    tmp_path: Path, word_store: Store, body: str, message: str
) -> None:
    config, file = resolve(request_for(written(tmp_path, body)), word_store)
    with pytest.raises(xt.UserError, match=rf"mine\.py: {message}"):
        train(config, word_store, tmp_path / "run", user_encoding=file)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", ["p == 200", "p == p[-2]", "p % 48 == 47"])
def test_every_place_is_asked_of_windows_that_are_not_too_long(tmp_path: Path, word_store: Store, case: str) -> None:
    body = f"def embed(self, x, p): return torch.where(({case})[:, None], x.roll(-1, 1), x)"
    config, file = resolve(request_for(written(tmp_path, body), seq_len=256), word_store)
    with pytest.raises(xt.UserError, match=r"mine\.py: embed lets token [0-9]+ see tokens that come after it, at 256"):
        train(config, word_store, tmp_path / "run", user_encoding=file)


def test_a_whole_batch_is_asked(tmp_path: Path, word_store: Store) -> None:
    body = "def embed(self, x, p): return x.roll(-1, 1) if len(x) == 64 else x"
    budget = {"tokens": 2048, "batch_tokens": 1024, "micro_batch_tokens": 1024}
    config, file = resolve(request_for(written(tmp_path, body), **budget), word_store)
    with pytest.raises(xt.UserError, match=rf"mine\.py: embed {LATER} in a whole batch of training"):
        train(config, word_store, tmp_path / "run", user_encoding=file)


def test_what_begins_within_the_training_is_asked_at_every_place(tmp_path: Path, word_store: Store) -> None:
    body = """
        on = False
        def begin_step(self, done): self.on = done > 0.3
        def embed(self, x, p): return torch.where((self.on & (p == 200))[:, None], x.roll(-1, 1), x)
        """
    config, file = resolve(request_for(written(tmp_path, body), seq_len=256), word_store)
    with pytest.raises(xt.UserError, match=r"mine\.py: embed lets token 200 see"):
        train(config, word_store, tmp_path / "run", user_encoding=file)


@pytest.mark.parametrize("count", ["self.steps += 1", "self.steps = self.steps + int(self.training)"])
def test_what_sees_later_tokens_after_some_steps_alone_has_no_final_weights(
    tmp_path: Path, word_store: Store, count: str
) -> None:
    where = "constrain(self)" if "+=" in count else "prepare(self, x)"
    body = f"""
        def __init__(self, dims):
            super().__init__(dims)
            self.register_buffer("steps", torch.zeros(()))
        def {where}:
            {count}
        def embed(self, x, p): return x + x.roll(-1, 1) if self.steps > 5 else x
        """
    config, file = resolve(request_for(written(tmp_path, body), tokens=4096), word_store)
    with pytest.raises(xt.UserError, match=f"run: embed {LATER} at the end of the training"):
        train(config, word_store, tmp_path / "run", user_encoding=file)
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("hook", IN_BF16)
def test_what_sees_later_tokens_in_bf16_alone_is_neither_trained_nor_evaluated_in_it(
    tmp_path: Path, word_store: Store, hook: str
) -> None:
    own = written(tmp_path, f"def {hook}{IN_BF16[hook]}")
    config, file = resolve(request_for(own, precision="bf16"), word_store)
    with pytest.raises(xt.UserError, match=rf"mine\.py: {hook} {LATER} in training"):
        train(config, word_store, tmp_path / "run", user_encoding=file)
    config, file = resolve(request_for(own), word_store)
    run = train(config, word_store, tmp_path / "run", user_encoding=file)
    xt.evaluate(run, data=word_store, factors=(1,), max_targets=64)
    with pytest.raises(xt.UserError, match=rf"run: {hook} {LATER} in bf16"):
        xt.evaluate(run, data=word_store, factors=(1,), max_targets=64, precisions="bf16")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_sees_no_more_than_it_may_passes_and_random_numbers_stay(
    tmp_path: Path, word_store: Store, body: str, precision: str
) -> None:
    config, file = resolve(request_for(written(tmp_path, body), precision=precision), word_store)
    before = torch.get_rng_state()
    check_causality(config, file, None)
    assert torch.equal(torch.get_rng_state(), before)


LONG = {  # what a long window alone shows, and the lengths of such windows
    **{
        f"over the ends of blocks of {size}": (
            f"torch.where((p % {size} == {size - 1})[:, None], x.roll(-1, 1), x)", (64, 128),
        )
        for size in (16, 24, 50)
    },
    "the largest number": ("x / x.abs().amax(dim=(1, 2), keepdim=True)", (256,)),
}  # fmt: skip


@pytest.mark.parametrize(("embedded", "lengths"), LONG.values(), ids=LONG)
def test_what_sees_more_in_a_long_window_is_not_trained(
    tmp_path: Path, word_store: Store, embedded: str, lengths: tuple[int, ...]
) -> None:
    file = written(tmp_path, f"def embed(self, x, p): return {embedded}")
    for length in lengths:
        with pytest.raises(xt.UserError, match=r"mine\.py: embed (lets token \d+ see|gives tokens .* other numbers)"):
            check_causality(*resolve(request_for(file, seq_len=length), word_store), None)


@pytest.mark.parametrize("name", [name for name in RIGHT if "FFT" in name or "sum" in name])
def test_rounding_is_no_leak_in_an_evaluation(tmp_path: Path, word_store: Store, name: str) -> None:
    config, file = resolve(request_for(written(tmp_path, RIGHT[name])), word_store)
    run = train(config, word_store, tmp_path / "run", user_encoding=file)
    rows = xt.evaluate(run, data=word_store, factors=(1, 4), max_targets=64, precisions=["fp32", "bf16"])
    assert rows["loss"].notna().all()
