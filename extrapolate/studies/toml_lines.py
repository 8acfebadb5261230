"""The lines of a study's file in which settings stand: the library that reads TOML does not give them."""

import re
from collections.abc import Mapping
from typing import Any

Place = tuple[str | int, ...]
_LINE = re.compile(r"\s*(\[{1,2})?([\w\s.\"'-]+)(?(1)\]|=)")  # of a section or a setting


def places(text: str) -> dict[Place, int]:
    """The line, from 1, of every section and setting that begins one.

    `("axes", "lr")`, `("exclude", 0, "encoding")`: the numbers count the tables of one name, from 0.
    """
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
    """`study.toml, line 7`, to begin a message with: the line of a place, or of what it is in if it has none."""
    known = (lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines)
    line = next(known, None)
    return str(file) if line is None else f"{file}, line {line}"
