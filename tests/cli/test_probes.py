"""Probes from the command line: trained for, evaluated, reported, refused."""

import shutil
from datetime import timedelta

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
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
        assert Run.open(tmp_path / "ckpt/rope-mqar=0.5-L16-s0").config.training.probes == "mqar=0.5"

    def test_what_continues_it_inherits_the_mixture_unless_told_otherwise(self, cli, mixed, tmp_path):
        flags = ["--from", mixed, "--tokens", "1024", "--batch-tokens", "512"]
        cli("train", *flags, "--out", "a").succeeded()
        cli("train", *flags, "--out", "b", "--probes", "copy=1").succeeded()
        cli("train", *flags, "--out", "c", "--probes", "off").succeeded()
        probes = [Run.open(tmp_path / name).config.training.probes for name in "abc"]
        assert probes == [MIXTURE, "copy=1", None]


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

    def test_bad_requests(self, refused, ckpt):
        for flags, *words in (
            (["--probes", "needel"], "unknown probe 'needel'", "did you mean 'needle'"),
            (["--probes", "needle:depth=1"], "no argument 'depth'"),
            (["--probes", ""], "name at least one probe"),
            (["--probes", "off", "--probes", "needle"], "--probes off leaves out all"),
            (["--probes", "passkey:length=8"], "at least 17 tokens", "16"),
            (["--probes", "mqar:symbols=200"], "vocabulary of at least 405"),
            (["--probes", "needle", "--factors", "4096"], "do not fill a window of 65536"),
            (["--probes", "needle", "--probe-trials", "0"], "--probe-trials must be at least 1"),
            ([], "name at least one protocol"),
        ):
            refused(["eval-lengths", ckpt / "rope", "--protocol", "off", *flags], *words)


class TestReport:
    @pytest.mark.usefixtures("without_pictures")
    def test_probes_have_their_sections(self, cli, evaluated, tmp_path):
        runs = shutil.copytree(evaluated, tmp_path / "runs")
        cli("eval-lengths", runs / "rope", runs / "learned", *FEW, "--probes", "needle,copy").succeeded()
        cli("report", runs).succeeded()
        table = pd.DataFrame(results.read(tmp_path / "report/probes.parquet", results.PROBES))
        assert len(table) == 2 * 2 * 2 * 5
        assert table["accuracy"].isna().sum() == 10
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
        assert "probe needle, accuracy" in cli("report", ckpt).succeeded().out
        made = {"probes.parquet", "probes.needle.png", "effective_lengths.parquet", "report.md", "report.html"}
        assert made < {path.name for path in (tmp_path / "report").iterdir()}
        assert "no losses on text" in cli("compare", ckpt).error()

    def test_rows_on_other_windows_are_left_out_and_said(self, without_pictures, cli, evaluated, edit_rows, tmp_path):
        """And so are models that were not evaluated with a probe."""
        runs = shutil.copytree(evaluated, tmp_path / "runs")
        cli("eval-lengths", runs / "rope", runs / "learned", *FEW, "--probes", "needle").succeeded()
        for name in ("rope", "learned"):  # yesterday
            edit_rows(
                runs / name, results.PROBES, lambda row: row | {"evaluated_at": row["evaluated_at"] - timedelta(days=1)}
            )
        cli("eval-lengths", runs / "expe", *FEW, "--probes", "needle", "--probe-trials", "3").succeeded()
        said = cli("report", runs).succeeded().err
        assert "probe needle: left out rows on other windows (ExPE)" in said
        assert "probe needle: left out the models that were not evaluated with it (NoPE)" in said
        table = pd.DataFrame(results.read(tmp_path / "report/probes.parquet", results.PROBES))
        assert set(table["n_trials"]) == {4}
        assert set(table["run"]) == {"rope", "learned"}
