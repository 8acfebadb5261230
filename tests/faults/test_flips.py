"""One flipped bit, anywhere in tokens, weights, a state or a table of results, makes no wrong number."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

import extrapolate as xt
from extrapolate import results
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.names import INSPECTIONS_TABLE, PROBES_TABLE
from extrapolate.runs.run import Run
from extrapolate.training import state
from extrapolate.training.optimizer import optimizer_of

Reader = Callable[[Path], object]


@pytest.fixture(scope="module")
def files(evaluated, store, tmp_path_factory) -> dict[str, tuple[Path, Reader]]:
    """A file of each kind, and what reads it; the reader is given a folder with a copy of all that it needs."""
    folder = tmp_path_factory.mktemp("whole")
    run = Run.open(Path(shutil.copytree(evaluated / "rope", folder / "rope")))
    shutil.copytree(store, folder / "store")
    xt.inspect(run, measures="removal", factors=(1,), windows=2, device="cpu")
    model = run.build_model()
    optimizer = optimizer_of(model, run.trained.training)
    model.loss(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)).backward()
    optimizer.step()
    state.save(run.path / "state.safetensors", model, optimizer, state.ResumePoint(1, 0, "0"), run.config_sha256)

    def restored(path: Path) -> object:
        again = Run.open(run.path).build_model()
        return state.restore(path, again, optimizer_of(again, run.trained.training), run.config_sha256)

    readers: dict[str, tuple[Path, Reader]] = {
        "weights": (run.path / "model.safetensors", lambda path: Run.open(path.parent).model),
        "state": (run.path / "state.safetensors", restored),
        "rows": (run.path / "evals.parquet", lambda path: results.read(path, results.EVALS)),
        "documents": (run.path / "eval_documents.parquet", lambda path: results.read(path, results.EVAL_DOCUMENTS)),
        "metrics": (run.path / "metrics.parquet", results.read_frame),
        "inspections": (run.path / INSPECTIONS_TABLE, lambda path: results.read(path, results.INSPECTIONS)),
        "tokens": (folder / "store/test-00000.arrow", lambda path: Store.open(path.parent).split("test")),
        "tokenizer": (folder / "store/tokenizer.json", lambda path: Store.open(path.parent).tokenizer()),
        "tokenizer-of-run": (run.path / "tokenizer.json", lambda path: Run.open(path.parent).tokenizer),
    }
    if (run.path / PROBES_TABLE).exists():
        readers["probes"] = (run.path / PROBES_TABLE, lambda path: results.read(path, results.PROBES))
    return readers


KINDS = ["weights", "state", "rows", "documents", "metrics", "inspections", "tokens", "tokenizer", "tokenizer-of-run"]
TABLES = ["rows", "documents", "metrics", "inspections"]  # a flip in their metadata may change nothing that is read


def same(one: object, other: object) -> bool:
    """Whether two tables are equal."""
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_seen(files, flips, kind) -> None:
    path, read = files[kind]
    whole, content = path.read_bytes(), read(path)
    rng = random.Random(kind)
    missed = []
    for _ in range(flips):
        place, bit = rng.randrange(len(whole)), rng.randrange(8)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            found = read(path)
            if kind not in TABLES or not same(found, content):
                missed.append((place, bit))
        except UserError as error:
            assert path.name in str(error)  # noqa: PT017 (both outcomes are counted)
    path.write_bytes(whole)
    assert not missed, f"{len(missed)} of {flips} flips were not seen: {missed[:5]}"
    read(path)
