"""xt.merge"""

from pathlib import Path

from extrapolate.api import arguments
from extrapolate.api.compare import Folders, folders_of
from extrapolate.progress import QUIET, Progress
from extrapolate.reports.merge import Merged, merge_rows


def merge(
    runs: Folders,
    out: str | Path,
    *,
    seq_len: int | None = None,
    corpus: str | None = None,
    precision: str | None = None,
    split: str | None = None,
    progress: Progress = QUIET,
) -> Merged:
    """Merges the rows of several folders into one that `report` and `compare` read, and returns whose they are.

    runs: evaluated runs, reports, or folders of them, such as one of each person. out: a new folder. seq_len, corpus,
    precision, split: only such rows, where they differ. Every row keeps what it says of its origin. Rows that two
    folders have are taken once. Runs of one name with different weights get their folders' names before their own.

    Raises UserError if rows cannot be compared, because corpus, training length, precision, split or targets differ,
    two runs are one model with one seed, or two folders have different numbers of the same weights.
    """
    only = {"seq_len": seq_len, "corpus_hash": corpus, "precision": precision, "split": split}
    given = {name: value for name, value in only.items() if value is not None}
    merged = merge_rows(folders_of(runs), arguments.path("out", out), given)
    for warning in merged.warnings:
        progress.say(warning)
    return merged
