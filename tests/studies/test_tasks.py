"""What can be done when: trainings, the choice of a learning rate, what continues, evaluations."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from extrapolate.evaluation.window_losses import Inputs
from extrapolate.machine.children import Child
from extrapolate.model.config import ModelConfig
from extrapolate.progress import QUIET
from extrapolate.runs.resolve import operations, token_operations
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.studies import state, sweep
from extrapolate.studies.cells import Cell, cells_of
from extrapolate.studies.local import Running, _settled
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.state import CellState
from extrapolate.studies.study import read_study
from extrapolate.studies.sweep import _find_done, _finish, _Screen
from extrapolate.studies.tasks import Ended, Task, Tasks, share_of

STUDY = """
[axes]
encoding = ["rope", "alibi"]
lr = [1e-3, 3e-3, 1e-2]
seed = [0, 1]
[[exclude]]
encoding = "alibi"
lr = 1e-3
[[exclude]]
encoding = "alibi"
lr = 1e-2
[[fine_tune]]
name = "long"
of = {encoding = "rope", seed = 0}
"""


PRESET_LR = 3e-3


@dataclass(frozen=True)
class Ready:
    """As much of a resolved cell as is asked for."""

    cell: Cell
    name: str
    lr: float
    evaluation_inputs: ClassVar[Inputs] = Counter({(16, 8): 16, (64, 64): 128})
    config: ClassVar[Any] = SimpleNamespace(
        model=ModelConfig(vocab_size=64), training=TrainingConfig(seq_len=16, tokens=4096)
    )
    own_extension: None = None


def made(tmp_path: Path, losses: dict[str, float], study: str = STUDY) -> Tasks:
    file = tmp_path / "study.toml"
    file.write_text(study)
    cells = [Ready(cell, cell.name, cell.settings.get("lr", PRESET_LR)) for cell in cells_of(read_study(file))]
    return Tasks(cast(list[Resolved], cells), lambda cell: losses[cell.name])


def rates(mean: dict[str, float]) -> dict[str, float]:
    """Losses of RoPE's cells whose means over two seeds are these."""
    return {f"rope-lr{rate}-s{seed}": loss + (0.1 if seed else -0.1) for rate, loss in mean.items() for seed in (0, 1)}


def train_all(tasks: Tasks, failing: str = "") -> None:
    for task in [task for task in tasks.ready() if task.kind == "train"]:
        if task.cell == failing:
            tasks.fail(task, "the loss is nan")
        else:
            tasks.finish(task)


def names(tasks: Tasks, kind: str) -> list[str]:
    return [task.cell for task in tasks.ready() if task.kind == kind]


def test_only_trainings_at_first_and_a_model_with_one_rate_is_evaluated_at_once(tmp_path: Path) -> None:
    tasks = made(tmp_path, {})
    assert len(names(tasks, "train")) == 8
    assert not names(tasks, "evaluate")
    tasks.finish(Task("train", "alibi-lr0.003-s1"))
    assert names(tasks, "evaluate") == ["alibi-lr0.003-s1"]
    tasks.finish(Task("train", "rope-lr0.003-s1"))
    assert names(tasks, "evaluate") == ["alibi-lr0.003-s1"]  # RoPE's rates are not known yet


@pytest.mark.parametrize(
    ("means", "best", "edge"),
    [
        ({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5}, 3e-3, None),
        ({"0.001": 1.0, "0.003": 2.0, "0.01": 2.5}, 1e-3, "lowest"),
        ({"0.001": 3.0, "0.003": 2.0, "0.01": 1.5}, 1e-2, "highest"),
        ({"0.001": 2.0, "0.003": 2.0, "0.01": math.nan}, 1e-3, "lowest"),
    ],
)
def test_the_best_rate_is_evaluated_and_continued(
    tmp_path: Path, means: dict[str, float], best: float, edge: str | None
) -> None:
    tasks = made(tmp_path, rates(means))
    train_all(tasks)
    choice = tasks.choices["rope-lr0.001-s0"]
    assert (choice.chosen, choice.edge, choice.seeds) == (best, edge, (0, 1))
    chosen = [f"rope-lr{best:g}-s0", f"rope-lr{best:g}-s1"]
    assert names(tasks, "evaluate") == [*chosen, "alibi-lr0.003-s0", "alibi-lr0.003-s1"]
    assert names(tasks, "train") == [f"{chosen[0]}+long"]
    passed_over = [name for name in tasks.cells if tasks.passed_over(name)]
    assert len(passed_over) == 4 + 2  # of the grid, and what would continue them
    for task in tasks.ready():
        tasks.finish(task)
    assert tasks.ready() == [Task("evaluate", f"{chosen[0]}+long")]


def test_a_failed_cell_that_is_passed_over_says_why_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_weights", lambda cells, rate: "")  # there are no runs
    tasks = made(tmp_path, rates({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5}))
    told: list[tuple[str, str]] = []
    tasks.tell = lambda name, reason: told.append((name, reason))
    train_all(tasks, failing="rope-lr0.01-s1")
    assert told == [("rope-lr0.01-s1", "the loss is nan")]
    _finish(tasks, tmp_path, QUIET, with_report=False)
    assert state.read(tmp_path, "rope-lr0.01-s1") == CellState(failed="the loss is nan")
    assert state.read(tmp_path, "rope-lr0.01-s0") == CellState(passed_over=True)


def test_a_better_rate_that_is_added_leaves_out_what_continued_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier call trained and evaluated the continued run of 3e-3; now 1e-2 is to be tried too, and is better."""
    monkeypatch.setattr(sweep, "_weights", lambda cells, rate: "")
    monkeypatch.setattr(Ready, "path", property(lambda cell: tmp_path / cell.name), raising=False)
    monkeypatch.setattr(Ready, "evaluation", None, raising=False)
    monkeypatch.setattr(state, "trained", lambda run: "lr0.01" not in run.name)
    monkeypatch.setattr(state, "diverged", lambda folder, name, config: None)
    monkeypatch.setattr(state, "evaluated", lambda folder, name, run, settings: True)
    tasks = made(tmp_path, rates({"0.001": 3.0, "0.003": 2.5, "0.01": 2.0}))
    continued = "rope-lr0.003-s0+long"
    state.write(tmp_path, continued, CellState(evaluated="then"))
    _find_done(tasks, tmp_path)
    while ready := tasks.ready():
        for task in ready:
            tasks.finish(task)
    assert {task.cell for task in tasks.done if task.kind == "evaluate" and task.cell.startswith("rope")} == {
        "rope-lr0.01-s0", "rope-lr0.01-s1", "rope-lr0.01-s0+long",
    }  # fmt: skip
    said: list[str] = []
    monkeypatch.setattr(sweep.Run, "open", lambda path: path)
    _finish(tasks, tmp_path, cast(Any, SimpleNamespace(say=said.append)), with_report=False)
    assert said == [f"left out of the report, for another learning rate is taken now: {continued}"]


def test_what_continues_a_failed_cell_is_left_out(tmp_path: Path) -> None:
    losses: dict[str, Any] = rates({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5})
    tasks = made(tmp_path, losses)
    for task in [task for task in tasks.ready() if task.cell.startswith("rope")]:
        tasks.fail(task, "no memory")
    assert tasks.choices["rope-lr0.001-s0"].chosen is None
    assert not [task for task in tasks.ready() if task.cell.startswith("rope")]
    assert tasks.without()["rope-lr0.003-s0+long"] == "rope-lr0.003-s0, which it continues, failed"


def test_a_model_whose_every_rate_diverged_failed(tmp_path: Path) -> None:
    tasks = made(tmp_path, rates({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5}))
    for name in ("rope-lr0.001-s0", "rope-lr0.003-s1"):  # of two rates one seed each
        tasks.settle((Task("train", name),), Ended(0, diverged="the loss is nan"))
    train_all(tasks)
    assert tasks.choices["rope-lr0.001-s0"].chosen == 1e-2
    assert tasks.choices["rope-lr0.001-s0"].losses == {1e-3: math.inf, 3e-3: math.inf, 1e-2: 2.5}
    assert not tasks.without()

    tasks = made(tmp_path, {})
    for task in [task for task in tasks.ready() if task.cell.startswith("rope")]:
        tasks.settle((task,), Ended(0, diverged="the loss is nan"))
    assert tasks.without()["rope-lr0.01-s1"] == "it diverged: the loss is nan"
    assert tasks.without()["rope-lr0.001-s0+long"] == "rope-lr0.001-s0, which it continues, failed"


def test_an_evaluation_follows_at_once_where_no_rate_is_chosen(tmp_path: Path) -> None:
    tasks = made(tmp_path, {})
    alibi, rope = Task("train", "alibi-lr0.003-s0"), Task("train", "rope-lr0.003-s0")
    assert tasks.in_turn(alibi) == (alibi, Task("evaluate", alibi.cell))
    assert tasks.in_turn(rope) == (rope,)
    tasks.settle(tasks.in_turn(alibi), Ended(1, failed="no memory"))
    assert alibi in tasks.done
    assert tasks.failed == {Task("evaluate", alibi.cell): "no memory"}


def test_a_process_that_is_killed_after_the_training_leaves_the_evaluation_to_another(tmp_path: Path) -> None:
    tasks = made(tmp_path, {"alibi-s0": 2.0}, '[axes]\nencoding = ["alibi"]\n')

    def send(work: object) -> None:
        raise RuntimeError("the process of a cell ended by itself (SIGKILL)")

    child = cast(Child, SimpleNamespace(receive=lambda: Ended(1), send=send))
    running = Running(Task("train", "alibi-s0"), child, slot=0)
    assert _settled(running, tasks, tmp_path, alone=True)
    assert running.over
    assert tasks.ready() == [Task("evaluate", "alibi-s0")]
    assert not tasks.failed


def test_a_share_is_a_cell_where_no_rate_is_chosen(tmp_path: Path) -> None:
    cells = list(made(tmp_path, {}).cells.values())
    shares = [[cell.name for cell in share_of(cells, index, 4)] for index in range(4)]
    rope, *others = shares
    assert len(rope) == 9  # three rates, two seeds, and what continues one of these
    assert others == [["alibi-lr0.003-s0"], ["alibi-lr0.003-s1"], []]


def test_the_work_that_is_left_is_what_will_be_done(tmp_path: Path) -> None:
    """From the first moment on, and to the end, also where a rate diverges."""
    tasks = made(tmp_path, rates({"0.001": 3.0, "0.003": 2.0, "0.01": 2.5}))
    told: list[tuple[float, float]] = []
    screen = _Screen(
        tasks, cast(Any, SimpleNamespace(update=lambda what, done, total, note: told.append((done, total))))
    )
    while ready := tasks.ready():
        for task in ready:
            screen.show([(task, 0.5)])
            if task == Task("train", "rope-lr0.01-s1"):
                tasks.diverge(task.cell, "the loss is nan")
            else:
                tasks.finish(task)
    screen.show([])
    sizes, training = Ready.config.model, operations(Ready.config) / 1e9
    evaluation = (16 * token_operations(sizes, 16, 8) + 128 * token_operations(sizes, 64)) / 1e9
    whole = pytest.approx(9 * training + 5 * evaluation)
    assert all(total == whole for _, total in told)
    assert told[0] == (training / 2, whole)
    assert told[-1] == (whole, whole)
    assert sorted(told) == told
