"""The cells of a study: one training each, with a name that stays when the grid grows."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extrapolate.errors import UserError
from extrapolate.studies.study import MOST_CELLS, FineTuning, Study

_LABELS = {"seq_len": "L", "seed": "s"}
LONGEST_NAME = 200  # bytes, of a file system's 255: temporary folders add to it
_CHOSEN = ("lr", "seed")  # cells that differ only in these are one model; an added model has all of the axes'


@dataclass(frozen=True)
class Cell:
    """One training, with its settings by name.

    model_name: its name without its learning rate and seed. place: where the study's file names it. continues: the cell
    whose weights it starts from. extend: the extension that then belongs to it.
    """

    name: str
    model_name: str
    settings: Mapping[str, Any]
    place: tuple[str | int, ...]
    continues: str | None = None
    extend: str | None = None

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """A key that is equal for cells that differ only in learning rate and seed."""
        mine = {**self.settings, "continues": self.continues, "extend": self.extend}
        return tuple((name, repr(value)) for name, value in sorted(mine.items()) if name not in _CHOSEN)


def cells_of(study: Study) -> list[Cell]:
    """Every cell, in the order of the file: the grid, added models, and fine-tunings of these.

    Raises UserError if two cells have one name, an exclusion excludes nothing, or no cell is left.
    """
    count = math.prod(map(len, study.axes.values()))
    count += sum(math.prod(map(len, _varied(study, one).values())) for one in study.added)
    if count > MOST_CELLS:
        raise UserError(f"{study.at('axes')}: {count:,} combinations are too many: a study has at most {MOST_CELLS:,}")
    found = [*_grid(study), *_added(study)]
    for number, fine_tuning in enumerate(study.fine_tunings):
        found += _continued(study, fine_tuning, number, found)
    names: dict[str, Cell] = {}
    labels: dict[str, str] = {}
    for cell in found:
        label = cell.settings.get("label", cell.model_name) if cell.continues is None else cell.model_name
        if (other := labels.setdefault(label, cell.model_name)) != cell.model_name:
            raise UserError(f"{study.at(*cell.place)}: {other} and {cell.model_name} are both called {label!r}")
        if cell.name in names:
            raise UserError(f"{study.at(*cell.place)}: two cells are called {cell.name}")
        if (size := len(cell.name.encode())) > LONGEST_NAME:
            raise UserError(
                f"{study.at(*cell.place)}: the name {cell.name[:60]}... has {size} bytes, and a folder has at most "
                f"{LONGEST_NAME}: give fewer axes, or shorter values"
            )
        names[cell.name] = cell
    if not found:
        raise UserError(f"{study.file}: every cell is excluded")
    return found


def _grid(study: Study) -> Iterator[Cell]:
    of_added_alone = study.added and "encoding" not in {**study.base, **study.axes} and {*study.axes} <= {*_CHOSEN}
    if not study.axes or of_added_alone:
        return
    excluded = [(number, one) for number, many in enumerate(study.exclude) for one in _combinations(many)]
    used = [0] * len(excluded)
    for values in itertools.product(*study.axes.values()):
        varied = dict(zip(study.axes, values, strict=True))
        settings = {**study.base, **varied}
        hits = [at for at, (_, one) in enumerate(excluded) if matches(settings, one)]
        for at in hits:
            used[at] += 1
        if not hits:
            yield Cell(*_names(study, settings, varied, ("axes",)), settings, ("axes",))
    for (number, one), count in zip(excluded, used, strict=True):
        if not count:
            said = " and ".join(f"{name} = {value!r}" for name, value in one.items())
            raise UserError(f"{study.at('exclude', number)}: no cell has {said}, so nothing is excluded")


def _added(study: Study) -> Iterator[Cell]:
    for number, one in enumerate(study.added):
        for mine in _combinations(_varied(study, one)):
            settings = {**study.base, **mine}
            place = ("cell", number)
            yield Cell(*_names(study, settings, mine, place), settings, place)


def _varied(study: Study, added: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of added models: the values, or the value, of each."""
    varied = {name: list(values if name in _CHOSEN else values[:1]) for name, values in study.axes.items()}
    return varied | {name: value if isinstance(value, list) else [value] for name, value in added.items()}


def _combinations(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of one value of each setting, which has one or a list of them."""
    several = [value if isinstance(value, list) else [value] for value in settings.values()]
    return (dict(zip(settings, values, strict=True)) for values in itertools.product(*several))


def _continued(study: Study, tuning: FineTuning, number: int, cells: list[Cell]) -> list[Cell]:
    of = [cell for cell in cells if cell.continues is None and matches(cell.settings, tuning.of)]
    if not of:
        raise UserError(f"{study.at('fine_tune', number)}: no cell has the settings that it continues")
    place = ("fine_tune", number)
    return [
        Cell(
            f"{cell.name}+{_slug(tuning.name)}", f"{cell.model_name}+{_slug(tuning.name)}",
            {**cell.settings, **tuning.settings}, place, cell.name, tuning.extend,
        )
        for cell in of
    ]  # fmt: skip


def matches(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a cell has these settings, or one of the values of each that has a list."""
    return any(one.items() <= settings.items() for one in _combinations(wanted))


def _names(
    study: Study, settings: Mapping[str, Any], varied: Mapping[str, Any], place: tuple[str | int, ...]
) -> tuple[str, str]:
    """`expe-size16-L128-lr0.003-s0`: the encoding, the settings that the axes or the cell itself set, and the seed.

    Also returns the name of its model, `expe-size16-L128`.
    """
    if "encoding" not in settings:
        raise UserError(f"{study.at(*place)}: name an encoding: encoding = 'rope'")
    parts = {"encoding": encoding_slug(str(settings["encoding"]))}
    parts |= {
        name: f"{_LABELS.get(name, name)}{_slug(str(value).rstrip('/').rpartition('/')[2])}"
        for name, value in varied.items()
        if name not in ("encoding", "label", "seed")
    }
    model_name = "-".join(part for name, part in parts.items() if name not in _CHOSEN)
    return "-".join([*parts.values(), f"s{settings.get('seed', 0)}"]), model_name


def encoding_slug(encoding: str) -> str:
    """An encoding as part of a folder's name: `expe-size-16`, `my_file-MyEncoding`."""
    return _slug(encoding.rpartition("/")[2].replace(".py:", "-"))


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-")
