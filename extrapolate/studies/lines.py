"""Where in a TOML file a setting stands: the library that reads TOML does not tell."""

import re
from collections.abc import Mapping
from typing import Any

Place = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*=""")


def places(text: str) -> dict[Place, int]:
    """The line, from 1, of every section and setting: `("axes", "lr")`, `("exclude", 0, "encoding")`.

    The numbers count the tables of one name, from 0. What stands within a value of several lines has its line.
    """
    found: dict[Place, int] = {}
    section: Place = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header[2].strip("\"'")
            section = (name,)
            if header[1] == "[[":
                section = (name, counts.get(name, 0))
                counts[name] = counts.get(name, 0) + 1
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            found.setdefault((*section, key[1].strip("\"'")), number)
    return found


def line_of(lines: Mapping[Place, int], place: Place) -> int | None:
    """The line of a setting, or of what it is in where it has none of its own."""
    for end in range(len(place), 0, -1):
        if place[:end] in lines:
            return lines[place[:end]]
    return None


def at(file: Any, lines: Mapping[Place, int], place: Place) -> str:
    """`study.toml, line 7`, to begin a message with."""
    line = line_of(lines, place)
    return str(file) if line is None else f"{file}, line {line}"
