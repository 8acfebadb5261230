"""Copies of a model share no memory with it, wherever an encoding of a user's file keeps something."""

from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.model import causality
from extrapolate.model.config import ModelConfig
from extrapolate.model.copies import made_anew
from extrapolate.model.model import Model

CONFIG = ModelConfig(vocab_size=50, layers=2, width=32, heads=2, kv_heads=2, head_dim=16, ff_width=48)
HEAD = """
import functools
import torch
from torch import nn
from extrapolate.encodings.base import Encoding, POSITIONS

class Mine(Encoding):
    display = "Mine"
    accepts = frozenset({POSITIONS})

    def __init__(self, dims, *, rate: float = 0.3):
        super().__init__(dims)
        self.rate = rate
        self.slope = nn.Parameter(torch.randn(dims.heads))
        self.register_buffer("shift", torch.zeros(1), persistent=False)
        self.done = 0.0
"""
KEPT = {
    "in a closure": """
        kept = {}
        def wave(p):
            if len(p) not in kept:
                kept[len(p)] = (self.rate * p).sin()
            return kept[len(p)]
        self.wave = wave
    """,
    "by functools.cache": """
        seen = {}
        length_of = functools.cache(lambda length: (self.rate * seen["p"]).sin())
        def wave(p):
            seen["p"] = p
            return length_of(len(p))
        self.wave = wave
    """,
}
NOTHING_KEPT = "    self.wave = lambda p: (self.rate * p + self.done).sin() * self.slope.sum() + self.shift\n"
EMBED = "    def embed(self, x, pos_T): return x + self.wave(pos_T)[:, None]\n"
TOKENS_BT = torch.arange(16)[None]


def model_of(folder: Path, constructor: str) -> Model:
    file = folder / "mine.py"
    file.write_text(HEAD + indent(dedent(constructor), "        ") + EMBED)
    torch.manual_seed(0)
    return Model(CONFIG, f"{file}:Mine", {"rate": 0.2}, 16).eval()


@pytest.mark.parametrize("constructor", KEPT.values(), ids=KEPT)
@torch.no_grad()
def test_what_functions_of_the_constructor_keep_is_found(tmp_path: Path, constructor: str) -> None:
    """Scaled positions would have the numbers of plain ones, on every copy that shares what a function keeps."""
    calls = [(PLAIN, TOKENS_BT), (Plan(position_scale=0.5), TOKENS_BT)]
    assert causality.remembers(model_of(tmp_path, constructor), calls) is not None


@torch.no_grad()
def test_what_is_made_anew_has_all_values_of_the_model(tmp_path: Path) -> None:
    """Also where functions of the constructor read them from the instance that they were made in."""
    model = model_of(tmp_path, NOTHING_KEPT)
    for layer, encoding in enumerate(model.encodings):
        encoding.slope.fill_(1.0 + layer)
        encoding.shift.fill_(0.25)
        encoding.done = 0.5
    anew = made_anew(model.train())
    assert all(encoding.training for encoding in anew.encodings)
    for encoding, new in zip(model.encodings, anew.encodings, strict=True):
        assert new is not encoding
        assert (new.rate, new.done, new.shift.item()) == (0.2, 0.5, 0.25)
        assert new.slope.equal(encoding.slope)
        assert new.dims == encoding.dims
    assert causality.states_of(anew, PLAIN, TOKENS_BT).equal(causality.states_of(model, PLAIN, TOKENS_BT))
    anew.encodings[0].slope.zero_()
    assert model.encodings[0].slope.all()
    assert causality.remembers(model, [(PLAIN, TOKENS_BT), (Plan(position_scale=0.5), TOKENS_BT)]) is None


def test_random_numbers_of_the_constructor_leave_the_generator_as_it_was(tmp_path: Path) -> None:
    model = model_of(tmp_path, NOTHING_KEPT)
    before = torch.get_rng_state()
    made_anew(model)
    assert torch.get_rng_state().equal(before)
