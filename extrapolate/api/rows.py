"""Which rows `xt.report`, `xt.compare` and `xt.merge` read, and from which folders."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from extrapolate.specs.arguments import several
from extrapolate.specs.settings import Flag

if TYPE_CHECKING:
    from extrapolate.runs.run import Run

Folders: TypeAlias = "str | Path | Run | Iterable[str | Path | Run]"
PANEL = "Which rows"
_rows = partial(Flag, panel=PANEL)


@dataclass(frozen=True)
class WhichRows:
    """Only such rows, if runs differ in them."""

    seq_len: Annotated[int | None, _rows("only runs of this training length")] = None
    corpus: Annotated[str | None, _rows("only rows of this corpus hash")] = None
    precision: Annotated[str | None, _rows("only rows of this evaluation precision")] = None
    split: Annotated[str | None, _rows("only rows of this split")] = None


def only(given: Mapping[str, Any]) -> dict[str, Any]:
    """What rows must have, by column."""
    columns = {"corpus": "corpus_hash"}
    return {columns.get(name, name): value for name, value in given.items() if value is not None}


def folders_of(runs: Any) -> list[Path]:
    """The folders that runs, or folders, are in. Raises UserError if something else is given."""
    from extrapolate.runs.run import Run

    named = several("runs", runs, ((str, Path, Run), "a run or a folder"))
    return [one.path if isinstance(one, Run) else Path(one) for one in named]
