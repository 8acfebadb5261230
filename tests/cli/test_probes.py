"""Probes from the command line: trained for, evaluated, reported, refused."""

import shutil
from datetime import timedelta

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.data.probes.base import probes
from extrapolate.runs.run import Run

MIXTURE = "needle=0.25,passkey:length=2=0.25"
FEW = ["--protocol", "off", "--factors", "1,4", "--probe-trials", "4"]


@pytest.fixture(scope="module")
def _mixed(quietly, tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("mixed") / "mixed"
    quietly("train", "--pe", "rope", *tiny, "--probes", MIXTURE, "--out", out)
    return out


@pytest.fixture
def mixed(_mixed, tmp_path):
    """A run that was trained on a mixture."""
    return shutil.copytree(_mixed, tmp_path / "ckpt/mixed")


def rows_of(run):
    return xt.rows(run, "probes")


def training_of(run):
    return Run.open(run).config.training


class TestTrain:
    def test_the_mixture_belongs_to_the_run(self, cli, ckpt, mixed, tiny, tmp_path):
        text, plain = Run.open(mixed).config, Run.open(ckpt / "rope").config
        assert text.training.probes == "needle=0.25,passkey:length=2=0.25"
        assert text.config_hash() != plain.config_hash()
        assert (mixed / "model.safetensors").read_bytes() != (ckpt / "rope/model.safetensors").read_bytes()
        cli("train", "--config", mixed / "config.json", "--out", "again").succeeded()
        assert (tmp_path / "again/model.safetensors").read_bytes() == (mixed / "model.safetensors").read_bytes()
        (tmp_path / "study.toml").write_text('[training]\nprobes = "mqar=.5"\n')
        cli("train", "--pe", "rope", *tiny, "--config", "study.toml").succeeded()
        assert training_of(tmp_path / "ckpt/rope-mqar=0.5-L16-s0").probes == "mqar=0.5"

    def test_what_continues_it_inherits_the_mixture_unless_told_otherwise(self, cli, mixed, tmp_path):
        flags = ["--from", mixed, "--tokens", "1024", "--batch-tokens", "512"]
        cli("train", *flags, "--out", "a").succeeded()
        cli("train", *flags, "--out", "b", "--probes", "copy=1").succeeded()
        cli("train", *flags, "--out", "c", "--probes", "off").succeeded()
        probes = [training_of(tmp_path / name).probes for name in "abc"]
        assert probes == [training_of(mixed).probes, "copy=1", None]


class TestEvaluate:
    def test_rows_and_tables(self, cli, mixed, leftovers, tmp_path):
        ended = cli("eval-lengths", mixed, *FEW, "--probes", "needle,passkey:length=2", "--extend", "pi").succeeded()
        rows = rows_of(mixed)
        assert len(rows) == 2 * 2 * 2 * 5
        assert set(rows["probe"]) == {"needle", "passkey:length=2"}
        assert set(rows["extension"]) == {"as-trained", "pi"}
        assert xt.rows(mixed).empty
        assert "probe needle, accuracy (chance 0.062), mean over depths" in ended.out
        assert "mixed, RoPE, cut back to L" in ended.out
        assert "…" not in ended.out
        assert not leftovers(tmp_path)
        cli("eval-lengths", mixed, *FEW, "--probes", "needle").succeeded()  # again: the same rows, once
        assert len(rows_of(mixed)) == len(rows)

    def test_with_text_too(self, cli, ckpt):
        flags = ["--factors", "1,4", "--max-targets", "256", "--probes", "all", "--probe-trials", "2"]
        cli("eval-lengths", ckpt, *flags).succeeded()
        for name in ("rope", "learned"):
            assert set(rows_of(ckpt / name)["probe"]) == set(probes.names())
            assert len(xt.rows(ckpt / name)) == 2 * 2
        beyond = rows_of(ckpt / "learned").query("factor == 4")
        assert beyond["accuracy"].isna().all()

    def test_bad_requests(self, refused, ckpt, damage_rows):
        for flags, *words in (
            (["--probes", "needel"], "unknown probe 'needel'", "did you mean 'needle'"),
            (["--probes", "needle:depth=1"], "no argument 'depth'"),
            (["--probes", ""], "name at least one probe"),
            (["--probes", "off"], "name at least one protocol"),
            (["--probes", "off", "--probes", "needle"], "--probes off leaves out all"),
            (["--protocol", "windows"], "--protocol off leaves out all"),
            (["--probes", "passkey:length=8"], "at least 17 tokens", "16"),
            (["--probes", "mqar:symbols=200"], "vocabulary of at least 405"),
            (["--probes", "needle", "--factors", "4096"], "do not fill a window of 65536"),
            (["--probes", "needle", "--probe-trials", "0"], "--probe-trials must be at least 1"),
            ([], "name at least one protocol"),
        ):
            refused(["eval-lengths", ckpt / "rope", "--protocol", "off", *flags], *words)
        said = damage_rows(ckpt / "rope", "probes/needle")
        refused(["eval-lengths", ckpt / "rope", *FEW, "--probes", "needle"], said)


class TestReport:
    @pytest.mark.usefixtures("without_pictures")
    def test_probes_have_their_sections(self, cli, evaluated, tmp_path):
        runs = shutil.copytree(evaluated, tmp_path / "runs")
        cli("eval-lengths", runs / "rope", runs / "learned", *FEW, "--probes", "needle,copy").succeeded()
        ended = cli("report", runs).succeeded()
        assert "probes.parquet" in ended.err
        table = pd.DataFrame(results.read(tmp_path / "report/probes.parquet", results.PROBES))
        assert len(table) == 2 * 2 * 2 * 5
        assert (
            sum(row["accuracy"] is None for row in results.read(tmp_path / "report/probes.parquet", results.PROBES))
            == 10
        )
        text = (tmp_path / "report/report.md").read_text()
        section = text.partition("## Probe copy\n")[2].partition("## Probe needle\n")[0]
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        mean = table.query("probe == 'copy' and run == 'rope' and factor == 4")["accuracy"].mean()
        control = table.query("probe == 'copy' and run == 'rope' and factor == 4")["control_accuracy"].mean()
        assert lines[0] == "| Model | Accuracy (ev=1) | Accuracy (ev=4) | Seeds |"
        assert next(line for line in lines if line.startswith("| RoPE |")).endswith(f"| {mean:.3f} | 1 |")
        assert next(line for line in lines if line.startswith("| RoPE, cut back")).endswith(f"| {control:.3f} | 1 |")
        assert next(line for line in lines if line.startswith("| Learned |")).endswith("| n/a | 1 |")
        for depth in ("0", "0.25", "0.5", "0.75", "1"):
            assert any(line.startswith(f"| RoPE | {depth} |") for line in lines)

    def test_runs_evaluated_on_probes_alone(self, cli, ckpt, tmp_path):
        cli("eval-lengths", ckpt / "rope", *FEW, "--probes", "needle", "--protocol", "off").succeeded()
        ended = cli("report", ckpt).succeeded()
        assert "probe needle, accuracy" in ended.out
        assert {path.name for path in (tmp_path / "report").iterdir()} == {
            "probes.parquet", "probes.needle.png", "probes.needle.pdf", "effective_lengths.parquet", "report.md",
            "report.html",
        }  # fmt: skip
        assert "the longest length at which every probe reaches 0.85" in ended.out
        assert "no losses on text" in cli("compare", ckpt).error()

    def test_rows_on_other_windows_are_left_out_and_said(self, without_pictures, cli, evaluated, edit_rows, tmp_path):
        runs = shutil.copytree(evaluated, tmp_path / "runs")
        cli("eval-lengths", runs / "rope", runs / "none", runs / "learned", *FEW, "--probes", "needle").succeeded()
        for name in ("rope", "none", "learned"):  # yesterday
            edit_rows(
                runs / name, results.PROBES, lambda row: row | {"evaluated_at": row["evaluated_at"] - timedelta(days=1)}
            )
        cli("eval-lengths", runs / "rope", *FEW, "--probes", "needle", "--probe-trials", "3").succeeded()
        cli("eval-lengths", runs / "expe", *FEW, "--probes", "needle", "--probe-trials", "3").succeeded()
        ended = cli("report", runs).succeeded()
        assert "probe needle: left out rows on other windows (ExPE, RoPE)" in ended.err
        table = pd.DataFrame(results.read(tmp_path / "report/probes.parquet", results.PROBES))
        assert set(table["n_trials"]) == {4}
        assert set(table["run"]) == {"rope", "none", "learned"}

    def test_models_of_probes_that_were_not_trained_alike_are_said_beside_losses(
        self, without_pictures, cli, ckpt, tiny, tmp_path
    ):
        cli("train", "--pe", "none", *tiny, "--lr", 0.001, "--out", "odd/none").succeeded()
        cli("eval-lengths", "ckpt/rope", "odd/none", *FEW, "--probes", "needle", "--protocol", "off").succeeded()
        said = "the models were not trained alike"
        assert said in cli("report", "ckpt/rope", "odd/none").succeeded().err
        cli("eval-lengths", "ckpt/rope", "--protocol", "windows", "--factors", "1,4", "--max-targets", 256).succeeded()
        assert cli("report", "ckpt/rope", "odd/none").succeeded().err.count(said) == 1

    def test_models_without_a_probe_of_others_are_named(self, without_pictures, cli, evaluated, tmp_path):
        runs = shutil.copytree(evaluated, tmp_path / "runs")
        text = ["--protocol", "windows", "--factors", "1,4", "--max-targets", 256]
        cli("eval-lengths", runs / "rope", runs / "none", runs / "learned", *text).succeeded()
        cli("eval-lengths", runs / "rope", *FEW, "--probes", "needle").succeeded()
        cli("eval-lengths", runs / "learned", *FEW, "--probes", "needle", "--probe-trials", "3").succeeded()
        said = cli("report", runs / "rope", runs / "none", runs / "learned").succeeded().err
        assert "probe needle: left out the models that were not evaluated with it (NoPE)" in said
        assert said.count("probe needle: left out") == 2  # rows on other windows are those of a model that was
