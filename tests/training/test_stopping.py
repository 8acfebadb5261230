"""What is validated, kept and saved when; and how a training is stopped, refused and continued."""

import json
import math
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.machine.interrupts import Interrupted, stop_requests
from extrapolate.runs import tensors
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import Run
from extrapolate.training import loop
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import Training, train

STEP = 128  # tokens of a step
SMALL = {"width": 16, "layers": 1, "heads": 1, "ff_width": 16}


@pytest.fixture
def of_steps(config_of) -> Callable[..., TrainedConfig]:
    """Makes the configuration of a run of some steps."""
    return lambda steps, **training: config_of("none", SMALL, tokens=steps * STEP, batch_tokens=STEP, **training)


def test_no_run_is_trained_in_the_folder_of_another(store: Store, tmp_path: Path, of_steps) -> None:
    config = of_steps(1)
    train(TrainingJob(config, store, tmp_path / "project/one"))
    with pytest.raises(UserError, match=r"project/one/two lies in the run .*project/one, .*: choose another `out`"):
        train(TrainingJob(config, store, tmp_path / "project/one/two"))
    assert not (tmp_path / "project/one/two").exists()
    (tmp_path / "project/config.json").write_text('{"architectures": []}')  # of another program
    assert train(TrainingJob(config, store, tmp_path / "project/two")).finished


@pytest.mark.parametrize(
    ("steps", "validated"), [(1, [1]), (7, [1, 2, 3, 4, 5, 6, 7]), (25, [3, 5, 8, 10, 13, 15, 18, 20, 23, 25])]
)
def test_ten_validations_spread_over_a_run_the_last_at_its_end(
    store: Store, tmp_path: Path, steps: int, validated: list[int], of_steps, logged
) -> None:
    reported: list[dict[str, Any]] = []
    run = train(TrainingJob(of_steps(steps), store, tmp_path / "run"), report=reported.append)
    assert [row["step"] for row in logged(run, "val_loss")] == validated
    assert reported == logged(run)
    assert not (run.path / "state.safetensors").exists()


def test_what_passes_a_multiple_is_kept_and_saved_once(store: Store, tmp_path: Path, monkeypatch, of_steps) -> None:
    saved = []
    save = Training._save
    monkeypatch.setattr(Training, "_save", lambda self: saved.append(self.step) or save(self))
    run = train(TrainingJob(of_steps(10), store, tmp_path / "run", save_every=300, keep_every=300))
    # 300, 600, 900 and 1200 of 1280 tokens are passed after 3, 5, 8 and 10 steps of 128; the last is the end.
    assert saved == [3, 5, 8]
    assert [c.step for c in run.checkpoints("all")] == [3, 5, 8, 10]
    assert [c.tokens for c in run.checkpoints("all")] == [384, 640, 1024, 1280]


def test_without_a_request_states_are_saved_by_the_clock(store: Store, tmp_path: Path, monkeypatch, of_steps) -> None:
    saved = []
    monkeypatch.setattr(Training, "_save", lambda self: saved.append(self.step))
    train(TrainingJob(of_steps(4), store, tmp_path / "fast"))
    assert saved == []
    monkeypatch.setattr(loop, "SAVE_EVERY_S", -1.0)
    train(TrainingJob(of_steps(4), store, tmp_path / "slow"))
    assert saved == [1, 2, 3]


def test_a_stopped_run_is_saved_and_goes_on_to_the_same_weights(store: Store, tmp_path: Path, of_steps, logged) -> None:
    config = of_steps(6)
    whole = train(TrainingJob(config, store, tmp_path / "whole"))

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == 3 and "loss" in row:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=r"after step 3 of 6, which is saved; extrapolate train --out .*cut --resume"):
        train(TrainingJob(config, store, tmp_path / "cut"), report=stop)
    assert tensors.record(tmp_path / "cut" / "state.safetensors")["step"] == 3
    resumed = train(TrainingJob(config, store, tmp_path / "cut"), resume=True)
    assert resumed.checkpoints("last")[0].sha256 == whole.checkpoints("last")[0].sha256
    assert [row["step"] for row in logged(resumed, "loss")] == [1, 2, 3, 4, 5, 6]


def test_a_second_request_to_stop_is_not_waited_for() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), stop_requests() as requests:  # noqa: PT012 (the second request ends it)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
        os.kill(os.getpid(), signal.SIGINT)
        assert requests == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_another_thread_nothing_is_listened_to() -> None:
    """Python takes signals in its main thread alone."""
    seen = []

    def listen() -> None:
        before = signal.getsignal(signal.SIGINT)
        with stop_requests() as requests:
            seen.append((requests, signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [([], True)]


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(
    store: Store, tmp_path: Path, of_steps, training_of
) -> None:
    training = training_of(of_steps(5))
    training._step()
    with torch.no_grad():
        training.model.head.weight.fill_(math.nan)
    with pytest.raises(RuntimeError, match=r"loss is nan .* at step 2 of .*run; a lower `lr`"):
        training._step()
    assert training.step == 1


def test_a_finite_loss_whose_gradient_is_not_ends_the_run_too(
    store: Store, tmp_path: Path, monkeypatch, of_steps, training_of
) -> None:
    training = training_of(of_steps(5))
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(math.inf))
    with pytest.raises(RuntimeError, match="gradient's norm inf at step 1"):
        training._step()


def test_a_folder_with_a_run_is_only_continued_and_as_it_was_begun(
    store: Store, tmp_path: Path, of_steps, logged
) -> None:
    config, path = of_steps(4), tmp_path / "run"
    run = train(TrainingJob(config, store, path))
    rows, weights = logged(run), run.checkpoints("last")[0].sha256
    with pytest.raises(
        ValueError, match="already holds a run; continue it with `resume=True`, or choose another `out`"
    ):
        train(TrainingJob(config, store, path))
    with pytest.raises(ValueError, match=r"another configuration \(.*lr.*\); give the settings that it was started"):
        train(TrainingJob(of_steps(4, lr=0.5), store, path), resume=True)
    again = train(TrainingJob(config, store, path), resume=True)
    assert (logged(again), again.checkpoints("last")[0].sha256) == (rows, weights)


def test_a_run_killed_before_it_saved_begins_anew(store: Store, tmp_path: Path, of_steps, logged) -> None:
    config, path = of_steps(3), tmp_path / "run"
    Run.create(path, config, store.tokenizer_json())
    (path / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 9.0}) + "\n")
    run = train(TrainingJob(config, store, path))
    assert [row["step"] for row in logged(run, "loss")] == [1, 2, 3]


def test_a_state_of_another_model_is_refused(store: Store, tmp_path: Path, of_steps, training_of) -> None:
    training = training_of(of_steps(5))
    training._step()
    training._save()
    path = tmp_path / "run" / "state.safetensors"
    found, record = tensors.read(path), tensors.record(path)
    without = {name: tensor for name, tensor in found.items() if not name.startswith("generator.")}
    other = {name: tensor for name, tensor in found.items() if not name.startswith("model.")}
    for damaged, said, message in [
        (found, record | {"config": "0"}, r"does not belong to the config\.json beside it"),
        (found, {name: value for name, value in record.items() if name != "step"}, "is damaged: KeyError"),
        (without, record, "is damaged: KeyError"),
        (other, record, r"does not belong to its config\.json"),
        (found | {"optimizer.one": torch.zeros(1)}, record, "is damaged: ValueError"),
    ]:
        tensors.write(path, damaged, said)
        with pytest.raises(UserError, match=message):
            Training(
                training.run, training.data, TrainingJob(training.run.trained, store, path.parent), lambda row: None
            )


def test_a_step_says_what_it_did(store: Store, tmp_path: Path, of_steps, training_of) -> None:
    """The gradient's norm before it is clipped, the rate of the step, the inputs a second; and nothing is left over."""
    training = training_of(of_steps(5, clip=1e-3, warmup_ratio=0.0))
    batch, weight = training.data.batch(0, 8)
    loss = training.gradient_step.gradients(batch, weight)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in training.model.parameters()))
    training.model.zero_grad()
    row = training._step()
    assert row["loss"] == pytest.approx(loss)
    assert row["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert row["lr"] == training.training.lr == training.optimizer.param_groups[1]["lr"]
    assert 0 < row["tokens_per_s"] < math.inf
    assert training.tokens == STEP
    assert all(p.grad is None for p in training.model.parameters())


def test_the_next_step_reads_the_next_windows(store: Store, tmp_path: Path, of_steps, training_of) -> None:
    training = training_of(of_steps(5))
    asked = []
    batch = training.data.batch
    training.data.batch = lambda first, size: asked.append((first, size)) or batch(first, size)
    training._step()
    training._step()
    assert asked == [(0, 8), (8, 8)]


def test_checkpoints_after_the_state_that_a_killed_training_resumes_from_go(
    store: Store, tmp_path: Path, of_steps
) -> None:
    """The steps that are trained again may have other weights, and may not be kept this time."""

    def kill(row: dict[str, Any]) -> None:
        if row["step"] == 6 and "loss" in row:
            raise ArithmeticError

    path, left = tmp_path / "run", []
    with pytest.raises(ArithmeticError):
        train(TrainingJob(of_steps(10), store, path, save_every=4 * STEP, keep_every=STEP), report=kill)
    assert len(list((path / "checkpoints").iterdir())) == 5

    def look(row: dict[str, Any]) -> None:
        left.append(sorted(int(file.stem[5:]) for file in (path / "checkpoints").iterdir()))

    run = train(TrainingJob(of_steps(10), store, path, keep_every=3 * STEP), resume=True, report=look)
    assert left[0] == [1, 2, 3, 4]
    assert [one.step for one in run.checkpoints("all")] == [1, 2, 3, 4, 6, 9, 10]


def test_what_is_left_by_a_training_killed_at_its_very_end_goes(store: Store, tmp_path: Path, of_steps) -> None:
    """After the final weights, and before its state was removed; or while it wrote a checkpoint that is kept."""
    config, path = of_steps(2), tmp_path / "run"
    train(TrainingJob(config, store, path, keep_every=STEP))
    whole = sorted(path.rglob("*"))
    left = [path / "state.safetensors", path / "checkpoints/.step-00000001.safetensors.1.partial"]
    job = TrainingJob(config, store, path)
    for clean in (lambda: train(job, resume=True), lambda: xt.train(out=path, resume=True)):
        for file in left:
            file.write_bytes(b"left")
        clean()
        assert sorted(path.rglob("*")) == whole
