"""An evaluation that runs out of memory: less at a time, then a row without a loss, and what comes after it."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.encodings.alibi import ALiBi
from extrapolate.errors import UserError
from extrapolate.evaluation.losses import BATCH_TOKENS, target_losses
from extrapolate.evaluation.memory import OutOfMemoryError, of_memory
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.progress import Quiet

L = 16
CPU = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12"
FAILURES = [MemoryError(), RuntimeError(CPU), torch.OutOfMemoryError("Tried to allocate 2.00 GiB.")]


class Limited(nn.Module):
    """A model that fails where a batch has more than so many tokens, as a machine with little memory does."""

    def __init__(self, vocab_size: int, most: int, failure: Exception) -> None:
        super().__init__()
        self.most, self.failure, self.seen = most, failure, []
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(vocab_size, vocab_size, generator=generator))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        if tokens_BT.numel() > self.most:
            raise self.failure
        self.seen.append(tuple(tokens_BT.shape))
        return self.table[tokens_BT]


class Told(Quiet):
    """Progress of which the lines on memory are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        if "memory" in message:
            self.lines.append(message)


def evaluated(store: Store, out: Path, most: int, failure: Exception, **settings) -> tuple[pd.DataFrame, list[str]]:
    told = Told()
    run = xt.foreign(Limited(store.vocab_size, most, failure), "Limited", L, store.tokenizer(), out=out)
    evaluate = xt.evaluate_probes if "probes" in settings else xt.evaluate
    rows = evaluate(run, data=store, factors=(1, 2, 4), progress=told, **settings)
    return rows, told.lines


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_batches_are_halved_until_they_fit(word_store: Store, tmp_path: Path, failure: Exception) -> None:
    """The losses are those of a machine where all fits."""
    little, said = evaluated(word_store, tmp_path / "little", 4 * L, failure, max_targets=256)
    much, _ = evaluated(word_store, tmp_path / "much", BATCH_TOKENS, failure, max_targets=256)
    assert not said
    assert little["loss"].notna().all()
    np.testing.assert_allclose(little["loss"], much["loss"], rtol=1e-6)


def test_a_length_that_never_fits_has_no_loss_and_the_others_have(word_store: Store, tmp_path: Path) -> None:
    rows, said = evaluated(word_store, tmp_path / "m", 2 * L, FAILURES[1], max_targets=256)
    assert rows.groupby("factor")["loss"].apply(lambda losses: losses.notna().all()).to_dict() == {
        1: True,
        2: True,
        4: False,
    }
    assert rows["control_loss"].notna().all()
    assert set(rows[rows["factor"] == 4]["reason"]) == {"memory does not suffice"}
    assert rows[rows["factor"] < 4]["reason"].isna().all()
    assert len(said) == rows["protocol"].nunique()  # once each, whatever shares the plan
    for line in said:
        assert line.endswith(
            "memory does not suffice for a window of 64 tokens: 4096 bytes more were asked for; it is n/a"
        )


def test_a_probe_at_a_length_that_never_fits_has_no_accuracy(word_store: Store, tmp_path: Path) -> None:
    rows, said = evaluated(word_store, tmp_path / "m", 2 * L, FAILURES[0], probes="passkey", trials=2)
    assert set(rows[rows["accuracy"].isna()]["factor"]) == {4}
    assert set(rows[rows["accuracy"].notna()]["factor"]) == {1, 2}
    assert set(rows[rows["accuracy"].isna()]["reason"]) == {"memory does not suffice"}
    assert len(said) == 1
    assert "a window of 64 tokens; it is n/a" in said[0]


def test_where_the_control_does_not_fit_there_is_nothing_to_say(word_store: Store, tmp_path: Path) -> None:
    run = xt.foreign(
        model := Limited(word_store.vocab_size, 1000, FAILURES[1]), "M", L, word_store.tokenizer(), out=tmp_path
    )
    model.most = L - 1
    with pytest.raises(OutOfMemoryError, match="does not suffice for a window of 16 tokens: 4096 bytes"):
        xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=256)


def test_other_errors_are_not_taken_for_it(word_store: Store, tmp_path: Path) -> None:
    assert all(of_memory(failure) for failure in FAILURES)
    assert not any(of_memory(error) for error in (RuntimeError("size mismatch"), UserError("memory"), ValueError()))
    run = xt.foreign(
        model := Limited(word_store.vocab_size, 1000, RuntimeError("no")), "M", L, word_store.tokenizer(), out=tmp_path
    )
    model.most = 4 * L  # a window is fine, a batch is not
    with pytest.raises(UserError, match=r"^M fails on a window of 16 tokens \(RuntimeError: no\)"):
        xt.evaluate(run, data=word_store, factors=(1,), max_targets=256)


def test_one_window_is_computed_in_ever_smaller_chunks_of_queries(word_store: Store, monkeypatch) -> None:
    """A bias of a whole chunk is what takes most memory in a long window: here it must not have more than 7 rows."""
    split = word_store.split("test")
    windows = Windows(np.array([0, 0]), np.array([0, 3]), 200, 20)
    torch.manual_seed(0)
    model = Model(ModelConfig(vocab_size=word_store.vocab_size, width=32, layers=2, ff_width=8), "alibi", {}, L).eval()
    expected = target_losses(model, split, windows)
    bias, rows = ALiBi.bias, []

    def limited(self: ALiBi, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        if len(pos_T) > 7:
            raise FAILURES[1]
        rows.append(len(pos_T))
        return bias(self, pos_T, pos_S)

    monkeypatch.setattr(ALiBi, "bias", limited)
    np.testing.assert_allclose(target_losses(model, split, windows), expected, rtol=1e-5)
    assert max(rows) == attention.QUERIES_PER_CHUNK // 32
    monkeypatch.setattr(ALiBi, "bias", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(OutOfMemoryError, match=r"a window of 200 tokens$"):
        target_losses(model, split, windows)


PROGRAM = """
import resource, sys
from pathlib import Path
import torch
import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.progress import Quiet

store, out = Store.open(Path(sys.argv[1])), sys.argv[2]

def model(tokens):  # asks for 8 GiB a window of 64 tokens, 2 for one of 32, a half for one of 16
    torch.empty(len(tokens), tokens.shape[1] ** 2, 2**19)
    return torch.zeros(*tokens.shape, store.vocab_size) + torch.arange(store.vocab_size) / 1000

run = xt.foreign(model, "Hungry", 16, store.tokenizer(), out=out)
xt.evaluate(run, data=store, factors=(1,), max_targets=16, protocols=["windows"])  # its imports take memory
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 5 * 2**30,) * 2)  # 3 GiB away from what must fit and what must not
class Told(Quiet):
    def say(self, message): print(message)
rows = xt.evaluate(run, data=store, factors=(1, 2, 4), max_targets=256, protocols=["windows"], progress=Told())
print(*rows["loss"].notna())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_under_a_limit_of_the_process(word_store: Store, process, tmp_path: Path) -> None:
    ended = process(word_store.path, tmp_path / "m", program=[sys.executable, "-c", PROGRAM]).succeeded()
    assert ended.out.splitlines()[-1] == "True True False"
    assert "memory does not suffice for a window of 64 tokens: 8589934592 bytes more were asked for" in ended.out
