"""Where in a TOML file a setting stands: the library that reads TOML does not tell."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Place = tuple[str | int, ...]

_TOKEN = re.compile(
    r'"""(?:\\.|.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\''  # strings
    r"|#[^\n]*|\n|[\[\]{}=,.]|[^\s\[\]{}=,.#\"']+",
    re.DOTALL,
)


def places(text: str) -> dict[Place, int]:
    """The line, from 1, of every section and setting of a valid file, and of what an array holds.

    `("axes", "lr")`, `("axes", "lr", 2)`, `("exclude", 0, "encoding")`: the numbers count the tables of one name, or
    the values of an array, from 0. What stands within an inline table has its line.
    """
    found: dict[Place, int] = {}
    section: Place = ()
    counts: dict[str, int] = {}
    tokens = _Tokens(text)
    while (first := tokens.next_of_line()) is not None:
        if first.text != "[":
            names = [first, *tokens.until("=")]
            place = (*section, *_parts(names))
            _note(found, place, first.line)
            for index, line in tokens.values():
                found.setdefault((*place, index), line)
            continue
        names = list(tokens.until("\n"))
        parts = _parts(names)
        if names[0].text == "[":
            counts[parts[0]] = counts.get(parts[0], -1) + 1
        number = [counts[parts[0]]] if parts[0] in counts else []
        section = (parts[0], *number, *parts[1:])
        _note(found, section, first.line)
    return found


def _note(found: dict[Place, int], place: Place, line: int) -> None:
    """The line of a place, and of what it is in where that has none of its own."""
    for end in range(1, len(place) + 1):
        found.setdefault(place[:end], line)


@dataclass(frozen=True)
class _Token:
    text: str
    line: int


def _parts(names: list[_Token]) -> list[str]:
    """What a dotted key or a header names: without dots, brackets and quotes."""
    return [token.text.strip("\"'") for token in names if token.text not in ("[", "]", ".")]


class _Tokens:
    """The tokens of a file from where it is read, without comments."""

    def __init__(self, text: str) -> None:
        self._tokens = self._scan(text)

    @staticmethod
    def _scan(text: str) -> Iterator[_Token]:
        line = 1
        for match in _TOKEN.finditer(text):
            if not match[0].startswith("#"):
                yield _Token(match[0], line)
            line += match[0].count("\n")

    def next_of_line(self) -> _Token | None:
        """The first one of the next line that is not empty; None at the end."""
        return next((token for token in self._tokens if token.text != "\n"), None)

    def until(self, end: str) -> Iterator[_Token]:
        """Those before the next one like this."""
        for token in self._tokens:
            if token.text == end:
                return
            yield token

    def values(self) -> Iterator[tuple[int, int]]:
        """Reads a value to its end: of each value of an array, its index and its line."""
        depth, index, array, fresh = 0, 0, False, False
        for token in self._tokens:
            if token.text == "\n":
                if depth == 0:
                    return
                continue
            if fresh and token.text not in ("]", ","):
                yield index, token.line
                fresh = False
            if token.text in ("[", "{"):
                depth += 1
                if depth == 1:
                    array = fresh = token.text == "["
            elif token.text in ("]", "}"):
                depth -= 1
            elif token.text == "," and depth == 1 and array:
                index, fresh = index + 1, True


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
