"""Rows of several folders: which run each is of, what runs are called, and rows that are refused."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
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


@pytest.fixture
def renamed(write_run, tmp_path):
    """`ck/exp` was evaluated and renamed; another run, of more steps, took its name."""
    own(write_run(tmp_path / "ck/exp-rope", called("exp", weights_sha256="first")))
    own(write_run(tmp_path / "ck/exp", called("exp", **NOPE, step=10_000)))
    return tmp_path / "ck"


def test_runs_that_had_one_name_are_both_shown(renamed, tmp_path):
    tables = xt.report(renamed, tmp_path / "report").tables
    assert {name: list(table["Model"]) for name, table in tables.items()} == {
        name: ["RoPE", "NoPE"] for name in ("windows", "fixed-target")
    }
    rows = pd.DataFrame(results.read(tmp_path / "report/evals.parquet", results.EVALS))
    assert rows.groupby("run")["model"].unique().map(list).to_dict() == {"exp": ["NoPE"], "exp-rope": ["RoPE"]}
    pairs = xt.compare(renamed)
    assert {*zip(pairs["model"], pairs["other"], strict=True)} >= {("NoPE", "RoPE")}
    assert runs_of(tmp_path / "report") == ["exp", "exp-rope"]


def test_runs_of_one_name_in_two_reports_are_told_apart(write_run, tmp_path):
    for name, changes in (("alice", {"weights_sha256": "first"}), ("bob", NOPE)):
        (write_run(tmp_path / name, called("exp", **changes)) / "report.md").touch()
    found = load_tables([tmp_path / "alice", tmp_path / "bob"])
    assert list(found.runs) == ["alice/exp", "bob/exp"]
    assert {row["run"]: row["model"] for row in found.evals()} == {"alice/exp": "RoPE", "bob/exp": "NoPE"}
    xt.report([tmp_path / "alice", tmp_path / "bob"], tmp_path / "all")
    assert runs_of(tmp_path / "all", tmp_path / "bob") == ["alice/exp", "bob/exp"]  # again, beside one of them


def test_names_in_tables_cannot_make_two_runs_one(write_run, tmp_path):
    own(write_run(tmp_path / "s/exp", called("exp", weights_sha256="first")))
    own(write_run(tmp_path / "t/exp", called("exp", **NOPE)))
    forged = write_run(tmp_path / "forged", called("s/exp", weights_sha256="third"))
    assert len(set(runs_of(tmp_path / "s", tmp_path / "t", forged))) == 3


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


def test_rows_of_one_run_in_two_folders_join(write_run, tmp_path):
    for factor in (1, 2):
        write_run(tmp_path / f"at-{factor}/rope", lambda row, at=factor: row if row["factor"] == at else None)
    found = load_tables([tmp_path / "at-1", tmp_path / "at-2"])
    assert list(found.runs) == ["rope"]
    assert {row["factor"] for row in found.evals()} == {1, 2}


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


def test_scores_and_inspections_that_are_not_shown_are_said(write_run, tmp_path):
    """A run on other targets than the others has no losses in a report, and then no scores either."""
    alibi = {"model": "ALiBi", "encoding": "alibi", "display": "ALiBi", "config_hash": "alibi"}
    for name, row in (
        ("rope-s0", seeded(0)), ("rope-s1", seeded(1, targets_hash="other")), ("alibi-s0", seeded(0, **alibi)),
    ):  # fmt: skip
        write_more(write_run(tmp_path / "runs" / name, row))
    xt.report(tmp_path / "runs", tmp_path / "report")
    assert set(pd.read_parquet(tmp_path / "report" / TASKS_TABLE)["run"]) == {"alibi-s0/rope", "rope-s0/rope"}
    page = (tmp_path / "report/report.md").read_text().lower()
    for what in ("benchmarks", "inspection"):
        assert f"{what}: left out runs whose losses are not shown: rope-s1/rope" in page
    for other in ({"corpus_hash": "another"}, {"split": "validation"}):
        write_more(tmp_path / "runs/rope-s0", **other)
        xt.report(tmp_path / "runs", tmp_path / "other")
        page = (tmp_path / "other/report.md").read_text().lower()
        assert "inspection: left out what was found on another text or split than the losses': rope-s0/rope" in page
        assert set(pd.read_parquet(tmp_path / "other" / INSPECTIONS_TABLE)["run"]) == {"alibi-s0/rope"}


def test_tables_in_a_folder_hide_no_run_below_it(write_run, tmp_path):
    own(write_run(tmp_path / "team/third", called("third", **NOPE)))
    write_run(tmp_path / "ck/exp", called("exp", weights_sha256="first"))
    for file in (tmp_path / "ck/exp").glob("*.parquet"):
        shutil.copy(file, tmp_path / "team")
    assert sorted(load_tables([tmp_path / "team"]).runs) == ["exp", "third"]


def test_a_run_in_the_folder_of_another_is_named(write_run, tmp_path):
    own(write_run(tmp_path / "ck/exp", called("exp", weights_sha256="first")))
    own(write_run(tmp_path / "ck/exp/inner", called("inner", **NOPE)))
    found = load_tables([tmp_path / "ck"])
    assert list(found.runs) == ["exp"]
    assert found.left_out == (
        f"left out, for they lie in the folder of another run: {tmp_path}/ck/exp/inner; name them, or move them out",
    )
    assert sorted(load_tables([tmp_path / "ck", tmp_path / "ck/exp/inner"]).runs) == ["exp", "inner"]


@pytest.mark.parametrize("changed", [{"loss": 3.0}, {"n_targets": 513}, {"n_key": 7}])
def test_a_table_that_contradicts_its_documents_is_refused(cli, write_run, tmp_path, changed):
    """It was edited after the evaluation, or the evaluation was killed between the two."""
    write_run(tmp_path / "ckpt/rope", lambda row: row | ({} if "document" in row else changed))
    for command in ("report", "compare"):
        said = cli(command, "ckpt").error()
        assert "rope: losses and those by document contradict each other (RoPE" in said
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    "changes", [{"weights_sha256": "gone"}, {"config_hash": "other", "step": 1}, {"seed": 9, "step": 1}]
)
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


@pytest.mark.parametrize("file", [TASKS_TABLE, INSPECTIONS_TABLE])
def test_and_so_where_another_table_is_of_other_weights(write_run, tmp_path, file):
    folder = write_run(tmp_path / "ck/exp", called("exp"))
    losses = results.read(folder / TEXT_TABLE, results.EVALS)[:1]
    found = {"task": "t", "metric": "acc", "filter": "none", "shots": 0, "value": 1.0, "n_questions": 1, "n_cut": 0}
    found |= {"lm_eval_version": "1", "measurement": "m", "quantity": "q", "n_windows": 2}
    table = results.KEPT[file]
    rows = [{column.name: (row | found).get(column.name) for column in table.columns} for row in losses]
    results.write(folder / file, rows, table)
    load_tables([folder])
    changed(folder, file, weights_sha256="gone")
    with pytest.raises(UserError, match="several trainings"):
        load_tables([folder])


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


@pytest.mark.parametrize("again", [{}, {"config_hash": "other", "seed": 1}])
def test_each_protocol_may_not_show_another_run_as_the_model(write_run, tmp_path, again):
    """Every table has one row of RoPE, but they are of two runs."""
    one, other = called("rope"), called("again", weights_sha256="of another machine", **again)
    own(write_run(tmp_path / "ck/rope", lambda row: one(row) if row["protocol"] == "windows" else None))
    own(write_run(tmp_path / "ck/again", lambda row: other(row) if row["protocol"] != "windows" else None))
    for read in (xt.report, xt.compare):
        with pytest.raises(UserError, match=r"again, rope are (all RoPE but differ in|one model with one seed)"):
            read(tmp_path / "ck")


def test_runs_without_a_row_that_was_asked_for_are_named(write_run, tmp_path):
    own(write_run(tmp_path / "ck/rope", called("rope")))
    own(write_run(tmp_path / "ck/none", called("none", **NOPE, precision="bf16")))
    left_out = "left out, for they have no {} with precision fp32: none"
    said = []
    progress = Mock(say=said.append)
    assert left_out.format("losses or probes") in xt.report(tmp_path / "ck", tmp_path / "r", precision="fp32").warnings
    xt.compare(tmp_path / "ck", precision="fp32", progress=progress)
    assert left_out.format("losses on text") in said


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


def test_versions_of_an_extensions_file_are_different_models(cli, write_run, tmp_path):
    """Also where one has losses and the other probes, or is another class of the file."""
    own = {"extension": "x.py:X", "extension_sha256": "1" * 64}
    write_run(tmp_path / "runs/a", lambda row: called("a")(row) and row | {"run": "a", "model": "RoPE + X"} | own)
    folder = write_run(tmp_path / "runs/b", called("b", seed=1, weights_sha256="b"))
    of_b = {"run": "b", "seed": 1, "weights_sha256": "b", "model": "RoPE + X"}
    add_probes(folder, **of_b, **own)
    cli("report", "runs").succeeded()
    assert "@" not in (tmp_path / "report/report.md").read_text()
    for extension in ("x.py:X", "x.py:Y"):
        add_probes(folder, **of_b, extension=extension, extension_sha256="2" * 64)
        cli("report", "runs").succeeded()
        page = (tmp_path / "report/report.md").read_text()
        for name in ("RoPE + X (x.py:X@11111111)", f"RoPE + X ({extension}@22222222)"):
            assert name in page


def test_losses_and_probes_of_different_seeds_are_said(cli, write_run, tmp_path):
    write_run(tmp_path / "runs/a", called("a"))
    folder = write_run(tmp_path / "runs/b", called("b", seed=1, weights_sha256="b"))
    for name in (TEXT_TABLE, "eval_documents.parquet"):
        (folder / name).unlink()
    add_probes(folder, run="b", seed=1, weights_sha256="b")
    said = " ".join(cli("report", "runs").succeeded().err.split())
    assert "different seeds of the same model (RoPE: windows seed 0, fixed-target seed 0, probe needle seed 1" in said


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
