"""What a report's page is made of: blocks, which show themselves in Markdown and in HTML."""

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup, escape

from extrapolate.reports import escaping, tables
from extrapolate.reports.escaping import one_line

_WORD = r"([\w.=-]+)"  # a parameter or a file: nothing in it is markup
_INTERVAL = re.compile(r"([-+]?[\d.]+) (\[[^\[\]]*\])(.*)")
MARKS = {"undecided": "?"}  # behind a number that may be the best
_FEW_ROWS = 15  # of a table: with more, its rows can be filtered by name


class Block(ABC):
    """A piece of the page that stands for itself."""

    @abstractmethod
    def markdown(self) -> str:
        """The block in Markdown, without the empty lines around it. No text in it is read as Markdown or HTML."""

    @abstractmethod
    def html(self) -> Markup:
        """The block in HTML. No text in it is read as HTML."""


@dataclass(frozen=True)
class Heading(Block):
    """A title; level 1 is a chapter's, 2 a section's."""

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
        """What an address within the page calls it."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.text.lower()).split()) or "part"


@dataclass(frozen=True)
class Text(Block):
    """A paragraph. strong: what must not be overlooked. code: words in backticks are code, in Markdown and in HTML."""

    text: str
    strong: bool = False
    code: bool = False

    def markdown(self) -> str:
        text = escaping.markdown(self.text)
        if self.code:
            text = re.sub(rf"\\`{_WORD}\\`", r"`\1`", text)
        return f"**{text}**" if self.strong else text

    def html(self) -> Markup:
        text = str(escape(one_line(self.text)))
        if self.code:
            text = re.sub(f"`{_WORD}`", r"<code>\1</code>", text)
        return Markup("<p><strong>{}</strong></p>" if self.strong else "<p>{}</p>").format(Markup(text))


@dataclass(frozen=True)
class Cell:
    """A table's cell. value: what rows are sorted by; the text if it is None. note: what the reader can ask for.

    kind: a key of MARKS, `best` or `good`. harm: how red it is, 0 to 1. colour: of the glyph before it.
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
        if found := _INTERVAL.fullmatch(one_line(self.text)):  # the interval stands below its number
            number, interval, rest = found.groups()
            text = Markup('{}{}<span class="interval">{}</span>').format(number, rest, interval)
        return Markup("<td{}{}>{}{}{}</td>").format(value, kind, text, mark, note)

    def head(self) -> Markup:
        """The cell as the name of a row."""
        glyph = Markup('<i style="color: {}">{}</i>').format(self.colour, self.glyph) if self.glyph else ""
        return Markup('<th scope="row">{}{}</th>').format(glyph, one_line(self.text))


@dataclass(frozen=True)
class Quotable(Text):
    """A paragraph that `extrapolate report` prints on the terminal too, before all tables."""

    def html(self) -> Markup:
        return Markup('<div class="answer">{}</div>').format(super().html())


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


@dataclass(frozen=True)
class Table(Block):
    """A table. With a title, `extrapolate report` prints it on the terminal too."""

    frame: pd.DataFrame
    title: str = ""

    def markdown(self) -> str:
        """Losses to three decimals, training time to two, n/a if there is no number."""
        text = tables.formatted(self.frame)
        rows = [list(text.columns), *text.to_numpy().tolist()]
        return _table([[escaping.markdown(cell) for cell in row] for row in rows])

    def html(self) -> Markup:
        text = tables.formatted(self.frame)
        rows = [
            [Cell(shown, _number(value)) for shown, value in zip(shown_row, row, strict=True)]
            for shown_row, row in zip(text.to_numpy().tolist(), self.frame.to_numpy().tolist(), strict=True)
        ]
        return Grid(list(text.columns), rows, self.title).html()


@dataclass(frozen=True)
class Grid(Block):
    """A table whose cells have marks, and in the HTML page notes; each row begins with its name."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""

    def markdown(self) -> str:
        names = [escaping.markdown(name) for name in self.columns]
        return _table([names, *([cell.markdown() for cell in row] for row in self.rows)])

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
    """A picture of the HTML page alone, in it as a whole: what it shows, and the SVG."""

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
    """A command, as it is typed."""

    text: str

    def markdown(self) -> str:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))
        return f"{fence}\n{self.text}\n{fence}"

    def html(self) -> Markup:
        return Markup("<pre><code>{}</code></pre>").format(self.text)


@dataclass(frozen=True)
class Switch(Block):
    """Several views of one thing, each with its name: the HTML page shows one at a time, Markdown has the first shown.

    name: no other switch of the page has it. chosen: the number of the view that is shown first.
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
    """Two columns of blocks, one below the other on a phone and in Markdown."""

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
    """Words that the HTML page shows when the reader asks for them."""

    blocks: Sequence[Block]
    summary: str = "How is this measured?"

    def markdown(self) -> str:
        return _markdown(self.blocks)

    def html(self) -> Markup:
        return Markup("<details><summary>{}</summary>{}</details>").format(self.summary, _html(self.blocks))


@dataclass(frozen=True)
class OnlyMarkdown(Block):
    """A block that the HTML page has in another place."""

    block: Block

    def markdown(self) -> str:
        return self.block.markdown()

    def html(self) -> Markup:
        return Markup()


def within(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, and all that are in them."""
    for block in blocks:
        yield block
        if isinstance(block, Beside):
            yield from within([*block.left, *block.right])
        if isinstance(block, Details):
            yield from within(block.blocks)
        if isinstance(block, Switch):
            for view in block.views.values():
                yield from within(view)


def markdown(blocks: Iterable[Block]) -> str:
    """The page in Markdown."""
    return _markdown(blocks) + "\n"


def _markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(text for block in blocks if (text := block.markdown()))


def _html(blocks: Iterable[Block]) -> Markup:
    return Markup("\n").join(block.html() for block in blocks)


def _number(value: object) -> float | None:
    """What a cell is sorted by; None if it is no number."""
    return float(value) if isinstance(value, int | float) and value == value else None
