"""Finding runs in folders of folders, and naming them in lists."""

import itertools
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
NOT_FOLLOWED = "left out, for they are links, which are not followed: {}; name them, or what they lead to"
RUN_FILE = "config.json"
LISTED = 6  # names in a message; more are counted


def below(folder: Path) -> tuple[list[Path], list[Path]]:
    """The folder and every one below it, in order, without hidden folders and without what is in a run; and the links
    to folders among them, which are not followed: they may lead anywhere. The folder itself may be a link.
    """
    found: list[Path] = []
    links: list[Path] = []
    for path, folders, names in os.walk(folder):
        found.append(Path(path))
        inside = [] if RUN_FILE in names else sorted(name for name in folders if not name.startswith("."))
        links += [Path(path, name) for name in inside if os.path.islink(os.path.join(path, name))]
        folders[:] = inside
    return found, links


def unique_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Every folder's name, with as much of its path before it as tells it from the others: `rope`, `s1/expe`."""
    return told_apart({folder: (folder.parent, folder.name) for folder in folders})


def told_apart(places: Mapping[T, tuple[Path, str]]) -> dict[T, str]:
    """As `unique_names`, of things that have names in folders. If paths do not tell them apart, numbers do."""
    names = {one: name for one, (_, name) in places.items()}
    for depth in range(1, max((len(folder.parts) for folder, _ in places.values()), default=0) + 1):
        count = Counter(names.values())
        clashing = [one for one, name in names.items() if count[name] > 1]
        names.update((one, "/".join([*places[one][0].parts[-depth:], places[one][1]])) for one in clashing)
    taken: set[str] = set()
    for one, name in names.items():
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        names[one] = name if name not in taken else next(other for other in numbered if other not in names.values())
        taken.add(names[one])
    return names


def listed(paths: Sequence[Path | str]) -> str:
    """`a, b, c`, or the first few and a count."""
    names = [str(path) for path in paths[:LISTED]]
    return ", ".join(names) + (f", and {len(paths) - LISTED} more" if len(paths) > LISTED else "")
