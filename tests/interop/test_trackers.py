"""Trackers get each row of the log by its step, tested with the real libraries if they are installed."""

import importlib.util
import json
import struct
import time
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.interop import trackers
from extrapolate.interop.trackers import Opened
from extrapolate.machine.interrupts import Interrupted
from extrapolate.runs.run import Run
from extrapolate.training import loop

SETTINGS: dict[str, Any] = dict(
    encoding="rope", seq_len=16, tokens=2560, batch_tokens=512, layers=1, precision="fp32", device="cpu", compile=False
)  # five steps, and a validation after each


def needs(name: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(name) is not None
    return pytest.mark.skipif(not there, reason=f"{name} is not installed: pip install 'extrapolate[trackers]'")


def same(found: list[tuple[str, int, float]], run: Path) -> None:
    """Asserts that no point of the log is missing or doubled, and that each has the log's value."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = {(name, row["step"]): value for row in rows for name, value in row.items() if name != "step"}
    assert sorted((name, step) for name, step, _ in found) == sorted(wanted)
    for name, step, value in found:
        if name not in ("tokens_per_s", "cpu_taken_share"):  # a step that is taken again takes another time
            assert value == pytest.approx(wanted[name, step], rel=1e-6), (name, step)
    assert {"loss", "val_loss", "lr", "grad_norm", "tokens"} <= {name for name, *_ in found}


def begin(store: Path, out: Path, last: int, **options: Any) -> None:
    """Trains until it dies after a step, as in a power cut. The last save may be older."""
    tell_row = loop.Training._tell_row

    def stop(self: loop.Training, values: dict[str, Any]) -> None:
        tell_row(self, values)
        if self.step == last and "val_loss" not in values:
            raise RuntimeError("the power is gone")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop.Training, "_tell_row", stop)
        with pytest.raises(RuntimeError, match="power"):
            xt.train(**SETTINGS, data=store, out=out, **options)


def train_in_two_parts(tracker: str, store: Path, out: Path) -> Run:
    """Stops after two of five steps, and resumes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop.Training, "_wishes", lambda self: (self.step == 2, False))
        with pytest.raises(Interrupted):
            xt.train(**SETTINGS, data=store, out=out, tracker=tracker)
    if tracker == "wandb":
        time.sleep(1.1)  # it names an offline run's folder after the second in which it begins
    return xt.train(**SETTINGS, data=store, out=out, resume=True, tracker=tracker)


@needs("tensorboard")
def test_tensorboard_has_each_point_once(store: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    """Also if the training is killed after steps 3 and 4 were sent, which it repeats."""
    begin(store, tmp_path / "run", last=4, save_every=1024, tracker="tensorboard")
    run = xt.train(**SETTINGS, data=store, out=tmp_path / "run", resume=True, tracker="tensorboard")
    events = EventAccumulator(str(run.path), size_guidance={"scalars": 0})
    events.Reload()
    found = [(name, one.step, one.value) for name in events.Tags()["scalars"] for one in events.Scalars(name)]
    same(found, run.path)
    texts = {tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
    assert json.loads(texts["training/text_summary"].strip("`json\n"))["seq_len"] == 16
    assert '"version"' in texts["provenance/text_summary"]


def records_of(file: Path) -> Iterator[bytes]:
    """The records of an offline run of Weights & Biases, a log as LevelDB's: each has a checksum, a length, a type."""
    content, place, block, parts = file.read_bytes(), 7, 2**15, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # what is left of a block is filled up
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        if place + 7 + length > len(content):  # the rest is not written yet
            return
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def ended_run(file: Path) -> list[Any]:
    """All records of an offline run. Another process writes them, and the last ones after `finish` has returned."""
    from wandb.proto.wandb_internal_pb2 import Record

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        records = [Record.FromString(record) for record in records_of(file)]
        if any(record.HasField("exit") for record in records):
            return records
        time.sleep(0.05)
    raise AssertionError(f"{file} has no end")


@needs("wandb")
def test_wandb_has_each_point_once(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    run = train_in_two_parts("wandb", store, tmp_path / "run")
    found, configured, exits, identities = [], set(), [], set()
    for file in sorted(run.path.glob("wandb/offline-run-*/*.wandb")):
        for record in ended_run(file):
            configured |= {entry.key for entry in record.run.config.update}
            identities |= {record.run.run_id} - {""}
            exits += [record.exit.exit_code] if record.HasField("exit") else []
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            step = items.get("_step", record.history.step.num)
            found += [(name, step, value) for name, value in items.items() if not name.startswith("_")]
    same(found, run.path)
    assert {"encoding", "model", "training", "data", "provenance"} <= configured
    assert exits == [1, 0]  # stopped, and finished
    assert len(identities) == 1


@needs("trackio")
def test_trackio_has_each_point_once(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trackio import sqlite_storage

    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")
    run = train_in_two_parts("trackio", store, tmp_path / "run")
    kept = sqlite_storage.SQLiteStorage
    (record,) = kept.get_run_records("extrapolate")
    logs = kept.get_logs("extrapolate", record["name"])
    names = {"loss", "val_loss", "lr", "grad_norm", "tokens", "tokens_per_s", "cpu_taken_share"}
    same([(name, row["step"], row[name]) for row in logs for name in names & row.keys()], run.path)
    assert kept.get_run_config("extrapolate", record["name"])["training"]["seq_len"] == 16


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, dict[str, float]]]:
    """What a tracker of these tests got: the run's identity, the step and the values."""
    told: list[tuple[str, int, dict[str, float]]] = []

    def opened(run: Run, group: str | None, step: int) -> Opened:
        def log(values: dict[str, float], step: int) -> None:
            told.append((trackers._identity(run), step, dict(values)))

        return Opened(log, lambda: None, "a list")

    monkeypatch.setitem(trackers._OPEN, "pytest", opened)  # a package that is installed
    return told


def test_a_resumed_training_goes_on_in_its_run_from_where_it_was_saved(store: Path, tmp_path: Path, kept) -> None:
    begin(store, tmp_path / "run", last=4, save_every=1024, tracker="pytest")
    xt.train(**SETTINGS, data=store, out=tmp_path / "run", resume=True, tracker="pytest")
    assert len({name for name, *_ in kept}) == 1
    assert [step for _, step, values in kept if "loss" in values] == [1, 2, 3, 4, 3, 4, 5]
    assert [step for _, step, values in kept if "val_loss" in values] == [1, 2, 3, 3, 4, 5]
    assert not any("step" in values or ("val_loss" in values and "tokens" in values) for *_, values in kept)


def test_an_unknown_tracker_and_one_that_is_not_installed_are_refused_before_anything_starts(
    cli, tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'wandb', 'tensorboard'" in cli("train", "--pe", "rope", *tiny, "--tracker", "neptune").err
    (tmp_path / "wandb").mkdir()  # as the library leaves one
    monkeypatch.setattr(trackers, "find_spec", lambda name: PathFinder.find_spec(name, [str(tmp_path)]))
    message = cli("train", "--pe", "rope", *tiny, "--tracker", "wandb").error()
    assert message.startswith("--tracker wandb needs the package wandb: pip install 'extrapolate[trackers]'")
    with pytest.raises(UserError, match="did you mean 'wandb'"):
        xt.train("rope", tracker="wandbb")
    with pytest.raises(UserError, match="needs the package trackio"):
        xt.sweep("study.toml", tracker="trackio")
    assert [path.name for path in tmp_path.iterdir()] == ["wandb"]
