"""Finding runs in folders of folders, and naming them in lists."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

RUN_FILE = "config.json"
LISTED = 6  # names in a message; more are counted


def below(folder: Path) -> Iterator[Path]:
    """The folder and every one below it, each once, in order, without hidden folders and without what is in a run."""
    seen: set[str] = set()
    for path, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(path)
        if real in seen:  # a link to a folder further up
            folders.clear()
            continue
        seen.add(real)
        yield Path(path)
        folders[:] = [] if RUN_FILE in names else sorted(name for name in folders if not name.startswith("."))


def unique_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Every folder's name, with as much of its path before it as tells it from the others: `rope`, `s1/expe`."""
    folders = list(folders)
    names = {folder: folder.name for folder in folders}
    for depth in range(2, max((len(folder.parts) for folder in folders), default=0) + 1):
        shown = list(names.values())
        clashing = [folder for folder, name in names.items() if shown.count(name) > 1]
        if not clashing:
            break
        names.update((folder, "/".join(folder.parts[-depth:])) for folder in clashing)
    return names


def listed(paths: Sequence[Path | str]) -> str:
    """`a, b, c`, or the first few and a count."""
    names = [str(path) for path in paths[:LISTED]]
    return ", ".join(names) + (f", and {len(paths) - LISTED} more" if len(paths) > LISTED else "")
