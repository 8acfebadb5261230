"""Models of a half and a quarter of the budget, and what they leave of the training: nothing."""

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
from extrapolate.training.halvings import Branch, branches, trained_tokens
from extrapolate.training.loop import train
from extrapolate.training.optimizer import learning_rate

STEP, STEPS = 128, 200  # tokens of a step; the fewest steps with halvings
SMALL = {"width": 16, "layers": 1, "heads": 1, "ff_width": 16, "dropout": 0.1}  # dropout draws random numbers
QUARTER, HALF = Branch(40, 50), Branch(80, 100)


@pytest.fixture
def config(config_of) -> TrainedConfig:
    return config_of("none", SMALL, tokens=STEPS * STEP, batch_tokens=STEP, lr=0.02, warmup_ratio=0.1)


def halvings_in(run: Run) -> list[tuple[int, int, str]]:
    """The step, tokens and hash of everything kept before the end."""
    return [(one.step, one.tokens, one.sha256) for one in run.checkpoints("all")[:-1]]


def final(run: Run) -> str:
    return run.checkpoints("last")[0].sha256


@pytest.fixture
def whole(config: TrainedConfig, store: Store, tmp_path: Path) -> Run:
    return train(config, store, tmp_path / "whole", halvings=True)


def test_a_branch_takes_the_last_fifth_of_its_budget() -> None:
    assert branches(STEPS) == [QUARTER, HALF]
    assert branches(STEPS - 1) == []
    assert [(one.begin, one.end) for one in branches(5859)] == [(1171, 1464), (2343, 2929)]


def test_the_rate_of_a_branch_falls_from_that_of_the_training_to_the_end(config: TrainedConfig) -> None:
    training = config.training.model_copy(update={"min_lr_ratio": 0.1})
    at_80 = 0.002 + 0.018 * 120 / 180  # 120 of the 180 steps after the warm-up are left
    rates = [learning_rate(training, step, HALF) for step in range(80, 101)]
    assert rates[0] == learning_rate(training, 80) == pytest.approx(at_80)
    assert rates == pytest.approx([0.002 + (at_80 - 0.002) * (20 - n) / 20 for n in range(21)])


def test_the_training_is_as_if_there_had_been_no_branch(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run, logged
) -> None:
    without = train(config, store, tmp_path / "without")
    assert halvings_in(without) == []
    assert final(whole) == final(without)
    ours, theirs = (logged(run, "loss") for run in (whole, without))
    assert [(row["step"], row["loss"], row["lr"]) for row in ours] == [(r["step"], r["loss"], r["lr"]) for r in theirs]
    assert not [file.name for file in whole.path.iterdir() if file.name in ("state.safetensors", "trunk.safetensors")]


def test_a_halving_is_a_training_whose_rate_falls_early(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run, monkeypatch
) -> None:
    """Compared with a training that follows the rates of the branch from its beginning, and is stopped at its end."""
    assert [kept[:2] for kept in halvings_in(whole)] == [(50, 50 * STEP), (100, 100 * STEP)]
    assert [one.annealed for one in whole.checkpoints("all")] == [True] * 3
    assert whole.checkpoints("half") == whole.checkpoints("all")[1:2]
    for branch, (_, _, sha256) in zip((QUARTER, HALF), halvings_in(whole), strict=True):

        def rate(training, step: int, _=None, branch: Branch = branch) -> float:
            return learning_rate(training, step, branch if step >= branch.begin else None)

        def stop(row: dict, branch: Branch = branch) -> None:
            if row["step"] == branch.end and "loss" in row:
                os.kill(os.getpid(), signal.SIGTERM)

        path = tmp_path / f"early-{branch.end}"
        monkeypatch.setattr(loop, "learning_rate", rate)
        with pytest.raises(Interrupted):
            train(config, store, path, report=stop)
        found = tensors.read(path / "state.safetensors")
        model = {name.removeprefix("model."): one for name, one in found.items() if name.startswith("model.")}
        assert tensors.sha256_of(model) == sha256


@pytest.mark.parametrize(  # passes 41 to 50 are those of the first branch, 91 to 110 those of the second
    ("passes", "saved"), [(45, True), (89, False), (91, True), (101, False), (110, True), (111, False)]
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
        train(config, store, path, progress=end, halvings=True, save_every=every)
    resumed = train(config, store, path, resume=True, halvings=True, save_every=every)
    assert halvings_in(resumed) == halvings_in(whole)
    assert final(resumed) == final(whole)


def test_a_training_stopped_in_a_branch_can_go_on_without_halvings(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run
) -> None:
    def stop(what: str, tokens: float) -> None:
        if what == "annealing":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(config, store, tmp_path / "cut", progress=stop, halvings=True)
    resumed = train(config, store, tmp_path / "cut", resume=True)
    assert halvings_in(resumed) == halvings_in(whole)[:1]
    assert final(resumed) == final(whole)


def test_progress_counts_the_steps_of_branches(config: TrainedConfig, store: Store, tmp_path: Path) -> None:
    counted: dict[str, float] = {}

    def count(what: str, tokens: float) -> None:
        counted[what] = counted.get(what, 0) + tokens

    train(config, store, tmp_path / "run", progress=count, halvings=True)
    assert counted == {"training": STEPS * STEP, "annealing": 30 * STEP, "validating": 0}
    assert trained_tokens(config.training, halvings=True) == (STEPS + 30) * STEP
    assert trained_tokens(config.training, halvings=False) == STEPS * STEP


def test_kept_checkpoints_of_the_same_steps_are_of_the_training(
    config: TrainedConfig, store: Store, tmp_path: Path, whole: Run
) -> None:
    """`all` has the halving of a step that has both."""
    run: Callable[[], Run] = lambda: train(config, store, tmp_path / "both", halvings=True, keep_every=25 * STEP)  # noqa: E731
    kept = run().checkpoints("all")
    assert [one.step for one in kept] == [25, 50, 75, 100, 125, 150, 175, 200]
    assert [one.annealed for one in kept] == [False, True, False, True, False, False, False, True]
    assert [(one.step, one.tokens, one.sha256) for one in kept if one.annealed][:2] == halvings_in(whole)
