"""Names and sentences as text: a page or a picture shows them, and reads nothing in them.

A table can come from a stranger, and a model, a run, a protocol or a caption can be called anything in it.
"""

import re

LONGEST = 60  # characters of a name in a picture

# What CommonMark, and what GitHub adds to it, would read. An underscore within a word is none of it, nor are brackets
# around numbers, as intervals have them.
_MARKDOWN = re.compile(
    r"""
    (?P<numbers> \[ [-+\d., ]+ \] (?! [(\[:] ) )
    | [\\`*|~$\[\]<>&]
    | (?<!\w)_++ | _++(?!\w)
    | (?<!\S)\#(?=\#*(\s|$))  # a heading, or the end of one
    | ^[-+=](?=\s|[-=]|$)      # a list, a rule, the line under a heading
    | (?<=^\d)[.)](?=\s|$) | (?<=^\d\d)[.)](?=\s|$)
    | (?<=:)/(?=/) | (?<=\bwww)\.  # an address becomes a link
    """,
    re.VERBOSE,
)
_DIGITS = re.compile(r"(\D*)(\d{0,15})")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def one_line(text: str) -> str:
    """The text in one line: white space is spaces, and what cannot be printed is left out."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).strip()


def markdown(text: str) -> str:
    """The text for a page, in which it is no markup. Ordinary names stay as they are: `RoPE`, `expe:size=16`."""
    return _MARKDOWN.sub(_shown, one_line(text))


def _shown(found: re.Match[str]) -> str:
    if found["numbers"]:
        return found[0]
    return "".join(_ENTITIES.get(character, f"\\{character}") for character in found[0])


def in_order(name: str) -> list[tuple[str, int]]:
    """What sorts names as people do: `2 layers` before `12 layers`."""
    return [(words, int(digits or 0)) for words, digits in _DIGITS.findall(name)]


def short(name: str) -> str:
    """The name in a chart: in one line, and not too long."""
    name = one_line(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def label(name: str) -> str:
    """The same for matplotlib: it is no formula, and it has its place in the legend."""
    name = short(name)
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")
