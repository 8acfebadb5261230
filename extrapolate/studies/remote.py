"""Cells on machines that share no folder: what a worker is sent, and what it gives back."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import users_files
from extrapolate.runs.run import CONFIG, STATE, Run
from extrapolate.studies import state
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.state import CellState
from extrapolate.studies.tasks import Ended
from extrapolate.studies.worker import Work, perform_all

Files = Mapping[str, bytes]  # by their path in a folder
STUDY, STORE = "study", "store"  # folders of a worker's own


@dataclass(frozen=True)
class Sent:
    """What a worker needs beside its work and the token store: the cell's run if it is trained, the run that it
    continues, and the Python files that the study names."""

    run: Files
    parent: Files
    named: Files


@dataclass(frozen=True)
class Returned:
    """How it ended, the files of the run, none if it is not trained, and what is known of the cell."""

    ended: Ended
    run: Files
    known: CellState


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that counts: no lock, and nothing that is unfinished."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", STATE) and not path.name.endswith(".partial")
    }


def named_files(cell: Resolved) -> dict[str, bytes]:
    """The Python files that the study names. Raises UserError if a worker could not have one under the same name."""
    named = {} if cell.user_file is None else {cell.user_file: cell.user_file.read_bytes()}
    own = () if cell.own_extension is None else cell.own_extension.files
    named |= {file.path: file.content for file in (*users_files(cell.evaluation.extend), *own)}
    for path in named:
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"{path}: name it from the folder that you are in, and below it, for `gather='return'`")
    return {path.as_posix(): content for path, content in named.items()}


def sent(cell: Resolved, parent: Path | None) -> Sent:
    """What goes with a cell's tasks."""
    return Sent(
        contents(cell.path) if state.trained(cell.path) else {},
        {} if parent is None else contents(parent),
        named_files(cell),
    )


def perform_remotely(works: Sequence[Work], given: Sent, store: Files) -> Returned:
    """In a worker: does the tasks of one cell in a folder that is then removed."""
    with tempfile.TemporaryDirectory() as place, chdir(place):
        here = Path(place)
        (here / STUDY).mkdir()
        _write(store, here / STORE)
        _write(given.named, here)
        _, cell, _, parent, alone = works[0]
        mine = replace(cell, path=here / STUDY / state.RUNS / cell.name, data=here / STORE)
        before = None if parent is None else mine.path.with_name(parent.name)
        for run, content in ((mine.path, given.run), (before, given.parent)):
            if run is not None and content:
                _write(content, run)
                Run.open(run).trust_code()  # it ran on the machine that sent it
        ended = perform_all([(task, mine, here / STUDY, before, alone) for task, *_ in works])
        run_files = contents(mine.path) if state.trained(mine.path) else {}
        return Returned(ended, run_files, state.read(here / STUDY, cell.name))


def keep(returned: Returned, cell: Resolved, folder: Path) -> None:
    """Writes what a worker gave back into the study's folder: the whole run, or nothing."""
    if returned.run:
        cell.path.parent.mkdir(exist_ok=True)
        with files.new_folder(cell.path, check=lambda there: None) as new:
            _write(returned.run, new)
            record = files.read_sealed(new / CONFIG)
            record["config"]["data"]["path"] = cell.config.data.path
            files.write_sealed(new / CONFIG, record)
            for path in new.rglob("*"):
                files.sync(path)
    state.write(folder, cell.name, returned.known)


def _write(content: Files, folder: Path) -> None:
    for name, content_of in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of)
