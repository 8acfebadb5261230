"""Damaged runs and stores, refused resumption, and failures at run time: one message, and nothing lost."""

import json
import os
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

    def test_no_such_folder(self, refused):
        refused(self.evaluate("nowhere"), "nowhere", "extrapolate train")

    def test_folder_without_runs(self, refused, tmp_path):
        (tmp_path / "hollow").mkdir()
        refused(self.evaluate("hollow"), "hollow holds no run")

    def test_run_without_config(self, refused, ckpt):
        (ckpt / "rope/config.json").unlink()
        refused(self.evaluate(ckpt / "rope"), "config.json")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda text: text[: len(text) // 2],
            lambda text: text.replace(":", ";", 1),
            lambda text: "",
            lambda text: "[]",
            lambda text: "{}",
        ],
        ids=["truncated", "not JSON", "empty", "a list", "an empty object"],
    )
    def test_invalid_config(self, refused, ckpt, damage):
        path = ckpt / "rope/config.json"
        path.write_text(damage(path.read_text()))
        refused(self.evaluate(ckpt / "rope"), "config.json", "damaged")

    def test_truncated_weights(self, refused, ckpt):
        cut_in_half(ckpt / "rope/model.safetensors")
        refused(self.evaluate(ckpt / "rope"), "model.safetensors is damaged")

    def test_damaged_kept_checkpoint(self, refused, ckpt):
        cut_in_half(next((ckpt / "rope/checkpoints").iterdir()))
        refused(self.evaluate(ckpt / "rope", "--checkpoint", "all"), "checkpoints", "damaged")

    def test_unfinished_run(self, refused, state_of_half):
        refused(self.evaluate(state_of_half), "half is not finished", "--resume")

    def test_store_of_another_corpus(self, refused, cli, ckpt, corpus):
        cli("tokenize", corpus, "--out", "other", "--vocab-size", 300, "--min-heldout-tokens", 300).succeeded()
        refused(self.evaluate(ckpt / "rope", "--data", "other"), "corpus", "other", "--data")


class TestResume:
    def resume(self, tiny, *flags):
        return ["train", "--pe", "rope", *tiny, "--out", "half", "--resume", *flags]

    def test_another_corpus(self, refused, cli, tiny, state_of_half, corpus, tmp_path):
        shutil.copytree(corpus, tmp_path / "texts")
        (tmp_path / "texts/more.txt").write_text("one document more, of other words than all those before it")
        cli("tokenize", "texts", "--out", "other", "--vocab-size", 400, "--min-heldout-tokens", 300).succeeded()
        refused(self.resume(tiny, "--data", "other"), "data.corpus_hash")

    @pytest.mark.parametrize("damage", [cut_in_half, lambda path: path.write_bytes(b""), lambda path: flip(path, 3)])
    def test_damaged_state(self, refused, tiny, state_of_half, damage):
        damage(state_of_half / "state.safetensors")
        refused(self.resume(tiny), "state.safetensors is damaged")

    def test_after_every_refusal_the_run_can_still_be_resumed(self, cli, tiny, state_of_half, trained):
        cli(*self.resume(tiny, "--lr", "0.5")).error()
        cli(*self.resume(tiny)).succeeded()
        assert not (state_of_half / "state.safetensors").exists()
        theirs = (trained / "rope/model.safetensors").read_bytes()
        assert (state_of_half / "model.safetensors").read_bytes() == theirs


class TestReport:
    def test_nothing(self, refused, tmp_path):
        refused(["report", "nowhere"], "nowhere", "no such folder")
        (tmp_path / "hollow").mkdir()
        refused(["report", "hollow"], "hollow holds no evaluated run", "extrapolate eval-lengths")
        assert not (tmp_path / "report").exists()

    def test_trained_but_not_evaluated(self, refused, ckpt):
        refused(["report", ckpt], "no evaluated run", "extrapolate eval-lengths")

    @pytest.mark.usefixtures("without_pictures")
    def test_rows_of_another_training_length(self, refused, cli, tiny, ckpt, tmp_path):
        cli("train", "--pe", "rope", *tiny, "--seq-len", 32, "--out", ckpt / "longer").succeeded()
        cli("eval-lengths", ckpt / "rope", ckpt / "longer", "--factors", "1", *FEW).succeeded()
        refused(["report", ckpt], "seq_len", "16, 32", "--seq-len")
        assert not (tmp_path / "report").exists()
        cli("report", ckpt, "--seq-len", 32).succeeded()

    @pytest.mark.parametrize(
        ("flags", "column", "choice"),
        [
            (["--split", "validation"], "split", "--split"),
            (["--precision", "bf16"], "precision", "--precision"),
        ],
    )
    @pytest.mark.usefixtures("without_pictures")
    def test_rows_of_another_kind(self, refused, cli, ckpt, flags, column, choice):
        cli("eval-lengths", ckpt / "rope", "--factors", "1", *FEW).succeeded()
        cli("eval-lengths", ckpt / "rope", "--factors", "1", *FEW, *flags).succeeded()
        refused(["report", ckpt], column, choice)
        cli("report", ckpt, *flags).succeeded()

    def test_a_choice_that_no_row_has(self, refused, evaluated):
        refused(["report", evaluated, "--seq-len", 99], "99", "16")
        refused(["report", evaluated, "--corpus", "abc"], "corpus", "abc")

    def test_unknown_baseline(self, refused, evaluated):
        refused(["report", evaluated, "--baseline", "rpoe"], "'rpoe'", "did you mean 'rope'")

    def test_two_runs_of_one_model_and_seed(self, refused, cli, ckpt):
        shutil.copytree(ckpt / "rope", ckpt / "rope-again")
        cli("eval-lengths", ckpt / "rope", ckpt / "rope-again", "--factors", "1", *FEW).succeeded()
        assert "taken once, for they hold the run" in cli("report", ckpt).succeeded().err

    def test_damaged_evals(self, refused, evaluated, tmp_path):
        shutil.copytree(evaluated, tmp_path / "ckpt")
        cut_in_half(tmp_path / "ckpt/expe/evals.parquet")
        refused(["report", "ckpt"], "expe/evals.parquet is damaged", "evaluat")

    def test_missing_documents(self, refused, evaluated, tmp_path):
        shutil.copytree(evaluated, tmp_path / "ckpt")
        (tmp_path / "ckpt/expe/eval_documents.parquet").unlink()
        refused(["report", "ckpt"], "eval_documents.parquet")

    def test_evaluating_onto_damaged_evals_says_how_to_go_on(self, refused, evaluated, tmp_path):
        """It cannot say "evaluate again": that is what the user just did. And it says so before any work."""
        shutil.copytree(evaluated, tmp_path / "ckpt")
        cut_in_half(tmp_path / "ckpt/rope/evals.parquet")
        flags = ["--factors", "1", *FEW]
        refused(["eval-lengths", "ckpt/rope", *flags], "evals.parquet is damaged", "delete")


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

    @pytest.mark.parametrize("name", ["evals.parquet", "eval_documents.parquet", "checkpoints/x.safetensors"])
    def test_a_pipe_is_not_waited_for(self, cli, ckpt, name) -> None:
        file = ckpt / "rope" / name
        file.unlink(missing_ok=True)
        file.parent.mkdir(exist_ok=True)
        os.mkfifo(file)
        assert f"{file} is no file" in cli("eval-lengths", ckpt / "rope", *FEW, "--checkpoint", "all").error()
