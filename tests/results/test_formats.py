"""Runs and tables of earlier formats: read in today's words, evaluated again to the same losses, reported, added to."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.results.formats import FORMAT

FIRST = Path(__file__).parents[1] / "fixtures" / "format-1"
PLACE = ["document", "block", "position"]  # what tells the rows of documents apart that have one key
FILES = {"evals": results.EVALS, "eval_documents": results.EVAL_DOCUMENTS, "eval_probes": results.PROBES}
RUNS = ("rope", "learned", "tuned")


def tables_in(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of a run, as they are read."""
    present = {name: folder / f"{name}.parquet" for name in FILES if (folder / f"{name}.parquet").exists()}
    return {name: pd.DataFrame(results.read(path, FILES[name])) for name, path in present.items()}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy of the runs, to be changed."""
    for run in RUNS:
        shutil.copytree(FIRST / run, tmp_path / "ckpt" / run)
    return tmp_path / "ckpt"


def test_the_fixtures_are_of_the_first_format_and_of_no_machine() -> None:
    files = [path for path in FIRST.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    assert not any(word in path.read_bytes() for path in files for word in (b"/tmp/", b"/home/", b"/work/"))
    for path in FIRST.rglob("*.parquet"):
        assert b"extrapolate_format" not in (pq.read_schema(path).metadata or {})


WORDS = {"none": "as-trained", "own taken off": "without-own"}


def test_rows_are_as_they_were_in_todays_words() -> None:
    seen: dict[str, set[str]] = {}
    for run in RUNS:
        for name, table in FILES.items():
            path = FIRST / run / f"{name}.parquet"
            rows = results.read(path, table) if path.exists() else []
            for old in pq.read_table(path).to_pylist() if path.exists() else []:
                seen.setdefault(run, set()).add(old["extension"])
                old["extension"] = WORDS.get(old["extension"], old["extension"])
                if name == "eval_probes":
                    old["probe"] = old.pop("protocol").removeprefix("probe:")
                    assert old["probe"] == "needle"
                names = [*table.key, *(PLACE if name == "eval_documents" else [])]
                key = [old[column] for column in names]
                [new] = [row for row in rows if [row[column] for column in names] == key]
                assert {name: value for name, value in new.items() if value is not None or name in old} == old
    assert seen == {"rope": {"none", "pi"}, "learned": {"none"}, "tuned": {"none", "own taken off"}}


@pytest.mark.parametrize("run", RUNS)
def test_evaluated_again_it_has_the_same_losses_and_its_rows_are_replaced(runs: Path, run: str) -> None:
    before = tables_in(runs / run)
    extend = {"rope": "pi", "learned": (), "tuned": "without-own"}[run]
    opened = xt.load(runs / run)
    assert sum(parameter.numel() for parameter in opened.model.parameters()) > 0
    settings = {"factors": (1, 2), "extend": extend, "data": FIRST / "store", "device": "cpu"}
    xt.evaluate(opened, max_targets=512, **settings)
    if "eval_probes" in before:
        xt.evaluate_probes(opened, "needle", trials=8, **settings)
    for name, old in before.items():
        key = [*FILES[name].key, *(PLACE if name == "eval_documents" else [])]
        new = tables_in(runs / run)[name].set_index(key)
        assert len(new) == len(old)
        old = old.set_index(key)
        for column in ("loss", "control_loss", "optimum_loss", "accuracy", "perplexity", "bits_per_byte"):
            if column in old:
                values = new.loc[old.index, column].astype(float)
                np.testing.assert_allclose(values, old[column].astype(float), atol=1e-4, rtol=0)
        if run != "tuned":  # a label did not say the optimiser
            old["model"] = old["model"].str.replace(r"^\w+", r"\g<0> by AdamW", regex=True)
        for column in ("config_hash", "setting_hash", "corpus_hash", "weights_sha256", "model"):
            if column in old:
                assert new.loc[old.index, column].tolist() == old[column].tolist(), column
        assert pq.read_schema(runs / run / f"{name}.parquet").metadata[b"extrapolate_format"] == b"%d" % FORMAT


def test_they_are_reported_on_together(without_pictures: None, runs: Path, tmp_path: Path) -> None:
    written = xt.report(runs, tmp_path / "report")
    models = ["RoPE", "RoPE + PI", "RoPE + PI(2), tuned at 32", "RoPE, tuned at 32 with PI(2), taken off", "Learned"]
    assert set(written.tables["windows"]["Model"]) == set(models)
    assert "probe needle, accuracy" in [table.title for table in written.shown]
    assert set(tables_in(tmp_path / "report")["evals"]["extension"]) == {"as-trained", "pi", "without-own"}


def test_a_run_of_the_first_format_is_continued(runs: Path) -> None:
    made = xt.train(start=runs / "rope", data=FIRST / "store", tokens=1024, out=runs / "more", compile=False)
    assert made.config.origin is not None
    assert made.config.origin.config_hash == pd.read_parquet(runs / "rope/evals.parquet")["config_hash"].iloc[0]


def test_tables_of_this_format_are_not_translated(tmp_path: Path) -> None:
    """A later version may give an old word a new meaning."""
    path = tmp_path / "evals.parquet"
    [row, *_] = results.read(FIRST / "rope/evals.parquet", results.EVALS)
    results.write(path, [row | {"extension": "none"}], results.EVALS)
    assert results.read(path, results.EVALS)[0]["extension"] == "none"
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    assert results.read(path, results.EVALS)[0]["extension"] == "as-trained"
