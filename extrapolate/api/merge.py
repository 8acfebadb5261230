"""xt.merge"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from extrapolate.api.rows import PANEL, Folders, WhichRows, folders_of, only
from extrapolate.api.settings import RowArguments
from extrapolate.progress import QUIET, Progress
from extrapolate.specs import arguments
from extrapolate.specs.settings import Flag, public

if TYPE_CHECKING:  # importing it takes seconds, and the command line reads the signature
    from extrapolate.reports.merge import Merged


@public(WhichRows)
def merge(
    runs: Folders,
    out: str | Path,
    *,
    totals: Annotated[
        bool, Flag("sum documents' losses over positions: a tenth of the size, but no failure lengths", PANEL)
    ] = False,
    progress: Progress = QUIET,
    **which: Unpack[RowArguments],
) -> "Merged":
    """Merges the rows of several folders into one that `report` and `compare` read, and returns whose they are.

    runs: evaluated runs, reports, or folders of them, such as one folder per person. out: a new folder. seq_len,
    corpus, precision, split: use only rows with these values, if they differ. totals: sum each document's losses over
    the positions in its windows, which makes the files about a tenth of the size; reports then have no losses by
    position and no failure lengths. Every row keeps its origin. Rows found in two folders are taken once. If runs with
    the same name have different weights, their names are prefixed with their folders.

    Raises UserError if rows cannot be compared, because corpus, training length, precision, split or targets differ,
    two runs are one model with one seed, or two folders have different numbers for the same weights.
    """
    from extrapolate.reports.merge import merge_rows

    merged = merge_rows(folders_of(runs), arguments.path("out", out), only(which), totals=totals)
    for warning in merged.warnings:
        progress.say(warning)
    return merged
