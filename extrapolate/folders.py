"""Finding runs in nested folders, and naming them in lists."""

import itertools
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
RUN_FILE = "config.json"
WEIGHTS, STATE = "model.safetensors", "state.safetensors"  # of a run: the final ones, and a training in progress
HALF = "half"  # the folder of a run's model of half the budget
CHECKPOINTS = "checkpoints"  # the folder of the weights that a run keeps on the way
RESULTS = "results"  # the folder of a run's rows, see `results.kept`
TRUNK = "trunk.safetensors"  # the state that a training returns to after a branch
METADATA = "extrapolate"  # our entry in the header of a file of tensors
LOG, METRICS = "metrics.jsonl", "metrics.parquet"  # of a training as it goes on, and after its end
LISTED = 6  # names in a message; the others are counted


def below(folder: Path, tables: bool = False) -> tuple[list[Path], list[str]]:
    """Lists the folder and all below it in order, except hidden ones and those inside a run; the folder may be a link.

    Also says what was left out: weights without a configuration; links to folders; runs (with `tables`, also folders of
    tables) inside a run or a hidden folder; and folders that cannot be read.
    """

    def wanted(names: Iterable[str]) -> bool:
        return any(name == RUN_FILE or (tables and name.endswith(".parquet")) for name in names)

    def inside(place: Path) -> list[Path]:
        return [one for one in (place, *(place / name for name in _names(place))) if wanted(_names(one))]

    found: list[Path] = []
    bare: list[Path] = []
    links: list[Path] = []
    within: list[Path] = []
    hidden: list[Path] = []
    unreadable: list[str] = []
    run: Path | None = None
    for path, folders, names in os.walk(folder, onerror=lambda error: unreadable.append(error.filename)):
        here = Path(path)
        hidden += [one for name in folders if name.startswith(".") for one in inside(here / name)]
        own = {RESULTS} if RUN_FILE in names else set()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in own)
        if run is not None and run in here.parents:
            within += [here] if wanted(names) else []
            continue
        found.append(here)
        linked = [here / name for name in folders if (here / name).is_symlink()]
        if RUN_FILE in names:
            run = here
            linked = [link for link in linked if inside(link)]
        elif not {WEIGHTS, STATE}.isdisjoint(names) and not wanted(names):
            bare.append(here)
        links += linked
    left_out = {
        f"they have weights, but no {RUN_FILE}: {join_names(bare)}": bare,
        f"they are links, which are not followed: {join_names(links)}; name them, or what they lead to": links,
        f"they lie in the folder of another run: {join_names(within)}; name them, or move them out": within,
        f"they are hidden, by a name that begins with a dot: {join_names(hidden)}; name them": hidden,
        f"they cannot be read: {join_names(unreadable)}": unreadable,
    }
    return found, [f"left out, for {why}" for why, paths in left_out.items() if paths]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def unique_names(folders: Iterable[Path]) -> dict[Path, str]:
    """Every folder's name, with as much of its path as distinguishes it from the others: `rope`, `s1/expe`."""
    return disambiguate({folder: (folder.parent, folder.name) for folder in folders})


def disambiguate(places: Mapping[T, tuple[Path, str]]) -> dict[T, str]:
    """Like `unique_names`, for things with names in folders. If paths do not distinguish them, numbers do."""
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


def join_names(paths: Sequence[Path | str]) -> str:
    """`a, b, c`, or the first few and a count."""
    names = [str(path) for path in paths[:LISTED]]
    return ", ".join(names) + (f", and {len(paths) - LISTED} more" if len(paths) > LISTED else "")
