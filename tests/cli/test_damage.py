"""Damaged runs and stores, refused resumption, and failures at run time: one message, and nothing lost."""

import json
import shutil
from pathlib import Path

import pytest

from extrapolate.runs import tensors

FEW = ["--max-targets", "512"]
BAD_INPUT, FAILED = 2, 1


def flip(path: Path, place: int) -> None:
    """Inverts one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class TestDamagedRuns:
    def evaluate(self, run, *flags):
        return ["eval-lengths", run, "--factors", "1,2", *FEW, *flags]

    def test_no_run(self, refused, ckpt, tmp_path):
        refused(self.evaluate("nowhere"), "nowhere", "extrapolate train")
        (tmp_path / "hollow").mkdir()
        refused(self.evaluate("hollow"), "hollow holds no run")
        (ckpt / "rope/config.json").unlink()
        refused(self.evaluate(ckpt / "rope"), "config.json")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: text[: len(text) // 2],
            lambda text: "",
            lambda text: "[]",
            lambda text: "{}",
        ],
        ids=["truncated", "empty", "a list", "an empty object"],
    )
    def test_invalid_config(self, refused, ckpt, damage):
        path = ckpt / "rope/config.json"
        path.write_text(damage(path.read_text()))
        refused(self.evaluate(ckpt / "rope"), "config.json", "damaged")

    def test_truncated_weights(self, refused, ckpt):
        cut_in_half(next((ckpt / "rope/checkpoints").iterdir()))
        refused(self.evaluate(ckpt / "rope", "--checkpoint", "all"), "checkpoints", "damaged")
        cut_in_half(ckpt / "rope/model.safetensors")
        refused(self.evaluate(ckpt / "rope"), "model.safetensors is damaged")

    def test_unfinished_run(self, refused, state_of_half):
        refused(self.evaluate(state_of_half), "half is not finished", "--resume")

    def test_store_in_other_tokens(self, refused, ckpt, bpe_store):
        refused(self.evaluate(ckpt / "rope", "--data", bpe_store), "another tokenizer", "--out")


class TestResume:
    def resume(self, tiny, *flags):
        return ["train", "--pe", "rope", *tiny, "--out", "half", "--resume", *flags]

    def test_another_corpus(self, refused, tiny, state_of_half, bpe_store):
        refused(self.resume(tiny, "--data", bpe_store), "data.corpus_hash")

    @pytest.mark.parametrize("damage", [cut_in_half, lambda path: path.write_bytes(b""), lambda path: flip(path, 3)])
    def test_damaged_state(self, refused, tiny, state_of_half, damage):
        damage(state_of_half / "state.safetensors")
        refused(self.resume(tiny), "state.safetensors is damaged")


class TestReport:
    def test_nothing(self, refused, ckpt, tmp_path):
        refused(["report", "nowhere"], "nowhere", "no such folder")
        (tmp_path / "hollow").mkdir()
        refused(["report", "hollow"], "hollow holds no evaluated run", "extrapolate eval-lengths")
        refused(["report", ckpt], "no evaluated run", "extrapolate eval-lengths")
        assert not (tmp_path / "report").exists()

    @pytest.mark.usefixtures("without_pictures")
    def test_rows_of_another_training_length(self, refused, cli, tiny, ckpt, tmp_path):
        cli("train", "--pe", "rope", *tiny, "--seq-len", 32, "--out", ckpt / "longer").succeeded()
        cli("eval-lengths", ckpt / "rope", ckpt / "longer", "--factors", "1", *FEW).succeeded()
        refused(["report", ckpt], "seq_len", "16, 32", "--seq-len")
        assert not (tmp_path / "report").exists()
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
        refused(["eval-lengths", "ckpt/expe", "--factors", "1", *FEW], "as-trained.parquet is damaged", "delete")


class TestFailures:
    def test_loss_that_is_not_a_number(self, cli, tiny, tmp_path, leftovers):
        """The state saved before it stays."""
        flags = ["--lr", "1e6", "--save-every", "512", "--out", "wild"]
        message = cli("train", "--pe", "rope", *tiny, *flags).error(FAILED)
        assert "loss" in message
        assert "step" in message
        assert "--lr" in message
        run = tmp_path / "wild"
        assert not (run / "model.safetensors").exists()
        assert not leftovers(run)
        state = tensors.record(run / "state.safetensors")
        assert state["step"] >= 1
        assert all(tensor.isfinite().all() for tensor in tensors.read(run / "state.safetensors").values())
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["step"] == state["step"]

    def test_debug_shows_the_traceback(self, process):
        ended = process("eval-lengths", "nowhere", "--debug")
        assert ended.code != 0
        assert "Traceback" in ended.err
        assert "UserError" in ended.err
        assert "nowhere" in ended.err

    def test_a_bug_of_ours_is_called_one(self, cli, ckpt, monkeypatch):
        from extrapolate.reports import tables

        def broken(*arguments):
            raise KeyError("column")

        monkeypatch.setattr(tables, "quick_table", broken)
        message = cli("eval-lengths", ckpt / "rope", "--factors", "1", *FEW).error(FAILED)
        assert "KeyError" in message
        assert "--debug" in message


class TestFilesThatAreOthers:
    def test_an_earlier_checkpoint_is_not_the_final_one(self, cli, ckpt) -> None:
        run = ckpt / "rope"
        kept = sorted((run / "checkpoints").iterdir())[0]
        shutil.copy(kept, run / "model.safetensors")
        assert "is a checkpoint of step 4, not the end: restore it" in cli("eval-lengths", run, *FEW).error()

    def test_a_checkpoint_is_not_another_one_along_the_way(self, cli, ckpt) -> None:
        run = ckpt / "rope"
        first, second = sorted((run / "checkpoints").iterdir())[:2]
        shutil.copy(second, first)
        message = cli("eval-lengths", run, "--checkpoint", "all", *FEW).error()
        assert f"{first.name} is the checkpoint of step {int(second.stem[-8:])}: restore it, or delete it" in message
