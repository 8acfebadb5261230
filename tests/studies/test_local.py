"""The engine of one machine: what becomes of a cell whose process is killed."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from extrapolate.machine.children import Child
from extrapolate.studies.cells import cells_of
from extrapolate.studies.local import Running, _settled
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.study import read_study
from extrapolate.studies.tasks import Ended, Task, Tasks


@dataclass(frozen=True)
class Ready:
    """As much of a resolved cell as the engine sends."""

    cell: Any
    name: str
    lr: float = 1e-3
    own_extension: None = None


def test_a_process_that_is_killed_after_the_training_leaves_the_evaluation_to_another(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('[axes]\nencoding = ["rope"]\n')
    tasks = Tasks(cast(list[Resolved], [Ready(cell, cell.name) for cell in cells_of(read_study(file))]), lambda _: 2.0)

    def send(work: object) -> None:
        raise RuntimeError("the process of a cell ended by itself (SIGKILL)")

    child = cast(Child, SimpleNamespace(receive=lambda: Ended(1), send=send))
    running = Running(Task("train", "rope-s0"), child, slot=0)
    assert _settled(running, tasks, tmp_path, alone=True)
    assert running.over
    assert tasks.ready() == [Task("evaluate", "rope-s0")]
    assert not tasks.failed
