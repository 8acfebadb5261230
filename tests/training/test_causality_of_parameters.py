"""The check for later tokens with other parameters than at first: what they open, and what they break."""

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
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
"""


def check(folder: Path, store: Store, body: str, seq_len: int = 16) -> None:
    """Checks a small model whose encoding has this body."""
    (folder / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
    request = TrainingRequest(
        pe=f"{folder / 'mine.py'}:Mine",
        model={"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48},
        training={"seq_len": seq_len, "tokens": 512, "batch_tokens": 256, "precision": "fp32"},
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
