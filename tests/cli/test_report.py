"""extrapolate report, from runs that were really trained and evaluated."""

import html
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import extrapolate as xt
from extrapolate import files, results
from extrapolate.names import DOCUMENTS_TABLE, TEXT_TABLE
from extrapolate.reports.sections.positions import FAILURE_LENGTHS, LOSS_BY_POSITION
from extrapolate.results import kept

FEW = ["--max-targets", "512"]


def as_tables(run, folder, change=dict):
    """Writes the losses that a run keeps, each changed by a function, as the whole tables of a new folder."""
    folder.mkdir(parents=True)
    for name, table in ((TEXT_TABLE, results.EVALS), (DOCUMENTS_TABLE, results.EVAL_DOCUMENTS)):
        found = kept.read_kept(run, table)
        assert found is not None
        results.write(folder / name, [row for row in map(change, found.to_pylist()) if row is not None], table)
    return folder


def test_files_and_tables(cli, evaluated, reported, contents, tmp_path, leftovers):
    ended = cli("report", evaluated, "--out", "made").succeeded()
    made = contents(tmp_path / "made")
    for stem in ("loss_by_ev", "loss_by_ev.fixed-target"):
        assert {f"{stem}.{suffix}" for suffix in ("parquet", "tex", "png", "svg", "pdf")} <= made.keys()
    assert {"evals.parquet", "eval_documents.parquet", "report.md"} <= made.keys()
    assert all(made.values())
    assert made == contents(reported)
    for name in made:
        assert name in ended.err
    assert "failure length" in ended.out
    learned = next(line for line in ended.out.splitlines() if line.split()[:1] == ["Learned"])
    assert learned.split().count("n/a") == 2
    assert "…" not in ended.out
    assert not leftovers(tmp_path)
    latex = made["loss_by_ev.tex"].decode()
    assert "training length 16 tokens" in latex
    assert next(line for line in latex.splitlines() if line.startswith("RoPE &")).endswith(r"1.00 & 1 \\")


@pytest.mark.usefixtures("without_pictures")
class TestReport:
    def test_every_figure_has_a_caption_and_a_pdf_for_papers(self, reported):
        page, web = (reported / "report.md").read_text(), html.unescape((reported / "report.html").read_text())
        captions = dict(re.findall(r"^!\[[^\n]*\]\((.*)\.png\)\n\n(.*)$", page, re.MULTILINE))
        known = {"loss_by_ev", "loss_by_ev.fixed-target", "loss_by_position", "extensions", "training_loss"}
        assert known <= captions.keys()
        for stem, caption in captions.items():
            assert (reported / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
            assert f"<figcaption>{caption}</figcaption>" in web
            if stem != "training_loss":
                assert re.search(r"Protocol \S+, 512 targets in \d+ documents; L = 16 tokens; ", caption), stem
                assert caption.endswith("; 5,120 training tokens; one seed, 0."), stem

    def test_positions_and_failure_lengths(self, evaluated, reported):
        curves = pd.read_parquet(reported / "loss_by_position.parquet")
        assert sorted(set(curves["factor"])) == [1, 2, 4]
        for factor, mine in curves[curves["model"] == "RoPE"].groupby("factor"):
            assert mine["position"].tolist() == list(range(0, int(16 * factor), 8))
            row = xt.rows(evaluated / "rope").query(
                "protocol == 'windows' and extension == 'as-trained' and factor == @factor"
            )
            assert np.average(mine["loss"], weights=mine["n_targets"]) == pytest.approx(row["loss"].item(), abs=1e-9)
            control = np.average(mine["control_loss"], weights=mine["n_targets"])
            assert control == pytest.approx(row["control_loss"].item(), abs=1e-9)
        lengths = pd.read_parquet(reported / "failure_lengths.parquet")
        assert set(lengths["model"]) == {"RoPE", "RoPE + PI(2)", "ExPE", "ExPE + PI(2)", "NoPE"}
        assert set(lengths["factor"]) == {4}
        whole = curves[(curves["model"] == "RoPE") & curves["position"].between(16, 31)]
        assert whole.groupby("factor")["n_targets"].sum().tolist() == [256, 128]  # of 2x: they hold those of 4x
        assert list(curves.columns) == [column.name for column in LOSS_BY_POSITION.columns]
        assert list(lengths.columns) == [column.name for column in FAILURE_LENGTHS.columns]

    def test_files_of_an_earlier_report_go(self, cli, ckpt, tmp_path):
        flags = ["--factors", "1,2", *FEW]
        cli("eval-lengths", ckpt / "rope", *flags, "--protocol", "windows").succeeded()
        cli("report", ckpt / "rope").succeeded()
        shutil.rmtree(ckpt / "rope/results")
        cli("eval-lengths", ckpt / "rope", *flags, "--protocol", "fixed-target").succeeded()
        cli("report", ckpt / "rope").succeeded()
        made = {path.name for path in (tmp_path / "report").iterdir()}
        assert "loss_by_ev.fixed-target.parquet" in made
        assert not made & {"loss_by_ev.parquet", "loss_by_position.parquet", "failure_lengths.png"}
        assert {path.name for path in tmp_path.iterdir()} == {"ckpt", "report"}

    def test_it_replaces_nothing_but_a_report(self, cli, evaluated, contents, tmp_path):
        for place, words, *made in (
            ("a", "holds what no report wrote (notes.txt)", "report.md", "notes.txt"),
            ("b", "holds what no report wrote (loss_by_ev.png)", "report.md", "loss_by_ev.png/mine"),
            ("c", "without a report.md", "evals.parquet", "eval_documents.parquet"),
        ):
            for name in made:
                (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / place / name).write_text("mine")
            before = contents(tmp_path)
            message = cli("report", evaluated / "none", "--out", place).error()
            assert words in message
            assert "choose another --out" in message
            assert contents(tmp_path) == before
        assert "(/sys/report)" in cli("report", evaluated / "none", "--out", "/sys/report").error(1)

    def test_a_full_disk_keeps_the_old_report(self, cli, evaluated, contents, tmp_path, monkeypatch):
        (tmp_path / "report").mkdir()
        (tmp_path / "report/report.md").write_text("old")
        before = contents(tmp_path)

        def full(path, text):
            path.with_name("half").touch()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files, "write_text", full)
        message = cli("report", evaluated / "none").error(1)
        assert message == "No space left on device (report); free some space and run the command again"
        assert contents(tmp_path) == before
        assert [path.name for path in tmp_path.iterdir()] == ["report"]

    def test_a_long_factor_of_few_documents(self, cli, ckpt):
        """Windows longer than a stretch of 16 L: every stretch in which one begins has all its positions."""
        cli("eval-lengths", ckpt / "rope", "--factors", "1,3,24", "--protocol", "windows").succeeded()
        assert "up to 24x" in cli("report", ckpt).succeeded().out

    def test_where_no_model_reaches_any_length(self, cli, ckpt, tmp_path):
        cli("eval-lengths", ckpt / "learned", "--factors", "2,4", *FEW).succeeded()
        assert "evaluate at 1x too" in cli("report", ckpt).error()
        assert "evaluate at 1x too" in cli("compare", ckpt).error()
        assert not (tmp_path / "report").exists()

    def test_the_control_with_intervals(self, cli, evaluated, reported):
        compared = [json.loads(line) for line in cli("compare", evaluated, "--extensions", "--json").out.splitlines()]
        fixed, _, windows = (reported / "report.md").read_text().partition("## Protocol windows")
        for protocol, text in (("windows", windows), ("fixed-target", fixed)):
            mine = [row for row in compared if row["protocol"] == protocol and row["other"] == "its control"]
            for row in mine:
                cell = f"{row['difference']:+.3f} "
                cell += "too few" if row["low"] is None else f"[{row['low']:+.3f}, {row['high']:+.3f}]"
                lines = [line for line in text.splitlines() if line.startswith(f"| {row['model']} | ")]
                assert cell in next(line for line in lines if "[+" in line or "[-" in line or "too few" in line)
            counting = sum(row["p"] is not None for row in mine)
            assert f"Holm's correction for the number of comparisons in this table, {counting}." in text

    def test_the_papers_columns(self, evaluated, reported):
        """What a learned table does not reach is null, and n/a in print."""
        table = pd.read_parquet(reported / "loss_by_ev.parquet")
        assert list(table.columns) == [
            "Model", "Loss (ev=1)", "Loss (ev=2)", "Loss (ev=4)", "Training time", "Seeds",
        ]  # fmt: skip
        table = table.set_index("Model")
        assert set(table.index) == {"RoPE", "RoPE + PI(2)", "ExPE", "ExPE + PI(2)", "Learned", "NoPE"}
        assert table.index[:2].tolist() == ["RoPE", "RoPE + PI(2)"]
        assert table["Training time"][["RoPE", "RoPE + PI(2)"]].tolist() == [1.0, 1.0]
        assert table["Training time"].notna().all()
        rows = xt.rows(evaluated / "rope")
        plain = rows[(rows["protocol"] == "windows") & (rows["extension"] == "as-trained")].set_index("factor")["loss"]
        assert table.loc["RoPE"].iloc[:3].tolist() == plain[[1, 2, 4]].tolist()
        assert table.loc["Learned"].isna().tolist()[:3] == [False, True, True]
        assert pq.read_table(reported / "loss_by_ev.parquet")["Loss (ev=2)"].null_count == 1
        assert xt.rows(evaluated / "learned")["control_loss"].notna().all()  # its control is at the table's own length
        markdown = (reported / "report.md").read_text()
        learned = next(line for line in markdown.splitlines() if line.startswith("| Learned"))
        assert learned.count("n/a") == 3, "and its rank"
        assert "n/a" in (reported / "loss_by_ev.tex").read_text()
        assert "nan" not in markdown.lower()

    def test_it_needs_no_model(self, cli, evaluated, reported, tmp_path):
        for run in evaluated.iterdir():
            as_tables(run, tmp_path / "bare" / run.name)
        cli("report", "bare", "--out", "from-tables").succeeded()
        full = pd.read_parquet(reported / "loss_by_ev.parquet")
        pd.testing.assert_frame_equal(full, pd.read_parquet(tmp_path / "from-tables/loss_by_ev.parquet"))

    def test_models_show_their_own_seeds(self, cli, tiny, ckpt, tmp_path):
        cli("train", "--pe", "rope", *tiny, "--seed", 1, "--out", ckpt / "rope-1").succeeded()
        cli("eval-lengths", ckpt / "rope-1", "--factors", "1,2", *FEW).succeeded()
        cli("eval-lengths", ckpt / "rope", "--factors", "1,2", *FEW, "--extend", "pi:factor=1").succeeded()
        said = cli("report", ckpt).succeeded().err
        table = pd.read_parquet(tmp_path / "report/loss_by_ev.parquet").set_index("Model")
        assert table["Seeds"].to_dict() == {"RoPE": 2, "RoPE + PI(1)": 1}
        assert "models have different seeds (RoPE: seeds 0, 1; RoPE + PI(1): seed 0); each is shown with its" in said
        assert set(pd.read_parquet(tmp_path / "report/loss_by_position.parquet")["seeds"]) == {1, 2}

    def test_folders_of_folders_and_several_of_them(self, cli, evaluated, ckpt, tmp_path):
        for at, name in enumerate(("rope", "expe", "none")):
            shutil.copytree(evaluated / name, tmp_path / "deep" / str(at) / "more" / name)
        shutil.copytree(ckpt / "learned", tmp_path / "deep/3/learned")
        cli("report", "deep", "--out", "deep/report").succeeded()
        ended = cli("report", "deep", "--out", "made").succeeded()
        models = set(pd.read_parquet(tmp_path / "made/loss_by_ev.parquet")["Model"])
        assert models == {"RoPE", "RoPE + PI(2)", "ExPE", "ExPE + PI(2)", "NoPE"}
        assert "not evaluated: deep/3/learned" in ended.err
        assert "reports, with rows of runs: deep/report" in ended.err

    @pytest.mark.filterwarnings("error")
    def test_infinite_losses_and_odd_names(self, cli, evaluated, tmp_path):
        """A diverged model is worse than its control, and nothing says otherwise."""
        odd = {"rope": "$\\frac{$|<script>\n\x1b[31m", "expe": "ExPE"}
        for name, model in odd.items():

            def diverged(row, model=model):
                loss = {1.0: row["loss"], 2.0: math.inf, 4.0: 1e300}[row["factor"]]
                return row | {"model": model, "loss": loss} if row["extension"] == "as-trained" else None

            as_tables(evaluated / name, tmp_path / "odd" / name, diverged)
        ended = cli("report", "odd").succeeded()
        page = (tmp_path / "report/report.md").read_text()
        row = next(
            line
            for line in page.splitlines()
            if line.startswith("| \\$\\\\frac{\\$\\|&lt;script&gt; [31m |".replace("[", "\\["))
        )
        assert row.split(" | ")[2] == "inf"
        assert "<script" not in page + (tmp_path / "report/loss_by_ev.tex").read_text()
        assert "+inf" in ended.out + page
        compared = [json.loads(line) for line in cli("compare", "odd", "--json").succeeded().out.splitlines()]
        verdicts = {row["verdict"] for row in compared if row["factor"] == 2 and row["other"] == "its control"}
        assert verdicts == {"worse (this run)"}


@pytest.mark.usefixtures("without_pictures")
def test_a_training_time_beside_other_programs_is_na_with_the_reason(cli, ckpt: Path) -> None:
    """In every place that shows it: of rope it is known, and of expe not."""
    for name, share in (("rope", 0.02), ("expe", 0.3)):
        file = ckpt / name / "metrics.parquet"
        results.write_frame(file, results.read_frame(file).assign(cpu_taken_share=share))
    cli("eval-lengths", ckpt / "rope", ckpt / "expe", "--factors", "1,2", "--max-targets", 512).succeeded()
    rows = xt.rows(ckpt / "expe")
    assert rows["training_taken"].tolist() == pytest.approx([0.3] * len(rows))
    assert rows["training_seconds"].isna().all()
    printed = cli("report", ckpt / "rope", ckpt / "expe", "--out", "report", "--json").succeeded().out
    times = {row["model"]: row["training_time"] for row in map(json.loads, printed.splitlines())}
    assert times == {"RoPE": 1.0, "ExPE": None}
    page = Path("report/report.md").read_text()
    assert "The training time of ExPE (30%) is n/a: other programs took this share of the time" in page
    assert np.isnan(pd.read_parquet("report/cost.parquet").set_index("Model").loc["ExPE", "Training seconds"])
    steps = pd.read_parquet("report/training.parquet").set_index("Model")["Seconds per 1,000 steps"]
    assert np.isnan(steps["ExPE"])
    assert steps["RoPE"] > 0
