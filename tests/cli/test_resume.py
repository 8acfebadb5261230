"""`train --resume` without the flags that a run was begun with: the run knows them."""

import os
import shutil
from pathlib import Path

import pytest

from extrapolate.training import loop


@pytest.fixture
def stopped(cli, monkeypatch):
    """Begins a run that dies after so many steps, with a state saved after each step, or none at all."""

    def call(*arguments: object, after: int = 5, save_every: int = 512) -> None:
        tell_row = loop.Training._tell_row

        def stop(self, values):
            tell_row(self, values)
            if self.step == after:
                raise RuntimeError("the power is gone")

        with monkeypatch.context() as patched:
            patched.setattr(loop.Training, "_tell_row", stop)
            cli("train", *arguments, "--save-every", save_every).error(1)

    return call


@pytest.fixture
def nothing_is_tokenised(monkeypatch):
    from extrapolate.api import tokenize

    monkeypatch.setattr(tokenize, "store_with", lambda *_: pytest.fail("a corpus is tokenised"))


@pytest.mark.usefixtures("nothing_is_tokenised")
class TestWithoutFlags:
    def test_a_stopped_run_ends_with_the_same_bits(self, cli, tiny, trained, state_of_half):
        ended = cli("train", "--resume", "--out", "half").succeeded()
        assert "tokenising" not in ended.err
        assert (state_of_half / "model.safetensors").read_bytes() == (trained / "rope/model.safetensors").read_bytes()

    def test_a_run_that_was_killed_before_its_first_state_begins_again(self, cli, tiny, trained, stopped, tmp_path):
        stopped("--pe", "rope", *tiny, "--out", "half", save_every=10**9)
        assert not (tmp_path / "half/state.safetensors").exists()
        cli("train", "--resume", "--out", "half").succeeded()
        theirs = (trained / "rope/model.safetensors").read_bytes()
        assert (tmp_path / "half/model.safetensors").read_bytes() == theirs

    def test_a_pipe_in_the_place_of_its_log_is_not_waited_for(self, cli, tiny, stopped, tmp_path):
        stopped("--pe", "rope", *tiny, "--out", "run")
        log = tmp_path / "run/metrics.jsonl"
        log.unlink()
        os.mkfifo(log)
        assert cli("train", "--out", "run", "--resume").error() == "run/metrics.jsonl is no file: remove it"

    def test_a_finished_run_says_so_and_nothing_changes(self, cli, ckpt, contents, tmp_path):
        before = contents(tmp_path)
        ended = cli("train", "--resume", "--out", ckpt / "rope").succeeded()
        assert "already finished" in ended.err
        assert contents(tmp_path) == before

    def test_what_cannot_begin_is_refused_before_text_is_tokenised(self, refused):
        refused(["train", "--resume", "--out", "gone"], "gone holds no run", "--pe rope")
        refused(["train", "--pe", "rope"], "--seq-len 512")
        refused(["train", "--pe", "rop", "--seq-len", "16"], "did you mean 'rope'")

    def test_a_finished_run_needs_no_corpus(self, cli, tiny, store, tmp_path):
        shutil.copytree(store, tmp_path / "own")
        flags = [str(tmp_path / "own") if flag == str(store) else flag for flag in tiny]
        cli("train", "--pe", "none", *flags, "--out", "run").succeeded()
        shutil.rmtree(tmp_path / "own")
        assert "already finished" in cli("train", "--resume", "--out", "run").succeeded().err

    def test_settings_that_no_default_has_are_kept(self, cli, tiny, stopped, tmp_path):
        flags = [
            "--pe",
            "expe:size=4",
            *tiny,
            "--lr",
            "0.01",
            "--seed",
            "3",
            "--qk-norm",
            "--qkv-bias",
            "--probes",
            "needle=0.25",
        ]
        cli("train", *flags, "--out", "whole").succeeded()
        stopped(*flags, "--out", "half")
        cli("train", "--resume", "--out", "half").succeeded()
        assert (tmp_path / "half/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()

    def test_a_users_encoding_is_the_runs_own_copy(self, cli, tiny, stopped, tmp_path):
        example = Path(__file__).parent.parent.parent / "examples/my_encoding.py"
        shutil.copy(example, tmp_path / "mine.py")
        cli("train", "--pe", "mine.py:LogBias:strength=2", *tiny, "--out", "whole").succeeded()
        stopped("--pe", "mine.py:LogBias:strength=2", *tiny, "--out", "half")
        (tmp_path / "mine.py").unlink()
        cli("train", "--resume", "--out", "half").succeeded()
        assert (tmp_path / "half/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()

    def test_a_folder_without_a_run_is_begun_as_ever(self, cli, tiny, tmp_path):
        assert "--seq-len" in cli("train", "--pe", "rope", *tiny[:2], "--resume", "--out", "new").error()
        cli("train", "--pe", "rope", *tiny, "--resume", "--out", "new").succeeded()


class TestSomeFlags:
    def test_those_that_agree_are_enough(self, cli, trained, state_of_half):
        cli("train", "--resume", "--out", "half", "--pe", "rope", "--layers", 1, "--tokens", 5120).succeeded()
        assert (state_of_half / "model.safetensors").read_bytes() == (trained / "rope/model.safetensors").read_bytes()

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--lr", "0.5"], ["training.lr: 0.02 in the run, 0.5 now"]),
            (["--seq-len", "32"], ["training.seq_len: 16 in the run, 32 now"]),
            (["--layers", "2"], ["model.layers: 1 in the run, 2 now"]),
            (["--qk-norm"], ["model.qk_norm: False in the run, True now"]),
            (["--qkv-bias"], ["model.qkv_bias: False in the run, True now"]),
            (["--preset", "gpt-256"], ["preset: tiny in the run, gpt-256 now"]),
            (["--probes", "needle=0.5"], ["training.probes: None in the run, needle=0.5 now"]),
            (["--pe", "rope:theta=500"], ["encoding.arguments.theta: 10000.0 in the run, 500.0 now"]),
            (["--pe", "none"], ["encoding.name: rope in the run, none now"]),
            (["--extend", "pi:factor=2"], ["--from"]),
            (["--data", "nowhere"], ["nowhere is not a token store"]),
        ],
    )
    @pytest.mark.parametrize("finished", [False, True])
    def test_those_that_do_not_are_refused(self, refused, state_of_half, ckpt, flags, words, finished):
        refused(["train", "--resume", "--out", ckpt / "rope" if finished else "half", *flags], *words)

    def test_a_file_of_settings_must_agree_too(self, cli, refused, state_of_half, tmp_path):
        (tmp_path / "other.toml").write_text("[encoding]\nname = 'rope'\n[training]\nseed = 5\n")
        refused(["train", "--resume", "--out", "half", "--config", "other.toml"], "training.seed: 0 in the run, 5 now")
        cli("train", "--resume", "--out", "half", "--config", "half/config.json").succeeded()


class TestFromAnother:
    FLAGS = ("--from", "ckpt/rope", "--seq-len", 32, "--extend", "yarn:factor=2", "--tokens", 4096, "--no-compile")

    @pytest.fixture
    def half(self, cli, ckpt, stopped, tmp_path) -> Path:
        cli("train", *self.FLAGS, "--out", "whole").succeeded()
        stopped(*self.FLAGS, "--out", "half", after=4)
        return tmp_path / "half"

    @pytest.mark.parametrize("flags", [(), FLAGS])
    def test_the_folder_that_it_started_from_is_not_needed(self, cli, half, ckpt, tmp_path, flags):
        shutil.rmtree(ckpt / "rope")
        cli("train", *flags, "--resume", "--out", "half").succeeded()
        assert (half / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()

    def test_another_start_is_refused(self, half, refused):
        refused(
            ["train", "--from", "ckpt/expe", "--resume", "--out", "half"], "origin.label: RoPE in the run, ExPE now"
        )
        refused(["train", "--from", "ckpt/gone", "--resume", "--out", "half"], "ckpt/gone is not a run")
        refused(["train", "--extend", "pi:factor=2", "--resume", "--out", "half"], "extension: yarn", "now")
        refused(["train", "--extend", "without-own", "--resume", "--out", "half"], "extension: yarn", "None now")

    def test_without_a_saved_state_it_is_needed(self, cli, ckpt, stopped, refused, tmp_path):
        cli("train", *self.FLAGS, "--out", "whole").succeeded()
        stopped(*self.FLAGS, "--out", "half", save_every=10**9)
        refused(["train", "--resume", "--out", "half"], "starts from the weights of rope", "--from")
        cli("train", "--from", ckpt / "rope", "--resume", "--out", "half").succeeded()
        theirs = (tmp_path / "whole/model.safetensors").read_bytes()
        assert (tmp_path / "half/model.safetensors").read_bytes() == theirs
