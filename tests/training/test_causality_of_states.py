"""The check for later tokens in other states than at first: other parameters, later steps, compiled code."""

from pathlib import Path
from textwrap import dedent, indent

import pytest

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.training.causality import check_causality

HEAD = """
import torch
from torch import nn
from extrapolate.encodings.base import Encoding, scaled_product

class Mine(Encoding):
    display = "Mine"
"""


def check(
    folder: Path, store: Store, body: str, seq_len: int = 16, compile: bool = False, precision: str = "fp32"
) -> None:
    """Checks a small model whose encoding has this body."""
    (folder / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
    request = TrainingRequest(
        pe=f"{folder / 'mine.py'}:Mine",
        model={"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48},
        training={
            "seq_len": seq_len,
            "tokens": 512,
            "batch_tokens": 256,
            "precision": precision,
            "compile": compile,
        },
    )
    config, own = resolve(request, store)
    check_causality(config, own, None)


@pytest.mark.parametrize(
    "bias", ["-torch.log1p(self.rates * d)", "torch.exp(9 * self.rates * d) - 1"], ids=["log", "exp"]
)
def test_every_place_is_asked_where_most_parameters_give_no_numbers(
    tmp_path: Path, word_store: Store, bias: str
) -> None:
    """The gate starts closed: random parameters alone show what it lets through, and few of these are finite."""
    start = 1.0 if "log" in bias else -1.0
    body = f"""
    def __init__(self, dims):
        super().__init__(dims)
        self.rates = torch.nn.Parameter(torch.full((8, 1, 1), {start}))
        self.gate = torch.nn.Parameter(torch.zeros(()))
    def embed(self, x, p): return x + self.gate * (p == 170)[:, None] * x.roll(-1, 1)
    def bias(self, i, j):
        d = (i[:, None] - j[None]).clamp(min=0)
        return ({bias}).mean(dim=0, keepdim=True)
    """
    with pytest.raises(xt.UserError, match=r"mine\.py: embed lets token 170 see tokens that come after it, at 256"):
        check(tmp_path, word_store, body, seq_len=256)


def test_what_gives_no_numbers_once_it_learns_is_refused_with_what_to_do(tmp_path: Path, word_store: Store) -> None:
    body = """
    def __init__(self, dims):
        super().__init__(dims)
        self.rates = torch.nn.Parameter(torch.zeros(8))
    def embed(self, x, p): return x + self.rates.sqrt().sum()
    """
    with pytest.raises(xt.UserError, match=r"gives NaN or infinite numbers once its parameters move .* constrain\(\)"):
        check(tmp_path, word_store, body)


def test_an_encoding_that_cannot_be_copied_is_refused_with_what_to_do(tmp_path: Path, word_store: Store) -> None:
    body = """
    def __init__(self, dims):
        super().__init__(dims)
        self.blend = torch.nn.utils.weight_norm(nn.Linear(dims.width, dims.width))
    def embed(self, x, p): return x + self.blend(x)
    """
    with pytest.raises(
        xt.UserError, match=r"mine\.py: the encoding cannot be copied .* torch\.nn\.utils\.parametrizations"
    ):
        check(tmp_path, word_store, body)


@pytest.mark.parametrize(
    ("part", "case"),
    [("max(0.0, 1 - 2 * done)", " in training:"), ("4 * done * (1 - done)", " half-way through training:")],
)
def test_what_sees_later_tokens_in_a_part_of_the_training_is_refused(
    tmp_path: Path, word_store: Store, part: str, case: str
) -> None:
    """An instance that is not trained behaves as at the end, where this one sees none."""
    body = f"""
    part = 0.0
    def begin_step(self, done): self.part = {part}
    def embed(self, x, p): return x + self.part * x.roll(-1, 1)
    """
    with pytest.raises(xt.UserError, match=f"embed lets token [0-9]+ see .*, at 16 tokens{case}"):
        check(tmp_path, word_store, body)


def test_what_sees_later_tokens_in_compiled_code_is_refused(tmp_path: Path, word_store: Store) -> None:
    body = "def embed(self, x, p): return x + x.roll(-1, 1) if torch.compiler.is_compiling() else x"
    check(tmp_path, word_store, body)
    with pytest.raises(xt.UserError, match=r"lets token [0-9]+ see .*, at 16 tokens in compiled code: "):
        check(tmp_path, word_store, body, compile=True)
    check(tmp_path, word_store, "def embed(self, x, p): return x + p.sin()[:, None]", compile=True)


def test_what_is_kept_for_windows_that_begin_alike_is_refused(tmp_path: Path, word_store: Store) -> None:
    """As all do that begin with the same special token."""
    body = """
    first = kept = None
    def embed(self, x, p):
        if self.training:
            return x
        if self.first is None or self.first.shape != x[:, :1].shape or not torch.equal(self.first, x[:, :1]):
            self.first, self.kept = x[:, :1].detach(), (x.cumsum(1) / (1 + p)[:, None]).detach()
        return x + self.kept if self.kept.shape == x.shape else x
    """
    with pytest.raises(xt.UserError, match="the encoding gives other numbers after other tokens, lengths or positions"):
        check(tmp_path, word_store, body)


def test_an_encoding_that_makes_much_of_the_last_bits_does_not_hide_what_it_sees_in_bfloat16(
    tmp_path: Path, word_store: Store
) -> None:
    """Rounding alone then changes states by more than a leak does."""
    body = """
    def prepare(self, x): return (x[..., :8].float() * 1e6).floor() % 2
    def scores(self, q, k, c):
        keys = c.state[:, c.keys]
        if k.dtype == torch.bfloat16:
            keys = keys - keys.mean(dim=1, keepdim=True)
        return scaled_product(q, k) + 3 * ((c.state[:, c.queries] - 0.5) @ keys.mT)[:, None] ** 3
    """
    check(tmp_path, word_store, body)
    with pytest.raises(xt.UserError, match=r"scores, or prepare, lets token [0-9]+ see .*, at 32 tokens in training"):
        check(tmp_path, word_store, body, seq_len=32, precision="bf16")
