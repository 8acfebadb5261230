"""A run's folder says which format it has; one of another format is refused."""

import random
import shutil
from pathlib import Path

import pytest

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.files import FORMAT
from extrapolate.runs import tensors
from extrapolate.runs.resolve import read_file
from extrapolate.runs.run import Run


def changed_run(run: Path, folder: Path, **changed: object) -> Path:
    """A copy of a run with other entries in its config.json, and the hash that it must have."""
    copy = copy_of(run, folder)
    files.write_sealed(copy / "config.json", files.read_sealed(copy / "config.json") | changed)
    return copy


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (FORMAT + 1, f"was written by another version of extrapolate: its format is {FORMAT + 1}, and"),
        (None, "is damaged: it does not say its format"),
    ],
)
def test_a_run_of_another_format_is_refused(trained: Path, tmp_path: Path, number: object, said: str) -> None:
    run = changed_run(trained / "rope", tmp_path, format=number, config={"sections": "unknown"})
    for call in (lambda: Run.open(run), lambda: read_file(run / "config.json")):
        with pytest.raises(UserError, match=rf"config\.json {said}"):
            call()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_flipped_bit_names_its_file(trained: Path, tmp_path: Path, name: str) -> None:
    run, rng = copy_of(trained / "rope", tmp_path), random.Random(name)
    whole = (run / name).read_bytes()
    for place in rng.sample(range(len(whole)), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        (run / name).write_bytes(damaged)
        with pytest.raises(UserError, match=name):
            print(Run.open(run).tokenizer, Run.open(run).model)


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors"])
def test_weights_and_states_of_another_format_are_refused(tmp_path: Path, name: str, monkeypatch) -> None:
    monkeypatch.setattr(files, "FORMAT", FORMAT + 1)
    tensors.write(tmp_path / name, {}, {"step": 1})
    monkeypatch.undo()
    with pytest.raises(UserError, match=rf"{name} was written by another version of extrapolate: its format is"):
        tensors.record(tmp_path / name)


class TestWeightsOfAnotherConfiguration:
    """The configuration is bound to the weights: nothing of other sizes or settings is built from it."""

    @pytest.mark.parametrize(
        ("section", "changed"),
        [("model", {"layers": 9999}), ("model", {"norm_eps": 0.5}), ("training", {"seq_len": 32})],
    )
    def test_with_the_hash_of_the_configuration(self, trained: Path, tmp_path: Path, section, changed) -> None:
        run = copy_of(trained / "rope", tmp_path)
        record = files.read_sealed(run / "config.json")
        record["config"][section] |= changed
        files.write_sealed(run / "config.json", record)
        for call in (Run.build_model, lambda opened: opened.checkpoints("last")):
            with pytest.raises(UserError, match=r"does not belong to the config\.json beside it"):
                call(Run.open(run))


def copy_of(run: Path, folder: Path) -> Path:
    """A run of the test's own, to change."""
    return Path(shutil.copytree(run, folder / "run"))
