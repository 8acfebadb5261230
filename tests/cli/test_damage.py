"""Damaged runs and tables, and failures at run time: one message, and nothing lost."""

import shutil
from pathlib import Path

import pytest

FEW = ["--factors", "1", "--max-targets", "512"]


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class TestRuns:
    def test_what_is_no_run_or_not_finished(self, refused, ckpt, state_of_half, tmp_path):
        (tmp_path / "hollow").mkdir()
        (ckpt / "rope/config.json").unlink()
        for words, path in (
            ("nowhere", "nowhere"),
            ("hollow holds no run", "hollow"),
            ("config.json", ckpt / "rope"),
            ("half is not finished", state_of_half),
        ):
            refused(["eval-lengths", path, *FEW], words)

    def test_a_cut_configuration_and_a_cut_checkpoint(self, refused, ckpt):
        cut_in_half(next((ckpt / "rope/checkpoints").iterdir()))
        refused(["eval-lengths", ckpt / "rope", "--checkpoint", "all", *FEW], "checkpoints", "damaged")
        cut_in_half(ckpt / "rope/config.json")
        refused(["eval-lengths", ckpt / "rope", *FEW], "config.json", "damaged")

    def test_a_checkpoint_is_neither_another_one_nor_the_end(self, cli, ckpt):
        run = ckpt / "rope"
        first, second = sorted((run / "checkpoints").iterdir())[:2]
        shutil.copy(second, first)
        message = cli("eval-lengths", run, "--checkpoint", "all", *FEW).error()
        assert f"{first.name} is the checkpoint of step {int(second.stem[-8:])}: restore it, or delete it" in message
        shutil.copy(second, run / "model.safetensors")
        assert "is a checkpoint of step 8, not the end: restore it" in cli("eval-lengths", run, *FEW).error()

    def test_text_in_other_tokens(self, refused, ckpt, tiny, state_of_half, bpe_store):
        refused(["eval-lengths", ckpt / "rope", *FEW, "--data", bpe_store], "another tokenizer", "--out")
        refused(["train", "--resume", "--out", "half", "--data", bpe_store], "data.corpus_hash")

    def test_a_damaged_state(self, refused, state_of_half):
        cut_in_half(state_of_half / "state.safetensors")
        refused(["train", "--resume", "--out", "half"], "state.safetensors is damaged")


class TestReport:
    def test_nothing_to_report(self, refused, ckpt, tmp_path):
        (tmp_path / "hollow").mkdir()
        refused(["report", "nowhere"], "nowhere", "no such folder")
        refused(["report", "hollow"], "hollow holds no evaluated run", "extrapolate eval-lengths")
        refused(["report", ckpt], "no evaluated run", "extrapolate eval-lengths")

    @pytest.mark.usefixtures("without_pictures")
    def test_rows_of_another_training_length(self, refused, cli, tiny, ckpt):
        cli("train", "--pe", "rope", *tiny, "--seq-len", 32, "--out", ckpt / "longer").succeeded()
        cli("eval-lengths", ckpt / "rope", ckpt / "longer", *FEW).succeeded()
        refused(["report", ckpt], "seq_len", "16, 32", "--seq-len")
        cli("report", ckpt, "--seq-len", 32).succeeded()

    def test_a_choice_that_no_row_has(self, refused, evaluated):
        refused(["report", evaluated, "--seq-len", 99], "99", "16")
        refused(["report", evaluated, "--corpus", "abc"], "corpus", "abc")
        refused(["report", evaluated, "--baseline", "rpoe"], "'rpoe'", "did you mean 'rope'")

    def test_damaged_tables(self, refused, evaluated, tmp_path):
        """What evaluates onto them cannot say "evaluate again": that is what the user just did."""
        shutil.copytree(evaluated, tmp_path / "ckpt")
        for file in (tmp_path / "ckpt/none").glob("results/*/documents/windows/as-trained.parquet"):
            file.unlink()
        refused(["report", "ckpt/none"], "none: windows, as-trained: losses without those by document: evaluate again")
        (file,) = (tmp_path / "ckpt/expe").glob("results/*/windows/as-trained.parquet")
        cut_in_half(file)
        refused(["report", "ckpt"], "windows/as-trained.parquet is damaged", "evaluat")
        refused(["eval-lengths", "ckpt/expe", *FEW], "as-trained.parquet is damaged", "delete")


def test_a_bug_of_ours_is_called_one(cli, ckpt, monkeypatch):
    def broken(*arguments):
        raise KeyError("column")

    monkeypatch.setattr("extrapolate.reports.tables.quick_table", broken)
    message = cli("eval-lengths", ckpt / "rope", *FEW).error(1)
    assert "KeyError" in message
    assert "--debug" in message
