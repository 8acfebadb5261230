"""What a run's folder keeps: rows of the weights that are in it, and what reports read of it."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import extrapolate as xt
from extrapolate import files, results
from extrapolate.training.loop import Training

FEW = ["--factors", "1,2", "--max-targets", "64", "--protocol", "windows"]
STALE = "no result is of the weights that are there now; evaluate again"


@pytest.fixture(scope="module")
def filled_once(trained, tmp_path_factory):
    """The run `rope`, evaluated at all checkpoints. Not to be changed: see `filled`."""
    run = shutil.copytree(trained / "rope", tmp_path_factory.mktemp("filled") / "rope")
    xt.evaluate(run, factors=(1, 2), max_targets=64, protocols=["windows"], checkpoint="all", device="cpu")
    return run


@pytest.fixture
def filled(filled_once, tmp_path):
    """A copy of `filled_once` in the test's own folder."""
    return shutil.copytree(filled_once, tmp_path / "ckpt" / "rope")


def train_again(cli, run, tiny, *flags):
    """Trains another model in the folder."""
    (run / "model.safetensors").unlink()
    shutil.rmtree(run / "checkpoints")
    cli("train", "--pe", "rope", *tiny, "--tokens", 1024, "--out", run, *flags).succeeded()


def test_a_run_that_was_trained_again_has_no_rows_until_it_is_evaluated(cli, filled, tiny, tmp_path):
    assert sorted(xt.rows(filled)["step"].unique()) == [4, 8, 10]
    shutil.copytree(filled, tmp_path / "both" / "kept")
    train_again(cli, filled, tiny)
    assert f"rope: {STALE}" in cli("report", filled).error()
    beside = shutil.copytree(filled, tmp_path / "both" / "rope")
    assert f"left out, for {STALE.partition(';')[0]}: {beside}" in cli("report", tmp_path / "both").succeeded().err
    ended = cli("eval-lengths", filled, *FEW).succeeded()
    assert f"{filled}: deleted the results of 3 weights that are no longer in this folder" in ended.err
    assert set(xt.rows(filled)["step"]) == {2}
    assert len(list((filled / "results").iterdir())) == 1
    assert "deleted" not in cli("eval-lengths", filled, *FEW).err


def test_rows_of_checkpoints_that_are_gone_are_not_read(cli, filled):
    shutil.rmtree(filled / "checkpoints")
    said = "not read, for they are of weights that are gone: some results of "
    assert said in cli("report", filled).succeeded().err
    assert set(xt.rows(filled)["step"]) == {10}


def test_a_run_whose_evaluation_was_killed_at_its_first_file_is_named(cli, filled, evaluated, tmp_path):
    both = shutil.copytree(evaluated / "none", tmp_path / "both" / "none").parent
    for folder in filled.glob("results/*/windows"):
        shutil.rmtree(folder)
    assert f"{filled}: the evaluation was stopped before its first result" in cli("report", filled).error()
    killed = filled.rename(both / "rope")
    said = f"left out, for their evaluation was stopped before its first result: {killed}"
    assert said in cli("report", both).succeeded().err


def test_rows_without_any_weights_are_read(cli, filled):
    """A folder that was copied from another machine, without its weights."""
    (filled / "model.safetensors").unlink()
    shutil.rmtree(filled / "checkpoints")
    assert sorted(xt.rows(filled)["step"].unique()) == [4, 8, 10]
    renamed = filled.rename(filled.with_name("new"))
    assert set(xt.rows(renamed)["run"]) == {"new"}
    assert set(xt.rows([renamed, shutil.copytree(renamed, renamed.with_name("copied"))])["run"]) == {"new"}


@pytest.mark.parametrize("name", ["model.safetensors", "metrics.parquet", None])
def test_results_are_not_those_of_a_training_that_was_killed(cli, filled, tiny, monkeypatch, name):
    """At its end, whichever file could not be written, or before its first step."""
    (filled / "model.safetensors").unlink()
    write = files.write_atomically

    def failing(path, *arguments):
        if path.name == name:
            raise OSError(27, "File too large", str(path))
        write(path, *arguments)

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(*(Training, "_step", killed) if name is None else (files, "write_atomically", failing))
    flags = ["--pe", "rope", *tiny, "--tokens", 1024, "--out", filled]
    assert ("stopped" if name is None else "File too large") in cli("train", *flags).err
    monkeypatch.undo()
    assert STALE in cli("report", filled).error()
    cli("train", *flags, "--resume").succeeded()
    assert results.read_frame(filled / "metrics.parquet")["step"].max() == 2


@pytest.mark.parametrize("what", ["earlier", "another program's", "half", "pickle"])
def test_results_are_not_those_of_other_weights_in_the_place_of_the_last(cli, filled, what):
    weights = filled / "model.safetensors"
    if what == "earlier":
        shutil.copyfile(min((filled / "checkpoints").glob("*.safetensors")), weights)
        shutil.rmtree(next((filled / "results").glob(f"{first_digits(weights)}*")))
    elif what == "another program's":
        save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights)
    elif what == "half":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    else:
        torch.save({}, weights)
    assert STALE in cli("report", filled).error()
    before = sorted(filled.rglob("*.parquet"))
    cli("eval-lengths", filled, *FEW).error()
    assert sorted(filled.rglob("*.parquet")) == before, "nothing is lost"


def first_digits(weights: Path) -> str:
    return results.kept.weights_in(weights.parent)[0][:12]


def test_checkpoints_of_an_earlier_training_are_not_those_of_the_next(cli, filled, tiny):
    (filled / "model.safetensors").unlink()
    cli("train", "--pe", "rope", *tiny, "--out", filled).succeeded()
    assert [one.step for one in xt.load(filled).checkpoints("all")] == [10]
    assert not list((filled / "checkpoints").iterdir())


def test_a_damaged_file_of_rows_is_named_before_anything_is_computed(cli, filled, contents):
    damaged = min(filled.glob("results/*/windows/*.parquet"))
    damaged.write_bytes(b"PAR1 and then nothing")
    before = contents(filled)
    for command in (["report", filled], ["eval-lengths", filled, *FEW], ["inspect", filled, "--factors", "1"]):
        message = cli(*command).error()
        assert f"{damaged} is damaged" in message
        assert "delete it and evaluate again" in message
    assert contents(filled) == before
