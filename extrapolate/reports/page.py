"""The page of a report: blocks that render themselves as Markdown and as HTML.

The HTML page needs no other file: it opens offline, and asks no host for anything.
"""

import base64
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from extrapolate.reports import escaping, tables
from extrapolate.reports.escaping import one_line

_CODE = r"([\w.=-](?:[\w.=,{} -]*[\w.=}-])?)"  # a setting or a file: nothing in it is markup
_INTERVAL = re.compile(r"([-+]?[\d.]+) (\[[^\[\]]*\])(.*)")
MARKS = {"undecided": "?"}  # after a number that may be the best
_FEW_ROWS = 15  # a longer table has a filter for its rows


class Block(ABC):
    """One piece of the page."""

    @abstractmethod
    def markdown(self) -> str:
        """The block in Markdown, without blank lines around it. Its texts are escaped."""

    @abstractmethod
    def html(self) -> Markup:
        """The block in HTML. Its texts are escaped."""


@dataclass(frozen=True)
class Heading(Block):
    """A title, of level 1 for a chapter and 2 for a section."""

    level: int
    text: str

    def markdown(self) -> str:
        return f"{'#' * self.level} {escaping.markdown(self.text)}"

    def html(self) -> Markup:
        if self.level == 1:  # the page's title is the first heading; chapters have different names
            return Markup('<h2 id="{}">{}</h2>').format(self.anchor, one_line(self.text))
        return Markup("<h3>{}</h3>").format(one_line(self.text))

    @property
    def anchor(self) -> str:
        """The fragment that links within the page use."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.text.lower()).split()) or "part"


@dataclass(frozen=True)
class Text(Block):
    """A paragraph. strong: set in bold. code: words in backticks are code."""

    text: str
    strong: bool = False
    code: bool = False

    def markdown(self) -> str:
        text = escaping.markdown(self.text)
        if self.code:
            text = re.sub(rf"\\`{_CODE}\\`", r"`\1`", text)
        return f"**{text}**" if self.strong else text

    def html(self) -> Markup:
        text = str(escape(one_line(self.text)))
        if self.code:
            text = re.sub(f"`{_CODE}`", r"<code>\1</code>", text)
        return Markup("<p><strong>{}</strong></p>" if self.strong else "<p>{}</p>").format(Markup(text))


@dataclass(frozen=True)
class Cell:
    """A table's cell. value: the sort key; if None, the text is. note: text shown on request.

    kind: a key of MARKS, `best` or `good`. harm: how red it is, from 0 to 1. colour: that of the glyph before the text.
    """

    text: str
    value: float | None = None
    note: str = ""
    kind: str = ""
    harm: float = 0.0
    colour: str = ""
    glyph: str = ""

    def markdown(self) -> str:
        """The cell with its mark."""
        text = escaping.markdown(f"{self.text} {MARKS[self.kind]}" if self.kind in MARKS else self.text)
        return f"**{text}**" if self.kind == "best" else text

    def html(self) -> Markup:
        """The cell as an element of a row."""
        value = Markup() if self.value is None else Markup(' data-value="{}"').format(f"{self.value:.9g}")
        if self.harm:
            value += Markup(' style="--harm: {}"').format(f"{self.harm:.2f}")
        kind = Markup(' class="{}"').format(self.kind) if self.kind else ""
        mark = Markup(' <span class="mark">{}</span>').format(MARKS[self.kind]) if self.kind in MARKS else ""
        note = Markup('<span class="note">{}</span>').format(self.note) if self.note else ""
        text = escape(one_line(self.text))
        if found := _INTERVAL.fullmatch(one_line(self.text)):  # the interval goes below its number
            number, interval, rest = found.groups()
            text = Markup('{}{}<span class="interval">{}</span>').format(number, rest, interval)
        return Markup("<td{}{}>{}{}{}</td>").format(value, kind, text, mark, note)

    def head(self) -> Markup:
        """The cell as the header of a row."""
        glyph = Markup('<i style="color: {}">{}</i>').format(self.colour, self.glyph) if self.glyph else ""
        return Markup('<th scope="row">{}{}</th>').format(glyph, one_line(self.text))


@dataclass(frozen=True)
class Quotable(Text):
    """A paragraph that `extrapolate report` also prints on the terminal, before all tables."""

    def html(self) -> Markup:
        return Markup('<div class="answer">{}</div>').format(super().html())


@dataclass(frozen=True)
class Table(Block):
    """A table formatted by `tables.formatted`. If it has a title, `extrapolate report` also prints it."""

    frame: pd.DataFrame
    title: str = ""

    def markdown(self) -> str:
        return self._grid().markdown()

    def html(self) -> Markup:
        return self._grid().html()

    def _grid(self) -> "Grid":
        shown = tables.formatted(self.frame)
        rows = [
            [Cell(text, _number(value)) for text, value in zip(texts, values, strict=True)]
            for texts, values in zip(shown.to_numpy().tolist(), self.frame.to_numpy().tolist(), strict=True)
        ]
        return Grid(list(shown.columns), rows, self.title)


@dataclass(frozen=True)
class Grid(Block):
    """A table whose cells can have marks and, on the HTML page, notes; the first cell of a row is its name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""

    def markdown(self) -> str:
        names = [escaping.markdown(name) for name in self.columns]
        rows = [names, *([cell.markdown() for cell in row] for row in self.rows)]
        head, *others = (f"| {' | '.join(row)} |" for row in rows)
        return "\n".join([head, "|" + "---|" * len(names), *others])

    def html(self) -> Markup:
        head = Markup().join(
            Markup('<th scope="col"><button type="button">{}</button></th>').format(one_line(name))
            for name in self.columns
        )
        body = Markup("\n").join(
            Markup("<tr>{}{}</tr>").format(first.head(), Markup().join(cell.html() for cell in rest))
            for first, *rest in self.rows
        )
        tools = Markup()
        if any(cell.note for row in self.rows for cell in row):
            tools += Markup('<label><input type="checkbox" class="notes"> intervals and seeds</label>')
        if len(self.rows) > _FEW_ROWS:
            tools += Markup('<label>only rows with <input type="search" class="filter"></label>')
        if tools:
            tools = Markup('<div class="tools">{}</div>').format(tools)
        marked = Markup(' class="marked"') if any(cell.kind for row in self.rows for cell in row) else ""
        label = self.title or "table"
        return Markup(
            '<div class="table">{}<div class="scroll" tabindex="0" role="region" aria-label="{}">'
            "<table{}><caption>{}</caption><thead><tr>{}</tr></thead><tbody>\n{}\n</tbody></table></div></div>"
        ).format(tools, one_line(label), marked, one_line(self.title), head, body)


@dataclass(frozen=True)
class Drawing(Block):
    """A picture that only the HTML page has: its alternative text, and its SVG."""

    text: str
    svg: str

    def markdown(self) -> str:
        return ""

    def html(self) -> Markup:
        data = base64.b64encode(self.svg.encode()).decode()
        return Markup('<figure class="drawing"><img src="data:image/svg+xml;base64,{}" alt="{}"></figure>').format(
            data, self.text
        )


@dataclass(frozen=True)
class Code(Block):
    """A command."""

    text: str

    def markdown(self) -> str:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))
        return f"{fence}\n{self.text}\n{fence}"

    def html(self) -> Markup:
        return Markup("<pre><code>{}</code></pre>").format(self.text)


@dataclass(frozen=True)
class Switch(Block):
    """Named views of one thing: the HTML page shows one at a time, and Markdown has only the chosen one.

    name: unique in the page. chosen: the index of the view that is shown first.
    """

    name: str
    label: str
    views: Mapping[str, Sequence[Block]]
    chosen: int = 0

    def markdown(self) -> str:
        return _markdown(list(self.views.values())[self.chosen]) if self.views else ""

    def html(self) -> Markup:
        buttons, panels = Markup(), Markup()
        for at, (name, blocks) in enumerate(self.views.items()):
            chosen = at == self.chosen
            buttons += Markup('<label><input type="radio" name="{}" value="{}"{}><span>{}</span></label>').format(
                self.name, at, Markup(" checked") if chosen else "", one_line(name)
            )
            panels += Markup('<div class="view" data-view="{}"{}>{}</div>').format(
                at, "" if chosen else Markup(" hidden"), _html(blocks)
            )
        return Markup('<div class="switch"><fieldset><legend>{}</legend>{}</fieldset>{}</div>').format(
            self.label, buttons, panels
        )


@dataclass(frozen=True)
class Beside(Block):
    """Two columns of blocks; on a phone and in Markdown, one column below the other."""

    left: Sequence[Block]
    right: Sequence[Block]

    def markdown(self) -> str:
        return _markdown([*self.left, *self.right])

    def html(self) -> Markup:
        return Markup('<div class="beside"><div>{}</div><div>{}</div></div>').format(
            _html(self.left), _html(self.right)
        )


@dataclass(frozen=True)
class Details(Block):
    """Blocks that the HTML page folds away under a summary."""

    blocks: Sequence[Block]
    summary: str = "How is this measured?"

    def markdown(self) -> str:
        return _markdown(self.blocks)

    def html(self) -> Markup:
        return Markup("<details><summary>{}</summary>{}</details>").format(self.summary, _html(self.blocks))


@dataclass(frozen=True)
class OnlyMarkdown(Block):
    """A block that the HTML page has elsewhere."""

    block: Block

    def markdown(self) -> str:
        return self.block.markdown()

    def html(self) -> Markup:
        return Markup()


def markdown(blocks: Iterable[Block]) -> str:
    """The page in Markdown."""
    return _markdown(blocks) + "\n"


def html(blocks: Sequence[Block], title: str) -> str:
    """The page in HTML.

    Its content security policy lets the browser run only the page's own scripts, by their hashes, and load nothing: a
    name that was taken for markup would still do nothing.
    """
    shown = [block.html() for block in blocks]
    scripts = [_asset("page.js")]
    environment = Environment(
        loader=PackageLoader("extrapolate.reports", "assets"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        blocks=shown,
        chapters=[block for block in blocks if isinstance(block, Heading) and block.level == 1],
        style=Markup(_asset("page.css")),
        scripts=[Markup(script) for script in scripts],
        hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
    )


def _asset(name: str) -> str:
    return (resources.files("extrapolate.reports") / "assets" / name).read_text(encoding="utf-8")


def _markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(text for block in blocks if (text := block.markdown()))


def _html(blocks: Iterable[Block]) -> Markup:
    return Markup("\n").join(block.html() for block in blocks)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None
