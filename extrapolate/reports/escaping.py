"""Escapes names and sentences, so that pages and pictures show them as plain text.

Tables can come from strangers, with any text as the name of a model, a run or a protocol, or as a caption.
"""

import re

LONGEST = 60  # characters of a name in a picture

# The markup of CommonMark and of GitHub's extensions. Underscores within words and brackets around numbers, as in
# intervals, are not markup.
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
    """The text in one line: white space becomes spaces, and unprintable characters are dropped."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text).strip()


def markdown(text: str) -> str:
    """The text escaped for Markdown. Ordinary names stay as they are: `RoPE`, `expe:size=16`."""
    return _MARKDOWN.sub(_shown, one_line(text))


def _shown(found: re.Match[str]) -> str:
    if found["numbers"]:
        return found[0]
    return "".join(_ENTITIES.get(character, f"\\{character}") for character in found[0])


def in_order(name: str) -> list[tuple[str, int]]:
    """A sort key that puts `2 layers` before `12 layers`."""
    return [(words, int(digits or 0)) for words, digits in _DIGITS.findall(name)]


def short(name: str) -> str:
    """The name in one line, cut after LONGEST characters."""
    name = one_line(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def label(name: str) -> str:
    """As `short`, for matplotlib: the name is not read as a formula, nor left out of the legend."""
    name = short(name)
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")
