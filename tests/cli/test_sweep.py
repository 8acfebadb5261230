"""extrapolate sweep and status: a study is done whole, goes on where it was done, and refuses what it cannot do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.progress import QUIET
from extrapolate.runs.run import Run
from extrapolate.studies import sweep as sweeping
from extrapolate.studies.state import turn

Cli = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("without_pictures")
EXAMPLES = Path(__file__).parents[2] / "examples"

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 5300
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false

[axes]
encoding = ["rope", "alibi"]
lr = [1e-3, 3e-3]

[[exclude]]
encoding = "alibi"
lr = 1e-3

[[fine_tune]]
name = "pi"
of = {{encoding = "rope"}}
extend = "pi:factor=2"
seq_len = 32
tokens = 1024

[evaluate]
factors = [1, 4]
extend = ["yarn:factor=4"]
protocols = ["windows"]
max_targets = 512
"""
BEST, OTHER = "rope-lr0.003-s0", "rope-lr0.001-s0"


@pytest.fixture(scope="module")
def study(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study's file."""
    file = tmp_path_factory.mktemp("study") / "small.toml"
    file.write_text(STUDY.format(store=store))
    return file


@pytest.fixture(scope="module")
def done(quietly: Callable[..., None], study: Path) -> Path:
    """The folder of the study, done. Not to be changed."""
    out = study.parent / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("extrapolate.reports.plots.save", lambda figure, path: path.write_bytes(b""))
        quietly("sweep", study, "--out", out, "--jobs", 2)
    return out


def statuses(out: Path) -> dict[str, str]:
    return dict(xt.status(out)[["cell", "status"]].itertuples(index=False))


def test_the_best_rate_is_evaluated_and_continued(done: Path) -> None:
    assert statuses(done) == {
        OTHER: "passed over", BEST: "done", "alibi-lr0.003-s0": "done", f"{OTHER}+pi": "passed over",
        f"{BEST}+pi": "done",
    }  # fmt: skip
    rates = pd.read_parquet(done / "learning_rates.parquet")
    assert rates[["Model", "Learning rate", "Taken"]].values.tolist() == [
        ["rope", 1e-3, ""], ["rope", 3e-3, "yes, the highest tried"],
    ]  # fmt: skip
    edge = "The learning rate is the highest that was tried for rope: a better one may exist."
    assert (done / "report/report.md").read_text().count(edge) == 2  # in the answer, and above the table
    report = pd.read_parquet(done / "report" / "evals.parquet")
    extensions = report.groupby("run")["extension"].agg(set).to_dict()
    assert extensions == {
        BEST: {"as-trained", "yarn:factor=4"}, "alibi-lr0.003-s0": {"as-trained"},
        f"{BEST}+pi": {"as-trained", "yarn:factor=4"},
    }  # fmt: skip
    # Times of what shared the machine are not told.
    assert "tokens_per_s" not in pd.read_parquet(done / "runs" / BEST / "metrics.parquet")
    assert report["tokens_per_s"].isna().all()
    assert report["training_seconds"].isna().all()
    row = xt.status(done).set_index("cell").loc[BEST]
    assert (row["tokens"], row["of"]) == (5120, 5120)  # whole batches of 5 300 tokens


def test_a_cell_with_another_cells_run_is_said(cli: Cli, done: Path, tmp_path: Path) -> None:
    """It is not done, and answers no question about the cell."""
    out, cell = Path(shutil.copytree(done, tmp_path / "copy")), "alibi-lr0.003-s0"
    shutil.rmtree(out / "runs" / cell)
    shutil.copytree(out / "runs" / BEST, out / "runs" / cell)
    assert statuses(out)[cell] == "failed"
    said = cli("report", out, "--out", tmp_path / "report").succeeded().err.replace("\n", " ")
    assert f"for they are not the runs that the cells ask for: {out / 'runs' / cell}" in said
    assert "has not begun" not in said  # what a rate that was not chosen would continue is not missed


def test_a_report_shows_no_choice_of_rates_for_weights_that_were_not_chosen(
    quietly: Callable[..., None], done: Path, tmp_path: Path
) -> None:
    """Another run is trained and evaluated where the study's run was."""
    out, said = Path(shutil.copytree(done, tmp_path / "copy")), "rate is the highest that was tried"
    run = out / "runs" / BEST
    quietly("report", run, "--out", tmp_path / "before")
    assert said in (tmp_path / "before/report.md").read_text()
    flags = ["--data", Run.open(run).trained.data.path, "--tokens", 2048]
    shutil.rmtree(run)
    quietly("train", "--pe", "rope", *flags, "--seq-len", 16, "--layers", 1, "--out", run)
    quietly("eval-lengths", run, "--factors", "1,2", "--max-targets", 256, "--protocol", "windows")
    quietly("report", run, "--out", tmp_path / "after")
    assert said not in (tmp_path / "after/report.md").read_text()


def test_what_is_done_is_not_done_again(cli: Cli, study: Path, done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "copy"))
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    said = " ".join(cli("sweep", study, "--out", out).succeeded().out.split())
    assert "The learning rate is the highest that was tried for rope: a better one may exist." in said
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("cells_here")
def test_a_changed_evaluation_is_done_again(cli: Cli, study: Path, done: Path, tmp_path: Path) -> None:
    """The runs stay; rows of what the study does not name any more are kept."""
    out, changed = Path(shutil.copytree(done, tmp_path / "copy")), tmp_path / "changed.toml"
    text = study.read_text()
    for old, new in (("[1, 4]", "[1, 2]"), ("yarn:factor=4", "pi:factor=4"), ("_targets = 512", "_targets = 256")):
        assert old in text
        text = text.replace(old, new)
    changed.write_text(text)
    weights = (out / "runs" / BEST / "model.safetensors").stat().st_mtime_ns
    cli("sweep", changed, "--out", out, "--array", "0/1", "--jobs", 1).succeeded()
    rows = xt.rows(out / "runs" / BEST)
    assert set(rows[rows["extension"] == "pi:factor=4"]["factor"]) == {1.0, 2.0}
    assert set(rows[rows["extension"] == "as-trained"]["n_targets"]) >= {256}
    assert (out / "runs" / BEST / "model.safetensors").stat().st_mtime_ns == weights


def test_a_changed_study_says_which_runs_it_changes(cli: Cli, study: Path, done: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text(study.read_text().replace("tokens = 5300", "tokens = 6144"))
    message = cli("sweep", changed, "--out", done).error()
    assert "the study was changed, and 3 of its runs were trained with other settings" in message
    assert f"{done}/runs/{BEST} (training.tokens: 5300 in the run, 6144 now)" in message


def test_a_damaged_study_is_named(cli: Cli, study: Path, done: Path, tmp_path: Path) -> None:
    assert cli("status", tmp_path).error() == f"{tmp_path} holds no study: it has no study.toml"
    out = Path(shutil.copytree(done, tmp_path / "copy"))
    run, state = out / "runs" / BEST, out / "state" / f"{BEST}.json"
    (run / "config.json").write_text("{")
    assert f"{BEST}/config.json is damaged" in cli("sweep", study, "--out", out).error()
    state.write_text('{"bogus": 1}')
    assert cli("status", out).error().startswith(f"{state} is damaged: delete it")


FEW = STUDY.partition("lr =")[0] + '[evaluate]\nfactors = [1]\nprotocols = ["windows"]\nmax_targets = 512\n'


def test_a_failed_cell_does_not_stop_the_others(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Its run's folder is a file. It is tried again."""
    few, out = tmp_path / "few.toml", tmp_path / "out"
    few.write_text(FEW.format(store=store))
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "rope-s0").write_text("in the way")
    message = cli("sweep", few, "--out", out, "--jobs", 2).error(1)
    assert message == "1 of the cells failed; run the same command to try again"
    assert statuses(out) == {"rope-s0": "failed", "alibi-s0": "done"}
    assert "is a file, not a folder" in cli("status", out).succeeded().out.replace("\n", " ")


@pytest.mark.usefixtures("cells_here")
def test_shares_of_an_array(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Each does its own cells; the call without a share finds all done, and writes the report."""
    few, out = tmp_path / "few.toml", tmp_path / "out"
    few.write_text(FEW.format(store=store))
    cli("sweep", few, "--out", out, "--jobs", 1, "--array", "0/2").succeeded()
    assert statuses(out) == {"rope-s0": "done", "alibi-s0": "left"}
    assert not (out / "report").exists()
    said = cli("report", out.parent, "--out", tmp_path / "early").succeeded().err.replace("\n", " ")
    assert f"left out, for the sweep has not begun them: {out / 'runs' / 'alibi-s0'}" in said
    cli("sweep", few, "--out", out, "--jobs", 1, "--array", "1/2").succeeded()
    cli("sweep", few, "--out", out).succeeded()
    assert set(pd.read_parquet(out / "report" / "evals.parquet")["run"]) == {"rope-s0", "alibi-s0"}
    for wrong in ("2/2", "0"):
        assert wrong in cli("sweep", few, "--out", out, "--array", wrong).error()
    few.write_text(FEW.format(store=store).replace("[1]", "[1, 2]"))
    cli("sweep", few, "--out", out, "--jobs", 1, "--array", "0/2").succeeded()
    assert statuses(out) == {"rope-s0": "done", "alibi-s0": "trained"}  # not as it is asked for now


@pytest.mark.usefixtures("cells_here")
def test_an_encoding_of_ones_own_beside_the_studys(
    cli: Cli, study: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained as they were, in a folder of its own, and a report on both folders compares them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text((EXAMPLES / "my_encoding.py").read_text())
    cli("sweep", study, "--pe", "mine.py:LogBias", "--jobs", 1).succeeded()
    mine = tmp_path / "sweeps" / "small-mine-LogBias"
    assert set(statuses(mine)) == {"mine-LogBias-lr0.001-s0", "mine-LogBias-lr0.003-s0"}
    trained = [
        Run.open(folder / "runs" / name).trained for folder, name in ((mine, "mine-LogBias-lr0.003-s0"), (done, BEST))
    ]
    assert trained[0].training == trained[1].training
    xt.report([done, mine], tmp_path / "report")
    assert {"RoPE", "ALiBi", "LogBias"} <= set(pd.read_parquet(tmp_path / "report" / "evals.parquet")["model"])
    assert "unknown encoding 'ropee'" in cli("sweep", study, "--pe", "ropee").error()


def test_a_dry_run_trains_nothing(cli: Cli, store: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.toml"
    few.write_text(FEW.format(store=store).replace('["rope", "alibi"]', '["rope"]\nseed = [0, 1]'))
    outcome = cli("sweep", few, "--dry-run", "--jobs", 1).succeeded()
    assert "2 cells, 1 at once: about" in outcome.out
    assert "rope-s1" in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["few.toml"]


def test_what_cannot_be_done_is_said_before_anything_is_trained(cli: Cli, study: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(study.read_text().replace('"pi:factor=2"', '"pi:factor=0"'))
    message = cli("sweep", wrong, "--out", tmp_path / "out").error()
    assert f"{wrong}, line 22: cell rope-lr0.001-s0+pi: pi: factor must be" in message
    assert not (tmp_path / "out").exists()


def test_shares_and_a_sweep_of_all_cells_exclude_each_other(cli: Cli, study: Path, done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "copy"))
    sweep = ("sweep", study, "--out", out)
    with turn(out, 1):
        assert cli(*sweep).error().startswith(f"shares of {out} are being done with --array: 1; wait for them")
        assert cli(*sweep, "--array", "1/2").error() == f"share 1 of {out} is being done by another process already"
        cli(*sweep, "--array", "0/2").succeeded()
    with turn(out, None):
        for flags in ([], ["--array", "0/2"]):
            assert (
                cli(*sweep, *flags).error().startswith(f"another sweep is at work on all cells of {out}: wait for it")
            )


ROOT = """
from extrapolate.encodings.base import POSITIONS
from extrapolate.extensions.base import Extension
from extrapolate.encodings.plan import Plan
class Root(Extension):
    display, source, slot, needs = "Root", "here", "positions", POSITIONS
    def plan(self, encoding, seq_len, length):
        return Plan(position_scale=min(1.0, seq_len / length) ** 0.5)
"""
TUNED = '[[fine_tune]]\nname = "root"\nof = {seq_len = 16}\nextend = "root.py:Root"\nseq_len = 32\ntokens = 512\n'


@pytest.mark.usefixtures("cells_here")
def test_what_does_not_compare_has_reports_of_its_own(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Two lengths; and an extension of one's own that belongs to a run."""
    (tmp_path / "root.py").write_text(ROOT)
    few, out = tmp_path / "few.toml", tmp_path / "out"
    text = FEW.format(store=store).replace('["rope", "alibi"]', '["rope"]\nseq_len = [16, 32]')
    few.write_text(text.replace("seq_len = 16\n", "", 1) + TUNED)
    cli("sweep", few, "--out", out, "--jobs", 2, "--trust-code").succeeded()
    assert sorted(path.name for path in out.glob("report*")) == ["report-L16", "report-L32"]
    page = " ".join((out / "report-L32" / "report.md").read_text().split())
    assert "training length 32 tokens" in page
    assert statuses(out)["rope-L16-s0+root"] == "done"


@pytest.mark.usefixtures("cells_here")
def test_an_extension_whose_file_was_edited_is_evaluated_again(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own, few = tmp_path / "root.py", tmp_path / "few.toml"
    own.write_text(ROOT)
    one = FEW.replace('["rope", "alibi"]', '["rope"]').replace("factors = [1]", "factors = [4]")
    few.write_text(one.format(store=store) + 'extend = ["root.py:Root"]\n')
    losses = []
    for power in ("0.5", "1"):
        own.write_text(ROOT.replace("0.5", power))
        cli("sweep", few, "--jobs", 1, "--trust-code").succeeded()
        losses.append(xt.rows("sweeps/few/runs/rope-s0").set_index("extension")["loss"]["root.py:Root"])
    assert losses[0] != losses[1]


def test_a_short_study_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cells: Any = [SimpleNamespace(config=SimpleNamespace(training=SimpleNamespace(device="cpu")))] * 24
    monkeypatch.setattr(sweeping, "cores", lambda: 4)
    monkeypatch.setattr(sweeping, "fastest_jobs", lambda cells: (1, {1: 3.0, 4: 2.0}))
    monkeypatch.setattr(sweeping, "operations", lambda config: 1e12)
    assert [sweeping._jobs(cells[:count], QUIET) for count in (24, 3)] == [4, 3]
    monkeypatch.setattr(sweeping, "operations", lambda config: 1e13)
    assert sweeping._jobs(cells, QUIET) == 1
