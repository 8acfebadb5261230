"""A run whose saved weights are not all of the trained model is refused.

tests/model/test_causality.py has what is refused before the first step.
"""

from pathlib import Path
from textwrap import dedent, indent

import pytest

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.folders import WEIGHTS
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import train

HEAD = """
import numpy as np
import torch
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
    source = "this file"

    def embed(self, x, p): return x + (p[:, None] * self.rate).sin()
"""
SIZES = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
BUDGET = {"seq_len": 16, "tokens": 1280, "batch_tokens": 256, "precision": "fp32"}
CONSTRUCTOR = """
    def __init__(self, dims):
        super().__init__(dims)
"""
UNSAVED = {
    "drawn, and no buffer": CONSTRUCTOR + "        self.rate = torch.rand(32)",
    "drawn by NumPy": CONSTRUCTOR + "        self.rate = float(np.random.rand())",
    "drawn, in a buffer that is not saved": CONSTRUCTOR
    + "        self.register_buffer('rate', torch.rand(32), persistent=False)",
    "steps that are counted": """
    count = 0
    @property
    def rate(self):
        self.count += self.training
        return 1 + 0.1 * self.count
    """,
    "a schedule that begins anew": """
    rate = 0.0
    def begin_step(self, done): self.rate = 4 * done
    """,
    "a mean that is kept outside of the weights": CONSTRUCTOR
    + """
        self.register_buffer("rate", torch.zeros(()), persistent=False)
    def begin_step(self, done): self.rate.lerp_(torch.tensor(4.0), 0.5)
    """,
    "from a step on that the check before the training does not reach": """
    rate = 1.0
    def begin_step(self, done): self.rate = 2.0 if 0.7 < done < 1 else self.rate
    """,
}
SAVED = {
    "drawn, in a buffer": CONSTRUCTOR + "        self.register_buffer('rate', torch.rand(32))",
    "steps that are counted in a buffer": CONSTRUCTOR
    + """
        self.register_buffer("rate", torch.ones(()))
    def prepare(self, x): self.rate += 0.1 * self.training
    """,
    "a schedule with the end of training as its default": """
    rate = 4.0
    def begin_step(self, done): self.rate = 4 * done
    """,
}


def trained_with(body: str, folder: Path, store: Store) -> Run:
    file = folder / "mine.py"
    file.write_text(HEAD + indent(dedent(body), "    "))
    config, _ = resolve(TrainingRequest(pe=f"{file}:Mine", model=SIZES, training=BUDGET), store)
    return train(TrainingJob(config, store, folder / "run", user_encoding=file))


@pytest.mark.parametrize("body", UNSAVED.values(), ids=UNSAVED)
def test_what_the_weights_do_not_hold_is_refused(body: str, tmp_path: Path, word_store: Store) -> None:
    with pytest.raises(xt.UserError, match=r"computes other numbers than the trained one.*: keep what"):
        trained_with(body, tmp_path, word_store)
    assert not (tmp_path / "run" / WEIGHTS).exists()


@pytest.mark.parametrize("body", SAVED.values(), ids=SAVED)
def test_what_they_hold_is_evaluated(body: str, tmp_path: Path, word_store: Store) -> None:
    run = trained_with(body, tmp_path, word_store)
    rows = xt.evaluate(run, data=word_store, factors=(1,), max_targets=64, protocols="windows")
    assert rows["loss"].notna().all()
