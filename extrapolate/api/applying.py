"""Which of the extensions that were asked for apply to each of several runs; what is left out is said."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.evaluation.plans import left_out, lines_on
from extrapolate.evaluation.subject import Subject
from extrapolate.progress import QUIET, Progress


def applying(
    runs: Sequence[Subject], extensions: Sequence[str], progress: Progress
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Of each run, the extensions that apply to it; and lines on what is left out, which `progress` says too.

    Raises UserError on an unknown extension, and on one that applies to none of the runs.
    """
    reasons = [left_out(run, run.build_model(), extensions) for run in runs]
    for text in extensions:
        if all(text in mine for mine in reasons):
            none = "" if len(runs) == 1 else f"{text} applies to none of these runs: "
            raise UserError(none + reasons[0][text])
    lines = lines_on({str(run.path): mine for run, mine in zip(runs, reasons, strict=True)})
    for line in lines:
        progress.say(line)
    return [tuple(text for text in extensions if text not in mine) for mine in reasons], lines


def table(rows: Sequence[Mapping[str, Any]], lines: Sequence[str], progress: Progress) -> pd.DataFrame:
    """The rows, with the lines on what is left out in `attrs["left_out"]`; also as warnings if `progress` is quiet."""
    found = pd.DataFrame(rows)
    found.attrs["left_out"] = list(lines)
    for line in lines if progress is QUIET else ():
        warnings.warn(line, stacklevel=3)
    return found
