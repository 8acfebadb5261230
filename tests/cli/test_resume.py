"""`train --resume` without the flags that a run was begun with: the run knows them."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def stopped(cli, dies_after):
    """Begins a run that dies after five steps, with a state saved after each."""

    def call(*arguments: object) -> None:
        with dies_after(5):
            cli("train", *arguments, "--save-every", 512).error(1)

    return call


class TestWithoutFlags:
    def test_a_stopped_run_ends_with_the_same_bits(self, cli, tiny, trained, state_of_half):
        assert "tokenising" not in cli("train", "--resume", "--out", "half").succeeded().err
        assert (state_of_half / "model.safetensors").read_bytes() == (trained / "rope/model.safetensors").read_bytes()

    def test_a_finished_run_says_so_and_nothing_changes(self, cli, tiny, store, contents, tmp_path):
        """It needs no corpus for that."""
        shutil.copytree(store, tmp_path / "own")
        cli("train", "--pe", "none", *tiny, "--data", "own", "--resume", "--out", "run").succeeded()  # a new one
        shutil.rmtree(tmp_path / "own")
        before = contents(tmp_path)
        assert "already finished" in cli("train", "--resume", "--out", "run").succeeded().err
        assert contents(tmp_path) == before

    def test_text_that_changed_since_is_refused(self, cli, tiny, stopped, corpus, store, tmp_path):
        shutil.copytree(store, tmp_path / "own")
        stopped("--pe", "none", *tiny, "--data", "own", "--out", "run")
        shutil.rmtree(tmp_path / "own")
        cli("tokenize", corpus, "--out", "own", "--vocab-size", 300, "--min-heldout-tokens", 129).succeeded()
        assert "is trained on corpus" in cli("train", "--resume", "--out", "run").error()

    def test_what_cannot_begin_is_refused_before_text_is_tokenised(self, refused):
        refused(["train", "--resume", "--out", "gone"], "gone holds no run", "--pe rope")
        refused(["train", "--pe", "rope"], "--seq-len 512")
        refused(["train", "--pe", "rop", "--seq-len", "16"], "did you mean 'rope'")

    def test_settings_that_no_default_has_and_a_users_encoding_are_kept(self, cli, tiny, stopped, tmp_path):
        shutil.copy(Path(__file__).parents[2] / "examples/my_encoding.py", tmp_path / "mine.py")
        flags = [
            "--pe", "mine.py:LogBias:strength=2", *tiny, "--lr", "0.01", "--seed", "3", "--qk-norm", "--qkv-bias",
            "--probes", "needle=0.25",
        ]  # fmt: skip
        cli("train", *flags, "--out", "whole").succeeded()
        stopped(*flags, "--out", "half")
        (tmp_path / "mine.py").unlink()
        cli("train", "--resume", "--out", "half").succeeded()
        assert (tmp_path / "half/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


class TestSomeFlags:
    def test_those_that_agree_are_enough(self, cli, trained, state_of_half):
        cli("train", "--resume", "--out", "half", "--pe", "rope", "--layers", 1, "--tokens", 5120).succeeded()
        assert (state_of_half / "model.safetensors").read_bytes() == (trained / "rope/model.safetensors").read_bytes()

    def test_those_that_do_not_are_refused(self, refused, state_of_half, ckpt):
        for words, *flags in (
            ["training.lr: 0.02 in the run, 0.5 now", "--lr", "0.5"],
            ["training.seq_len: 16 in the run, 32 now", "--seq-len", "32"],
            ["model.qk_norm: False in the run, True now", "--qk-norm"],
            ["preset: tiny in the run, gpt-256 now", "--preset", "gpt-256"],
            ["encoding.arguments.theta: 10000.0 in the run, 500.0 now", "--pe", "rope:theta=500"],
            ["--from", "--extend", "pi:factor=2"],
            ["nowhere is not a token store", "--data", "nowhere"],
        ):
            refused(["train", "--resume", "--out", "half", *flags], words)
        refused(["train", "--resume", "--out", ckpt / "rope", "--lr", "0.5"], "training.lr: 0.02 in the run, 0.5 now")

    def test_a_file_of_settings_must_agree_too(self, cli, refused, state_of_half, tmp_path):
        (tmp_path / "other.toml").write_text("[encoding]\nname = 'rope'\n[training]\nseed = 5\n")
        refused(["train", "--resume", "--out", "half", "--config", "other.toml"], "training.seed: 0 in the run, 5 now")


FLAGS = ("--from", "ckpt/rope", "--seq-len", 32, "--extend", "yarn:factor=2", "--tokens", 4096, "--no-compile")


@pytest.fixture(scope="module")
def both(quietly, trained, dies_after, tmp_path_factory) -> Path:
    """A folder with `whole`, and `half`, which died on its way."""
    folder = tmp_path_factory.mktemp("both")
    flags = [*FLAGS, "--from", trained / "rope", "--save-every", 512]
    for name, steps, code in (("whole", 10**9, 0), ("half", 4, 1)):
        with dies_after(steps):
            quietly("train", *flags, "--out", folder / name, code=code)
    return folder


class TestFromAnother:
    @pytest.fixture
    def half(self, both, ckpt, tmp_path) -> Path:
        return Path(shutil.copytree(both, tmp_path, dirs_exist_ok=True) / "half")

    def test_the_folder_that_it_started_from_is_not_needed(self, cli, half, ckpt, tmp_path):
        shutil.rmtree(ckpt / "rope")
        cli("train", "--resume", "--out", "half").succeeded()
        assert (half / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()

    def test_another_start_is_refused(self, half, refused):
        refused(
            ["train", "--from", "ckpt/expe", "--resume", "--out", "half"], "origin.label: RoPE in the run, ExPE now"
        )
        refused(["train", "--from", "ckpt/gone", "--resume", "--out", "half"], "ckpt/gone is not a run")
        refused(["train", "--extend", "pi:factor=2", "--resume", "--out", "half"], "extension: yarn", "now")

    def test_without_a_saved_state_it_is_needed(self, cli, half, ckpt, refused, tmp_path):
        (half / "state.safetensors").unlink()
        refused(["train", "--resume", "--out", "half"], "starts from the weights of rope", "--from")
        cli("train", "--from", ckpt / "rope", "--resume", "--out", "half").succeeded()
        assert (half / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
