"""merge: rows of several people in one folder, and which rows are refused."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results

pytestmark = pytest.mark.usefixtures("without_pictures")
PROBES = Path(__file__).parents[1] / "fixtures/rope/eval_probes.parquet"


def seeded(seed, **changes):
    """What makes another run of the rows that are kept: with its own seed and weights."""
    return lambda row: row | {"seed": seed, "weights_sha256": f"weights of {seed}", "commit": f"commit{seed}"} | changes


def of(folder: Path) -> pd.DataFrame:
    return pd.DataFrame(results.read(folder / "evals.parquet", results.EVALS))


def write_more(folder: Path, score: float = 0.25) -> None:
    """Beside the losses of a run: what it scored on a benchmark, and what an inspection found."""
    losses = results.read(folder / "evals.parquet", results.EVALS)[:1]
    of_task = {"task": "arc_easy", "metric": "acc", "filter": "none", "shots": 0, "value": score, "stderr": 0.1}
    of_task |= {"n_questions": 8, "n_cut": 0, "lm_eval_version": "0.4.13", "targets_hash": "questions"}
    looked_at = {"measurement": "truncation", "quantity": "loss", "value": 4.25, "n_windows": 2}
    for file, table, own in (
        ("eval_tasks.parquet", results.TASKS, of_task),
        ("inspections.parquet", results.INSPECTIONS, looked_at),
    ):
        names = [column.name for column in table.columns]
        results.write(folder / file, [{name: (row | own).get(name) for name in names} for row in losses], table)


def test_runs_and_reports_of_several_people_become_one_folder(cli, write_run, tmp_path):
    write_run(tmp_path / "people/alice/rope", seeded(0))
    (write_run(tmp_path / "people/bob/report", seeded(1)) / "report.md").touch()
    ended = cli("merge", "people", "--out", "all").succeeded()
    assert "make a report with: extrapolate report all" in ended.err
    rows = of(tmp_path / "all")
    assert dict(zip(rows["run"], rows["commit"], strict=True)) == {
        "alice/rope": "commit0",
        "report/rope": "commit1",
    }
    both = pd.concat([of(tmp_path / "people/alice/rope"), of(tmp_path / "people/bob/report")])
    pd.testing.assert_frame_equal(
        rows.drop(columns="run"), both.drop(columns="run").reset_index(drop=True), check_like=True
    )
    assert "commit0" in ended.out
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["eval_documents.parquet", "evals.parquet"]
    assert set(xt.compare(tmp_path / "all", extensions=True)["n_seeds"]) == {2}


def test_rows_that_two_folders_have_are_taken_once(write_run, tmp_path):
    run = write_run(tmp_path / "people/alice/rope")
    (write_run(tmp_path / "people/alice/report") / "report.md").touch()
    merged = xt.merge(tmp_path / "people", tmp_path / "all")
    assert merged.runs["run"].to_list() == ["rope"]
    for name in merged.files:
        assert len(pd.read_parquet(tmp_path / "all" / name)) == len(pd.read_parquet(run / name))


def test_rows_of_one_run_in_two_folders_join(write_run, tmp_path):
    for factor in (1, 2):
        write_run(tmp_path / f"at-{factor}/rope", lambda row, at=factor: row if row["factor"] == at else None)
    merged = xt.merge([tmp_path / "at-1", tmp_path / "at-2"], tmp_path / "all")
    assert merged.runs["run"].to_list() == ["rope"]
    assert set(of(tmp_path / "all")["factor"]) == {1, 2}


def test_probes_of_a_report_are_merged_and_reported_again(write_run, tmp_path):
    shutil.copy(PROBES, write_run(tmp_path / "run/rope"))
    write_run(tmp_path / "people/bob/rope", seeded(1))
    xt.report(tmp_path / "run", tmp_path / "people/alice")
    merged = xt.merge(tmp_path / "people", tmp_path / "all")
    assert merged.files == ["evals.parquet", "eval_probes.parquet", "eval_documents.parquet"]
    probes = {(row["run"], row["probe"]) for row in results.read(tmp_path / "all" / PROBES.name, results.PROBES)}
    assert probes == {("alice/rope", row["probe"]) for row in results.read(PROBES, results.PROBES)}
    assert any("probe" in table.title for table in xt.report(tmp_path / "all", tmp_path / "again").shown)
    (tmp_path / "people/alice/evals.parquet").unlink()  # as of runs that were evaluated on probes alone
    assert xt.merge(tmp_path / "people/alice", tmp_path / "probes").files == ["eval_probes.parquet"]


def test_benchmarks_and_inspections_are_merged_and_reported(write_run, tmp_path):
    write_more(write_run(tmp_path / "people/alice/rope", seeded(0)), 0.25)
    write_more(write_run(tmp_path / "runs/bob/rope", seeded(1)), 0.75)
    xt.report(tmp_path / "runs/bob", tmp_path / "people/bob")
    merged = xt.merge(tmp_path / "people", tmp_path / "all")
    assert {"eval_tasks.parquet", "inspections.parquet"} <= set(merged.files)
    xt.report(tmp_path / "all", tmp_path / "report")
    page = (tmp_path / "report/report.md").read_text()
    assert "| RoPE | 16 | 0.500 ± 0.100 |" in page  # the mean over seeds
    for name in ("alice/rope", "bob/rope"):
        assert f"## How RoPE ({name}) uses position" in page
    for path in (tmp_path / "people").rglob("eval*"):
        path.unlink()
    assert xt.merge(tmp_path / "people", tmp_path / "inspected").files == ["inspections.parquet"]


def test_scores_and_inspections_that_are_not_shown_are_said(write_run, tmp_path):
    """A seed that another model lacks has no losses in a report, and then no scores either."""
    alibi = {"model": "ALiBi", "encoding": "alibi", "display": "ALiBi", "config_hash": "alibi"}
    for name, row in (("rope-s0", seeded(0)), ("rope-s1", seeded(1)), ("alibi-s0", seeded(0, **alibi))):
        write_more(write_run(tmp_path / "runs" / name, row))
    found = xt.report(tmp_path / "runs", tmp_path / "report")
    assert set(pd.read_parquet(tmp_path / "report/eval_tasks.parquet")["run"]) == {"alibi-s0/rope", "rope-s0/rope"}
    file = tmp_path / "runs/rope-s0/inspections.parquet"
    inspected = results.read(file, results.INSPECTIONS)
    for other in ({"corpus_hash": "another"}, {"split": "validation"}):
        results.write(file, [row | other for row in inspected], results.INSPECTIONS)
        xt.report(tmp_path / "runs", tmp_path / "other")
        page = (tmp_path / "other/report.md").read_text().lower()
        assert "inspection: left out what was found on another text or split than the losses': rope-s0/rope" in page
        assert set(pd.read_parquet(tmp_path / "other/inspections.parquet")["run"]) == {"alibi-s0/rope"}
    page = (tmp_path / "report/report.md").read_text()
    for what in ("benchmarks", "inspection"):
        assert f"{what}: left out runs whose losses are not shown: rope-s1/rope" in page.lower()
    assert found.warnings


def test_other_scores_of_the_same_weights_and_other_questions_are_refused(cli, write_run, tmp_path):
    write_more(write_run(tmp_path / "a/rope"))
    write_more(write_run(tmp_path / "b/rope"), 0.5)
    message = cli("merge", "a", "b", "--out", "all").error()
    assert message == (
        "a/rope and b/rope differ in eval_tasks.parquet for the same weights, rope: the value of RoPE at 1x is 0.25 "
        "and 0.5. Leave out one"
    )
    write_more(write_run(tmp_path / "c/rope", seeded(1)))
    rows = results.read(tmp_path / "c/rope/eval_tasks.parquet", results.TASKS)
    results.write(tmp_path / "c/rope/eval_tasks.parquet", [row | {"targets_hash": "o"} for row in rows], results.TASKS)
    (tmp_path / "c/rope/evals.parquet").unlink()
    message = cli("merge", "a", "c", "--out", "all").error()
    assert "the rows of arc_easy score different targets" in message
    assert message.endswith("Evaluate every run with the same --limit, on one edition of the task")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corpus_hash": "other"}, "the rows differ in corpus_hash, and their losses cannot be compared: "
                                   "e11bd6eb9efcd88d in a/rope; other in b/rope. Choose with --corpus"),
        ({"seq_len": 32}, "differ in seq_len, and their losses cannot be compared: 16 in a/rope; 32 in b/rope"),
        ({"precision": "bf16"}, "Choose with --precision, or leave out a folder"),
        ({"split": "validation"}, "test in a/rope; validation in b/rope. Choose with --split"),
        ({"targets_hash": "other"}, "score different targets, and cannot be compared: "),
        ({"seed": 0}, "the runs a/rope, b/rope are one model with one seed; keep one of them"),
        ({"config_hash": "other"}, "the runs a/rope, b/rope are all RoPE but differ in more than their seed"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused_and_says_why(cli, write_run, tmp_path, changes, words):
    write_run(tmp_path / "a/rope")
    write_run(tmp_path / "b/rope", lambda row: seeded(1)(row) | changes)
    assert words in cli("merge", "a", "b", "--out", "all").error()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_different_losses_of_the_same_weights_are_refused(cli, write_run, tmp_path):
    write_run(tmp_path / "a/rope")
    write_run(tmp_path / "b/rope", lambda row: row | {"loss": row["loss"] + 1e-9})
    message = cli("merge", "a", "b", "--out", "all").error()
    assert message.startswith(
        "a/rope and b/rope differ in evals.parquet for the same weights, rope: the loss of RoPE at 1x is 3.7"
    )
    assert not (tmp_path / "all").exists()


def test_flags_choose_rows(cli, write_run, tmp_path):
    write_run(tmp_path / "a/rope")
    write_run(tmp_path / "b/rope", seeded(1, precision="bf16"))
    cli("merge", "a", "b", "--out", "all", "--precision", "bf16").succeeded()
    assert set(of(tmp_path / "all")["seed"]) == {1}
    assert set(pd.read_parquet(tmp_path / "all/eval_documents.parquet")["precision"]) == {"bf16"}
    assert "no row has precision int8" in cli("merge", "a", "b", "--out", "none", "--precision", "int8").error()


def test_what_differs_but_can_be_compared_is_said(cli, write_run, tmp_path):
    write_run(tmp_path / "a/rope")
    write_run(tmp_path / "b/rope", seeded(1, setting_hash="other", tokens=1))
    said = cli("merge", "a", "b", "--out", "all").succeeded().err
    assert "the models were not trained alike (tokens 1, 65536;" in said
    assert "several commits of extrapolate: b4fb49863fcd in a/rope; commit1 in b/rope" in said


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("all", "all already exists; choose another folder, or delete it"),
        ("a/rope/missing", "eval_documents.parquet is missing"),
        ("empty", "empty holds no evaluated run"),
        ("a/rope/damaged", "a/rope/evals.parquet is damaged"),
    ],
)
def test_bad_input(cli, write_run, tmp_path, contents, made, words):
    run = write_run(tmp_path / "a/rope", documents=made != "a/rope/missing")
    (tmp_path / made).mkdir(parents=True)
    if made.endswith("damaged"):
        (run / "evals.parquet").write_bytes((run / "evals.parquet").read_bytes()[:-100])
    before = contents(tmp_path)
    assert words in cli("merge", "a", *(["empty"] if made == "empty" else []), "--out", "all").error()
    assert contents(tmp_path) == before


def test_the_commands_of_the_page_run(cli, write_run, tmp_path):
    whole = (Path(xt.__file__).parents[1] / "docs/sharing.md").read_text(encoding="utf-8")
    page = whole.partition("\n## Combine ")[2]
    for seed, name in enumerate(("alice", "bob")):
        write_run(tmp_path / "results" / name / "rope", seeded(seed))
    lines = re.findall(r"^extrapolate (.*)$", page, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        cli(*shlex.split(line)).succeeded()
    assert set(pd.read_parquet(tmp_path / "report-merged/leaderboard.parquet")["seeds"]) == {2}


def test_totals_are_fewer_rows_and_change_no_loss_and_no_interval(evaluated, tmp_path):
    """Of a run that was evaluated by windows: everything but what needs positions is the same."""
    whole, totals = tmp_path / "whole", tmp_path / "totals"
    xt.merge(evaluated, whole)
    xt.merge(evaluated, totals, totals=True)
    before, after = (pd.read_parquet(folder / "eval_documents.parquet") for folder in (whole, totals))
    assert len(after) < len(before) / 2
    for name, weight in (("loss", "n_targets"), ("control_loss", "n_targets"), ("key_loss", "n_key")):
        sums = [
            (rows[name] * rows[weight])
            .groupby([rows["run"], rows["extension"], rows["document"], rows["factor"]])
            .sum()
            for rows in (before, after)
        ]
        pd.testing.assert_series_equal(*sums, check_names=False)
    assert before["n_bytes"].sum() == after["n_bytes"].sum()
    made = [tmp_path / "report-whole", tmp_path / "report-totals"]
    answers = [xt.report(folder, out).answer for folder, out in zip((whole, totals), made, strict=True)]
    assert answers[0] == answers[1]
    tables = [{path.name for path in report.glob("*.parquet")} for report in made]
    assert tables[0] - tables[1] == {"loss_by_position.parquet", "failure_lengths.parquet"}
    for name in sorted(tables[1] - {"evals.parquet", "eval_documents.parquet"}):
        pd.testing.assert_frame_equal(*(pd.read_parquet(report / name) for report in made))
    both = xt.report([totals, whole], tmp_path / "report-both").files
    assert {"loss_by_position.parquet", "failure_lengths.parquet"} <= set(both), "of the whole rows"
    again = xt.merge(totals, tmp_path / "again", totals=True).folder
    pd.testing.assert_frame_equal(pd.read_parquet(again / "eval_documents.parquet"), after)
