"""A model of half the budget, and what it leaves of the training: nothing."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from extrapolate.data.store import Store
from extrapolate.machine.interrupts import Interrupted
from extrapolate.runs import tensors
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import Run
from extrapolate.training import loop
from extrapolate.training.half import Branch, branch_of, trained_tokens
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import train
from extrapolate.training.optimizer import learning_rate

STEP, STEPS = 128, 200  # tokens of a step; the fewest steps that keep half
SMALL = {"width": 16, "layers": 1, "heads": 1, "ff_width": 16, "dropout": 0.1}  # dropout draws random numbers
HALF = Branch(80, 100)


@pytest.fixture
def config(config_of) -> TrainedConfig:
    return config_of("none", SMALL, tokens=STEPS * STEP, batch_tokens=STEP, lr=0.02, warmup_ratio=0.1)


def half_in(run: Run) -> list[tuple[int, int, str]]:
    """The step, tokens and hash of everything kept before the end."""
    return [(one.step, one.tokens, one.sha256) for one in run.checkpoints("all")[:-1]]


def final(run: Run) -> str:
    return run.checkpoints("last")[0].sha256


@pytest.fixture
def whole(config: TrainedConfig, store: Store, tmp_path: Path) -> Run:
    return train(TrainingJob(config, store, tmp_path / "whole", half=True))


def test_a_branch_takes_the_last_fifth_of_its_budget() -> None:
    assert branch_of(STEPS) == HALF
    assert branch_of(STEPS - 1) is None
    assert branch_of(5859) == Branch(2343, 2929)


def test_the_rate_of_a_branch_falls_from_that_of_the_training_to_the_end(config: TrainedConfig) -> None:
    training = config.training.model_copy(update={"min_lr_ratio": 0.1})
    at_80 = 0.002 + 0.018 * 120 / 180  # 120 of the 180 steps after the warm-up are left
    rates = [learning_rate(training, step, HALF) for step in range(80, 101)]
    assert rates[0] == learning_rate(training, 80) == pytest.approx(at_80)
    assert rates == pytest.approx([0.002 + (at_80 - 0.002) * (20 - n) / 20 for n in range(21)])


def test_the_training_is_as_if_there_had_been_no_branch(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run, logged
) -> None:
    without = train(TrainingJob(config, store, tmp_path / "without"))
    assert half_in(without) == []
    assert final(whole) == final(without)
    ours, theirs = (logged(run, "loss") for run in (whole, without))
    assert [(row["step"], row["loss"], row["lr"]) for row in ours] == [(r["step"], r["loss"], r["lr"]) for r in theirs]
    assert not [file.name for file in whole.path.iterdir() if file.name in ("state.safetensors", "trunk.safetensors")]


def test_it_is_a_training_whose_rate_falls_early(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run, monkeypatch
) -> None:
    """Compared with a training that follows the rates of the branch from its beginning, and is stopped at its end."""
    [(step, tokens, sha256)] = half_in(whole)
    assert (step, tokens) == (100, 100 * STEP)
    assert [one.annealed for one in whole.checkpoints("all")] == [True] * 2
    assert whole.checkpoints("half") == whole.checkpoints("all")[:1]

    def rate(training, step: int, _=None) -> float:
        return learning_rate(training, step, HALF if step >= HALF.begin else None)

    def stop(row: dict) -> None:
        if row["step"] == HALF.end and "loss" in row:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop, "learning_rate", rate)
    with pytest.raises(Interrupted):
        train(TrainingJob(config, store, tmp_path / "early"), report=stop)
    found = tensors.read(tmp_path / "early/state.safetensors")
    model = {name.removeprefix("model."): one for name, one in found.items() if name.startswith("model.")}
    assert tensors.sha256_of(model) == sha256


@pytest.mark.parametrize(  # passes 81 to 100 are those of the branch
    ("passes", "saved"), [(79, False), (81, True), (91, False), (100, True), (101, False)]
)
def test_a_training_stopped_near_a_branch_goes_on_to_the_same_weights(
    passes: int, saved: bool, config: TrainedConfig, store: Store, tmp_path: Path, whole: Run
) -> None:
    """Both if the signal lets it save its state, and if it is killed some steps after it last did."""
    seen = 0

    def end(what: str, tokens: float) -> None:
        nonlocal seen
        seen += tokens == STEP
        if seen == passes and tokens == STEP:
            if not saved:
                raise ArithmeticError
            os.kill(os.getpid(), signal.SIGTERM)

    path, every = tmp_path / "cut", 7 * STEP
    with pytest.raises((Interrupted, ArithmeticError)):
        train(TrainingJob(config, store, path, half=True, save_every=every), progress=end)
    resumed = train(TrainingJob(config, store, path, half=True, save_every=every), resume=True)
    assert half_in(resumed) == half_in(whole)
    assert final(resumed) == final(whole)


def test_a_training_stopped_in_a_branch_can_go_on_without(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run
) -> None:
    def stop(what: str, tokens: float) -> None:
        if what == "annealing":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(TrainingJob(config, store, tmp_path / "cut", half=True), progress=stop)
    resumed = train(TrainingJob(config, store, tmp_path / "cut"), resume=True)
    assert half_in(resumed) == half_in(whole)
    assert final(resumed) == final(whole)


def test_progress_counts_the_steps_of_branches(config: TrainedConfig, store: Store, tmp_path: Path) -> None:
    counted: dict[str, float] = {}

    def count(what: str, tokens: float) -> None:
        counted[what] = counted.get(what, 0) + tokens

    train(TrainingJob(config, store, tmp_path / "run", half=True), progress=count)
    assert counted == {"training": STEPS * STEP, "annealing": 20 * STEP, "validating": 0}
    assert trained_tokens(config.training, half=True) == (STEPS + 20) * STEP
    assert trained_tokens(config.training, half=False) == STEPS * STEP


def test_kept_checkpoints_of_the_same_steps_are_of_the_training(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run
) -> None:
    """`all` has the model of half the budget in place of the checkpoint of that step."""
    job = TrainingJob(config, store, tmp_path / "both", half=True, keep_every=25 * STEP)
    run: Callable[[], Run] = lambda: train(job)  # noqa: E731
    kept = run().checkpoints("all")
    assert [one.step for one in kept] == [25, 50, 75, 100, 125, 150, 175, 200]
    assert [one.annealed for one in kept] == [False, False, False, True, False, False, False, True]
    assert [(one.step, one.tokens, one.sha256) for one in kept if one.annealed][:1] == half_in(whole)
