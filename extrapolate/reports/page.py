"""What a report's page is made of, and the page in Markdown."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from extrapolate.reports import names, tables


class Block(ABC):
    """A piece of the page that stands for itself."""

    @abstractmethod
    def markdown(self) -> str:
        """The block in Markdown, without the empty lines around it. No text in it is read as Markdown or HTML."""


@dataclass(frozen=True)
class Heading(Block):
    """A title; level 1 is a chapter's, 2 a section's."""

    level: int
    text: str

    def markdown(self) -> str:
        return f"{'#' * self.level} {names.markdown(self.text)}"


@dataclass(frozen=True)
class Text(Block):
    """A paragraph. `strong`: what must not be overlooked."""

    text: str
    strong: bool = False

    def markdown(self) -> str:
        text = names.markdown(self.text)
        return f"**{text}**" if self.strong else text


@dataclass(frozen=True)
class Quotable(Text):
    """A paragraph that `extrapolate report` prints on the terminal too, before all tables."""


@dataclass(frozen=True)
class Table(Block):
    """A table. With a title, `extrapolate report` prints it on the terminal too."""

    frame: pd.DataFrame
    title: str = ""

    def markdown(self) -> str:
        """Losses to three decimals, training time to two, n/a where there is no number."""
        text = tables.formatted(self.frame)
        header, *rows = (
            "| " + " | ".join(names.markdown(cell) for cell in row) + " |"
            for row in [list(text.columns), *text.to_numpy().tolist()]
        )
        return "\n".join([header, "|" + "---|" * len(text.columns), *rows])


@dataclass(frozen=True)
class Picture(Block):
    """A picture: what it shows, and the name of its file beside the page."""

    text: str
    file: str

    def markdown(self) -> str:
        return f"![{names.markdown(self.text)}]({self.file})"


def markdown(blocks: Iterable[Block]) -> str:
    """The page in Markdown."""
    return "\n\n".join(block.markdown() for block in blocks) + "\n"
