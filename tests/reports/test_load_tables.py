"""Rows of several folders: which run each is of, what runs are called, and rows that are refused."""

import json
import shutil
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.names import ASKED, DOCUMENTS_TABLE, INSPECTIONS_TABLE, TASKS_TABLE, TEXT_TABLE
from extrapolate.reports.load_tables import load_tables
from extrapolate.results import kept

pytestmark = pytest.mark.usefixtures("without_pictures")
PROBES = Path(__file__).parents[1] / "fixtures/rope/probes.parquet"
NOPE = {"model": "NoPE", "display": "NoPE", "encoding": "none", "config_hash": "of NoPE", "weights_sha256": "others"}


def called(name, **changes):
    """A change of rows to those of a run with that name, or with changes to those of another run."""
    return lambda row: row | {"run": name} | changes if row["extension"] == "as-trained" else None


def seeded(seed, **changes):
    """What makes another run of the rows that are kept: with its own seed and weights."""
    return lambda row: row | {"seed": seed, "weights_sha256": f"weights of {seed}"} | changes


def own(folder):
    """Makes the folder that of the run itself, with its rows as a run keeps them, and without its weights."""
    documents = results.read(folder / DOCUMENTS_TABLE, results.EVAL_DOCUMENTS)
    for row in results.read(folder / TEXT_TABLE, results.EVALS):
        mine = [one for one in documents if all(one[name] == row[name] for name in results.EVAL_DOCUMENTS.key)]
        kept.add_losses(folder, [row], mine, results.EVAL_TARGETS.schema().empty_table())
    for file in folder.glob("*.parquet"):
        file.unlink()
    (folder / "config.json").write_text("{}")
    return folder


def changed(folder, file=TEXT_TABLE, **changes):
    """Writes other values into the first row of a table."""
    table = results.KEPT[file]
    first, *others = results.read(folder / file, table)
    results.write(folder / file, [first | changes, *others], table)


def add_probes(folder, **changes):
    """Writes the kept rows of probes, with other values, and returns them."""
    rows = [row | changes for row in results.read(PROBES, results.PROBES)]
    results.write(folder / PROBES.name, rows, results.PROBES)
    return rows


def runs_of(*paths):
    return list(load_tables(paths).runs)


def test_runs_of_one_name_in_two_reports_are_told_apart(write_run, tmp_path):
    for name, changes in (("alice", {"weights_sha256": "first"}), ("bob", NOPE)):
        (write_run(tmp_path / name, called("exp", **changes)) / "report.md").touch()
    found = load_tables([tmp_path / "alice", tmp_path / "bob"])
    assert list(found.runs) == ["alice/exp", "bob/exp"]
    assert {row["run"]: row["model"] for row in found.evals()} == {"alice/exp": "RoPE", "bob/exp": "NoPE"}
    xt.report([tmp_path / "alice", tmp_path / "bob"], tmp_path / "all")
    assert runs_of(tmp_path / "all", tmp_path / "bob") == ["alice/exp", "bob/exp"]  # again, beside one of them


def test_the_same_run_in_several_places_is_taken_once(write_run, tmp_path):
    run = own(write_run(tmp_path / "ck/exp", called("exp")))
    xt.report(tmp_path / "ck", tmp_path / "copy")
    alone, both = load_tables([run]), load_tables([run, tmp_path / "copy", tmp_path / "ck"])
    assert both.evals() == alone.evals()
    assert both.documents().equals(alone.documents())
    shutil.copytree(run, tmp_path / "ck/again")
    twice = load_tables([tmp_path / "ck"])
    assert (list(twice.runs), len(twice.evals())) == (["again"], len(alone.evals()))
    assert twice.left_out[-1].startswith(f"taken once, for they hold the run {tmp_path}/ck/again too: ")


def write_more(folder, score=0.25, **changes):
    """Beside the losses of a run: what it scored on a benchmark, and what an inspection found."""
    losses = results.read(folder / TEXT_TABLE, results.EVALS)[:1]
    of_task = {"task": "arc_easy", "metric": "acc", "filter": "none", "shots": 0, "value": score, "stderr": 0.1}
    of_task |= {"n_questions": 8, "n_cut": 0, "lm_eval_version": "0.4.13", "targets_hash": "questions"}
    looked_at = {"measurement": "truncation", "quantity": "loss", "value": 4.25, "n_windows": 2} | changes
    for file, own in ((TASKS_TABLE, of_task), (INSPECTIONS_TABLE, looked_at)):
        names = [column.name for column in results.KEPT[file].columns]
        rows = [{name: (row | own).get(name) for name in names} for row in losses]
        results.write(folder / file, rows, results.KEPT[file])
    return folder


def test_runs_and_reports_of_several_people_are_read_together(write_run, tmp_path):
    alice = write_more(write_run(tmp_path / "alice/rope", seeded(0)))
    add_probes(alice, seed=0, weights_sha256="weights of 0")
    xt.report(write_more(write_run(tmp_path / "runs/bob/rope", seeded(1)), 0.75), tmp_path / "bob")
    xt.report([alice, tmp_path / "bob"], tmp_path / "both")
    page = (tmp_path / "both/report.md").read_text()
    assert "| RoPE | 16 | 0.500 ± 0.100 |" in page, "the mean over seeds"
    assert "needle" in page
    for name in ("alice/rope", "bob/rope"):
        assert f"## How RoPE ({name}) uses position" in page
    assert set(xt.compare([alice, tmp_path / "bob"], extensions=True)["n_seeds"]) == {2}


def test_a_run_in_the_folder_of_another_is_named(write_run, tmp_path):
    own(write_run(tmp_path / "ck/exp", called("exp", weights_sha256="first")))
    own(write_run(tmp_path / "ck/exp/inner", called("inner", **NOPE)))
    found = load_tables([tmp_path / "ck"])
    assert list(found.runs) == ["exp"]
    assert found.left_out == (
        f"left out, for they lie in the folder of another run: {tmp_path}/ck/exp/inner; name them, or move them out",
    )
    assert sorted(load_tables([tmp_path / "ck", tmp_path / "ck/exp/inner"]).runs) == ["exp", "inner"]


@pytest.mark.parametrize("changed", [{"loss": 3.0}, {"n_key": 7}])
def test_a_table_that_contradicts_its_documents_is_refused(cli, write_run, tmp_path, changed):
    """It was edited after the evaluation, or the evaluation was killed between the two."""
    write_run(tmp_path / "ckpt/rope", lambda row: row | ({} if "document" in row else changed))
    for command in ("report", "compare"):
        said = cli(command, "ckpt").error()
        assert "rope: losses and those by document contradict each other (RoPE" in said
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("changes", [{"weights_sha256": "gone"}, {"seed": 9, "step": 1}])
@pytest.mark.parametrize("mine", [True, False])
def test_rows_of_two_trainings_of_one_folder_are_refused(write_run, tmp_path, changes, mine):
    """Copied rows, or those of a run without its weights."""
    folder = write_run(tmp_path / "ck/exp", called("exp"))
    if mine:
        other = write_run(tmp_path / "other/exp", lambda row: called("exp", **{"weights_sha256": "x", **changes})(row))
        shutil.copytree(own(other) / "results", own(folder) / "results", dirs_exist_ok=True)
    else:
        changed(folder, **changes)
    words = "delete those in results/ that are not of its weights" if mine else "as one run, exp"
    for read in (xt.report, xt.compare):
        with pytest.raises(UserError, match=f"ck/exp holds results of several trainings.*{words}"):
            read(tmp_path / "ck")
    assert not (tmp_path / "report").exists()


def test_a_run_that_was_trained_otherwise_is_no_seed_that_others_lack(write_run, tmp_path):
    """It would be left out as one. What differs is in its name, unless the tables do not say it."""
    own(write_run(tmp_path / "ck/rope", called("rope", lr=0.02)))
    own(write_run(tmp_path / "ck/other", called("other", config_hash="other", seed=1, weights_sha256="x", lr=0.007)))
    own(write_run(tmp_path / "ck/none", called("none", **NOPE, lr=0.02)))
    assert set(xt.report(tmp_path / "ck").tables["windows"]["Model"]) == {
        "RoPE, lr 0.02", "RoPE, lr 0.007", "NoPE, lr 0.02",
    }  # fmt: skip
    own(write_run(tmp_path / "ck/same", called("same", config_hash="x", seed=1, weights_sha256="y", lr=0.02)))
    for read in (xt.report, xt.compare):
        with pytest.raises(UserError, match=r"rope, same are all RoPE, lr 0\.02 but differ in more than their seed"):
            read(tmp_path / "ck")


def test_losses_and_probes_on_different_text_are_not_in_one_report(cli, write_run, tmp_path):
    folder = write_run(tmp_path / "runs/rope", called("rope", corpus_hash="novels"))
    (corpus,) = {row["corpus_hash"] for row in add_probes(folder)}
    message = cli("report", "runs").error()
    assert f"the runs differ in corpus_hash ({corpus}, novels)" in message
    assert message.endswith("choose with --corpus")
    losses = cli("report", "runs", "--corpus", "novels", "--out", "losses").succeeded()
    assert "left out all probes, because none have corpus_hash novels" in losses.err
    assert not (tmp_path / "losses/probes.parquet").exists()
    of_probes = cli("report", "runs", "--corpus", corpus, "--out", "probes").succeeded()
    assert f"left out all losses, because none have corpus_hash {corpus}" in of_probes.err
    assert "## Losses" not in (tmp_path / "probes/report.md").read_text()


def test_cells_without_a_configuration_are_named(write_run, tmp_path):
    """One whose training was killed in its first moments, and one that lost its configuration afterwards."""
    own(write_run(tmp_path / "study/runs/rope", called("rope")))
    begun, lost = (tmp_path / "study/runs" / name for name in ("begun", "lost"))
    for folder, file in ((begun, "tokenizer.json"), (lost, "model.safetensors")):
        folder.mkdir()
        (folder / file).touch()
    asked = {"cells": {name: {"config_hash": "of a cell", "seed": 0} for name in ("rope", "begun", "lost")}}
    (tmp_path / "study" / ASKED).write_text(json.dumps(asked))
    left_out = load_tables([tmp_path / "study"]).left_out
    assert f"left out, for the sweep has not begun them: {begun}" in left_out
    assert f"left out, for they have weights, but no config.json: {lost}" in left_out
