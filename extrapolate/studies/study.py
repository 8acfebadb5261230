"""Reads a study's file: the settings of all its cells, the axes of its grid, and what to evaluate."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from extrapolate.data.build import StoreSettings
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import is_papers
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.model.config import ModelConfig
from extrapolate.reports.published import published
from extrapolate.runs.config import read_config_file
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs import did_you_mean
from extrapolate.specs.settings import flagged_fields

MODEL = frozenset(ModelConfig.model_fields) - {"vocab_size"}
TRAINING = frozenset(TrainingConfig.model_fields)
# The settings of a cell: the encoding, a preset, the token store, and all settings of a model and its training.
SETTINGS = frozenset({"encoding", "preset", "data", "keep_every", "half"}) | MODEL | TRAINING
SECTIONS = ("base", "axes", "exclude", "cell", "fine_tune", "store", "evaluate", "question", "scale")
SCALED = ("base", "axes", "evaluate")  # what a scale can change
TABLES = ("exclude", "cell", "fine_tune", "store", "question")  # there may be several of each
MOST_CELLS = 10_000
Place = tuple[str | int, ...]  # of a setting: ("axes", "lr"), ("exclude", 0, "encoding")
SomeCells = tuple[str, Mapping[str, Any]]  # an extension, and settings of the cells that it is for
_LINE = re.compile(r"\s*(\[{1,2})?([\w\s.\"'-]+)(?(1)\]|=)")  # of a section or a setting
# What a value must be, in words, and a check of that.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: type(value) is int),
    "float": ("a finite number", lambda value: type(value) in (int, float) and math.isfinite(value)),
    "count": ("a whole number above 0", lambda value: type(value) is int and value > 0),
    "text": ("text", lambda value: isinstance(value, str) and value != "" and "\0" not in value),
}


def _kind_of(name: str) -> str:
    if name == "keep_every":
        return "count"
    if name == "half":
        return "bool"
    fields = {**ModelConfig.model_fields, **TrainingConfig.model_fields}
    kind = fields[name].annotation if name in fields else str
    return kind.__name__ if kind in (bool, int, float) else "text"


@dataclass(frozen=True)
class FineTuning:
    """Trainings that continue all cells whose settings match `of`, and have its name at the end of theirs."""

    name: str
    of: Mapping[str, Any]
    extend: str | None
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A question that the report begins with: is model `a` better than model `b` at a factor?"""

    a: str
    b: str
    at: float


@dataclass(frozen=True)
class Study:
    """A study's file.

    base: settings of all cells. axes: the values of each setting; every combination is a cell. exclude: settings of
    cells that are left out, each a value or a list of them. added: those of models outside the grid, every combination
    of their values with all seeds and learning rates of the axes that they do not set. stores: token stores by path,
    made if missing. published: the published tables that it repeats. extensions: those of the evaluation, each with the
    settings of the cells that it is for. questions: what its report begins with. lines: the lines of everything, for
    messages. of_others: the encodings are not the file's, so its extensions may apply to none of them.
    """

    file: Path
    text: str
    base: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    exclude: tuple[Mapping[str, Any], ...]
    added: tuple[Mapping[str, Any], ...]
    fine_tunings: tuple[FineTuning, ...]
    stores: Mapping[str, StoreSettings]
    evaluation: EvaluationSettings
    extensions: tuple[SomeCells, ...]
    lines: Mapping[Place, int]
    published: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    of_others: bool = False

    def at(self, *place: str | int) -> str:
        """The file and line of a setting, to begin a message with."""
        return at(self.file, self.lines, place)


def read_study(file: Path, scale: str | None = None, encodings: Sequence[str] = ()) -> Study:
    """Reads a study's file. scale: apply its section [scale.NAME]. encodings: use these instead of the file's.

    Raises UserError if the file is missing, is not TOML, is no valid study, or has no such scale.
    """
    raw, text = read_config_file(file), file.read_text(encoding="utf-8-sig")
    raw = _scaled(raw, file, places(text), scale)
    study = _Reader(file, text, scale).study(raw)
    return _of_others(study, encodings) if encodings else study


def _of_others(study: Study, encodings: Sequence[str]) -> Study:
    """The study with other encodings in its grid, without what it says about its own models."""
    base = {name: value for name, value in study.base.items() if name != "encoding"}
    return replace(
        study, base=base, axes={**study.axes, "encoding": tuple(dict.fromkeys(encodings))},
        exclude=(), added=(), fine_tunings=(), published=(), questions=(),
        extensions=tuple((text, of) for text, of in study.extensions if not of),
        lines={place: line for place, line in study.lines.items() if "encoding" not in place}, of_others=True,
    )  # fmt: skip


def places(text: str) -> dict[Place, int]:
    """The number of the line, from 1, on which each section and setting begins: the TOML library does not give them."""
    found: dict[Place, int] = {}
    section: Place = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.match(line)) is None:
            continue
        brackets, name = match.groups()
        first, *others = (part.strip(" \t\"'") for part in name.split("."))
        place = (*section, first, *others)
        if brackets is not None:
            if brackets == "[[":
                counts[first] = counts.get(first, -1) + 1
            place = section = (first, *([counts[first]] if first in counts else []), *others)
        for end in range(1, len(place) + 1):
            found.setdefault(place[:end], number)
    return found


def at(file: Any, lines: Mapping[Place, int], place: Place) -> str:
    """`study.toml, line 7`, to begin a message with: the line of a place, or of the nearest place around it."""
    known = (lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines)
    line = next(known, None)
    return str(file) if line is None else f"{file}, line {line}"


def _scaled(raw: dict[str, Any], file: Path, lines: Mapping[Place, int], scale: str | None) -> dict[str, Any]:
    """The sections, with the changes of a scale."""
    scales = raw.pop("scale", {})
    if not isinstance(scales, dict) or not all(isinstance(one, dict) for one in scales.values()):
        raise UserError(f"{at(file, lines, ('scale',))}: a scale is a section with a name: [scale.tiny.base]")
    if scale is None:
        return raw
    if scale not in scales:
        raise UserError(f"{file} has no scale '{scale}'; {did_you_mean(scale, scales)}")
    for name, changed in scales[scale].items():
        if name not in SCALED or not isinstance(changed, dict):
            where = at(file, lines, ("scale", scale, name))
            raise UserError(f"{where}: [scale.{scale}] has sections {', '.join(SCALED)}, not {name}")
        if not isinstance(raw.get(name, {}), dict):
            raise UserError(f"{at(file, lines, (name,))}: '{name}' is a section: write [{name}] on a line of its own")
        raw[name] = {**raw.get(name, {}), **changed}
    return raw


class _Reader:
    def __init__(self, file: Path, text: str, scale: str | None) -> None:
        lines = places(text)
        scaled = {place[2:]: line for place, line in lines.items() if place[:2] == ("scale", scale) and place[2:]}
        self.file, self.text, self.lines = file, text, lines | scaled

    def study(self, raw: Mapping[str, Any]) -> Study:
        for name in raw:
            self.check_known(name, (*SECTIONS, "published"), (name,), "section")
        base = self.section(raw, "base")
        self.check_settings(base, ("base",))
        evaluation, extensions = self.evaluation(raw)
        study = Study(
            self.file, self.text, base, self.axes(self.section(raw, "axes"), base),
            exclude=tuple(self.settings(raw, "exclude")), added=tuple(self.settings(raw, "cell")),
            fine_tunings=self.fine_tunings(raw), stores=self.stores(raw),
            evaluation=evaluation, extensions=extensions, lines=self.lines,
            published=self.published(raw.get("published", []), evaluation.protocols),
            questions=tuple(self.questions(raw, evaluation.factors)),
        )  # fmt: skip
        if not study.axes and not study.added:
            raise UserError(f"{self.file} has no cells: list values under [axes], such as encoding = ['rope', 'alibi']")
        return study

    def published(self, given: Any, evaluated: Sequence[str]) -> tuple[str, ...]:
        names = given if isinstance(given, list) else [given]
        for name in map(str, names):
            self.check_known(name, published(), ("published",), "published table")
        if names and not any(is_papers(protocol) for protocol in evaluated):
            raise self.wrong(
                ("evaluate", "protocols"),
                f"the published table {names[0]} is of the protocol windows, and without it there are no numbers to "
                "put beside those of the table: add 'windows' to protocols",
            )
        return tuple(dict.fromkeys(names))

    def wrong(self, place: Place, message: str) -> UserError:
        return UserError(f"{at(self.file, self.lines, place)}: {message}")

    def check_known(self, name: str, known: Collection[str], place: Place, kind: str = "setting") -> None:
        if name not in known:
            raise self.wrong(place, f"unknown {kind} '{name}'; {did_you_mean(name, known)}")

    def section(self, raw: Mapping[str, Any], name: str) -> dict[str, Any]:
        found = raw.get(name, {})
        if not isinstance(found, dict):
            raise self.wrong((name,), f"'{name}' is a section: write [{name}] on a line of its own")
        return found

    def tables(self, raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        found = raw.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self.wrong((name,), f"there may be several of '{name}': write [[{name}]] before each")
        return found

    def check_settings(self, given: Mapping[str, Any], place: Place, several: bool = False) -> None:
        known = SETTINGS | ({"label"} if several else set())
        for name, value in given.items():
            self.check_known(name, known, (*place, name))
            values = value if several and isinstance(value, list) and value else [value]
            if any(isinstance(one, list | dict) for one in values):
                axis = " (several values make an axis: list them under [axes])" if isinstance(value, list) else ""
                raise self.wrong((*place, name), f"{name} is one value here, not {value!r}{axis * (not several)}")
            for one in values:
                self.check_value(name, one, (*place, name))

    def check_value(self, name: str, value: Any, place: Place) -> None:
        kind, fits = _KINDS[_kind_of(name)]
        if not fits(value):
            raise self.wrong(place, f"{name} is {kind}, not {value!r}")

    def axes(self, axes: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        for name, values in axes.items():
            place = ("axes", name)
            self.check_known(name, SETTINGS, place)
            if not isinstance(values, list) or not values or any(isinstance(value, list | dict) for value in values):
                raise self.wrong(place, f"an axis lists its values: {name} = [1, 2], not {values!r}")
            for number, value in enumerate(values):
                self.check_value(name, value, (*place, number))
                if value in values[:number]:
                    raise self.wrong((*place, number), f"{name} lists {value!r} twice")
            if name in base:
                raise self.wrong(place, f"{name} is an axis and also in [base]: remove it from one")
        return {name: tuple(values) for name, values in axes.items()}

    def settings(self, raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        found = self.tables(raw, name)
        for number, one in enumerate(found):
            if not one:
                raise self.wrong((name, number), f"[[{name}]] names no setting")
            if not isinstance(one.get("label", ""), str):
                raise self.wrong((name, number, "label"), "label is one name: give each model a [[cell]] of its own")
            self.check_settings(one, (name, number), several=True)
        return found

    def fine_tunings(self, raw: Mapping[str, Any]) -> tuple[FineTuning, ...]:
        found: list[FineTuning] = []
        for number, one in enumerate(self.tables(raw, "fine_tune")):
            place = ("fine_tune", number)
            name, of, extend = one.get("name"), one.get("of", {}), one.get("extend")
            settings = {key: value for key, value in one.items() if key not in ("name", "of", "extend")}
            if not isinstance(name, str) or not re.search(r"\w", name):
                raise self.wrong(place, "give it a name, which ends the names of its runs: name = 'pi'")
            if any(name == other.name for other in found):
                raise self.wrong((*place, "name"), f"two fine-tunings are called {name!r}")
            if not isinstance(of, dict) or not isinstance(extend, str | None):
                raise self.wrong(place, "of is {setting = value}, and extend is text")
            self.check_settings(of, (*place, "of"), several=True)
            self.check_settings(settings, place)
            if frozen := sorted(set(settings) & (MODEL | {"preset", "data"})):
                raise self.wrong((*place, frozen[0]), f"{frozen[0]} is that of the run that is continued")
            found.append(FineTuning(name, of, extend, settings))
        return tuple(found)

    def stores(self, raw: Mapping[str, Any]) -> dict[str, StoreSettings]:
        found: dict[str, StoreSettings] = {}
        known = StoreSettings.__dataclass_fields__
        for number, one in enumerate(self.tables(raw, "store")):
            place = ("store", number)
            settings = dict(one)
            path = settings.pop("path", None)
            if not isinstance(path, str) or "source" not in settings:
                raise self.wrong(place, "a store has a path and a source: path = 'data/books', source = 'books/'")
            self.check_value("data", path, (*place, "path"))
            for name, value in settings.items():
                self.check_known(name, known, (*place, name))
                wanted = bool if name == "dedup" else int if "tokens" in name or name == "vocab_size" else str
                if type(value) is not wanted:
                    kind = {bool: "true or false", int: "a number", str: "text"}[wanted]
                    raise self.wrong((*place, name), f"{name} is {kind}, not {value!r}")
            found[path] = StoreSettings(**settings)
        return found

    def questions(self, raw: Mapping[str, Any], factors: Sequence[float]) -> Iterator[Question]:
        for number, one in enumerate(self.tables(raw, "question")):
            place = ("question", number)
            for name in one:
                self.check_known(name, ("a", "b", "at"), (*place, name))
            if not all(isinstance(one.get(side), str) for side in "ab") or type(one.get("at")) not in (int, float):
                raise self.wrong(place, "a question has two models and a factor: a = 'alibi', b = 'rope + pi', at = 8")
            if one["at"] not in factors:
                evaluated = ", ".join(f"{factor:g}" for factor in factors)
                raise self.wrong((*place, "at"), f"at = {one['at']} is not evaluated; factors are {evaluated}")
            yield Question(one["a"], one["b"], float(one["at"]))

    def evaluation(self, raw: Mapping[str, Any]) -> tuple[EvaluationSettings, tuple[SomeCells, ...]]:
        given = self.section(raw, "evaluate")
        known = {one.name: one for one in flagged_fields(EvaluationSettings)}
        extensions = tuple(self.extensions(given.get("extend", [])))
        given |= {"extend": [text for text, _ in extensions]}
        for name, value in given.items():
            self.check_known(name, known, ("evaluate", name))
            with self.about("evaluate", name):
                known[name].checked(value)
        with self.about("evaluate", "protocols" if "protocols" in given else "stride"):
            return EvaluationSettings.of(given), extensions

    def extensions(self, given: Any) -> Iterator[SomeCells]:
        for number, one in enumerate(given if isinstance(given, list) else [given]):
            match one:
                case str():
                    yield one, {}
                case {"extend": str(text), "of": dict(of), **others} if not others:
                    yield text, of
                case _:
                    raise self.wrong(
                        ("evaluate", "extend", number),
                        f"extend lists text, or {{extend = 'pi', of = {{encoding = 'rope'}}}}, not {one!r}",
                    )

    @contextmanager
    def about(self, *place: str) -> Iterator[None]:
        """A context in which errors say where in the file their setting is."""
        try:
            yield
        except UserError as error:
            raise self.wrong(place, str(error).replace("`", "")) from None
