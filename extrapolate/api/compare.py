"""xt.compare"""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from extrapolate.api.arguments import several
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress
from extrapolate.reports.gather import gather
from extrapolate.results.verdicts import LEAST
from extrapolate.runs.run import Run
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import frame_of
from extrapolate.statistics.comparison import BELOW_OPTIMUM, Comparison, below_optimum
from extrapolate.statistics.documents import as_frame

Folders = str | Path | Run | Iterable[str | Path | Run]


def compare(
    runs: Folders,
    *,
    extensions: bool = False,
    confidence: float = 0.95,
    least_difference: float = LEAST,
    correct: str = "none",
    seq_len: int | None = None,
    corpus: str | None = None,
    precision: str | None = None,
    split: str | None = None,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Compares evaluated runs pair by pair, and each with its control, at every length and on the same targets.

    Returns a row a protocol, factor and pair: the difference in loss (`model` minus `other`, nats per token), that of
    each seed, the ends of its interval, its p value, a verdict, and the seeds that both have. `model` is `better` or
    `worse` if the interval excludes zero and the difference is at least `least_difference` nats (default 0.01),
    `equivalent` if the whole interval is nearer to zero than that, and else `undecided`. Intervals are over documents
    and seeds. If a model has one seed they are over documents alone, and the verdict ends in "(this run)".

    runs: evaluated runs, their folders, or folders of them. extensions: compare what was applied at inference too.
    confidence: of the intervals. correct: `holm` corrects verdicts for the number of comparisons, so that the chance
    that any of them is false is at most 1 - `confidence`; `none` does not. Intervals are not corrected.
    seq_len, corpus, precision, split: only such rows, where runs differ in them.

    Raises UserError if nothing was evaluated, or rows cannot be compared.
    """
    found = comparisons_of(
        runs,
        extensions=extensions,
        confidence=confidence,
        least_difference=least_difference,
        correct=correct,
        only={"seq_len": seq_len, "corpus_hash": corpus, "precision": precision, "split": split},
        progress=progress,
    )
    return pd.DataFrame([one.row() for one in found])


def comparisons_of(
    runs: Folders,
    *,
    extensions: bool,
    confidence: float,
    least_difference: float,
    only: dict[str, object],
    progress: Progress,
    correct: str = "none",
) -> list[Comparison]:
    """As `compare`, as objects."""
    comparison.check_correction(correct)  # before seconds of work
    gathered = gather(folders_of(runs))
    for message in gathered.left_out:
        progress.say(message)
    evals = gathered.evals()
    if not evals:
        raise UserError("these runs have no losses on text, which are what is compared: evaluate them")
    given = {name: value for name, value in only.items() if value is not None}
    documents = as_frame(gathered.documents())
    rows, warnings = comparison.comparable_rows(frame_of(evals), documents, extensions, given)
    for warning in warnings:
        progress.say(f"warning: {warning}")
    found = comparison.corrected(list(comparison.comparisons(rows, confidence, least=least_difference)), correct)
    for one in below_optimum(found):
        where = f"{one.model} is below the optimum at {one.factor:g}x under {one.protocol}"
        progress.say(f"warning: {where}. {BELOW_OPTIMUM}")
    return found


def folders_of(runs: Folders) -> list[Path]:
    """The folders that runs, or folders, are in. Raises UserError if something else is given."""
    named = several("runs", runs, ((str, Path, Run), "a run or a folder"))
    return [one.path if isinstance(one, Run) else Path(one) for one in named]
