"""What a report's page is made of, and the page in Markdown."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from extrapolate.reports import tables


class Block(ABC):
    """A piece of the page that stands for itself."""

    @abstractmethod
    def markdown(self) -> str:
        """The block in Markdown, without the empty lines around it."""


@dataclass(frozen=True)
class Heading(Block):
    """A title; level 1 is a chapter's, 2 a section's."""

    level: int
    text: str

    def markdown(self) -> str:
        return f"{'#' * self.level} {self.text}"


@dataclass(frozen=True)
class Text(Block):
    """A paragraph. `strong`: what must not be overlooked."""

    text: str
    strong: bool = False

    def markdown(self) -> str:
        return f"**{self.text}**" if self.strong else self.text


@dataclass(frozen=True)
class Table(Block):
    """A table. With a title, `extrapolate report` prints it on the terminal too."""

    frame: pd.DataFrame
    title: str = ""

    def markdown(self) -> str:
        """Losses to three decimals, training time to two, n/a where there is no number."""
        lines = ["| " + " | ".join(self.frame.columns) + " |", "|" + "---|" * len(self.frame.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in tables.formatted(self.frame).itertuples(index=False)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Picture(Block):
    """A picture: what it shows, and the name of its file beside the page."""

    text: str
    file: str

    def markdown(self) -> str:
        return f"![{self.text}]({self.file})"


def markdown(blocks: Iterable[Block]) -> str:
    """The page in Markdown."""
    return "\n\n".join(block.markdown() for block in blocks) + "\n"
