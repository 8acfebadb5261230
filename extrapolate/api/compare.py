"""xt.compare"""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

from extrapolate.api.rows import Folders, WhichRows, folders_of, only
from extrapolate.api.settings import RowArguments
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress
from extrapolate.specs.settings import Flag, public

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signature
    import pandas as pd

    from extrapolate.statistics.comparison import Comparison

_HOW = "How to compare"


@public(WhichRows)
def compare(
    runs: Folders,
    *,
    extensions: Annotated[bool, Flag("also compare the extensions that were evaluated", _HOW)] = False,
    confidence: Annotated[float, Flag("how sure the intervals are: 0.95 is 95 %", _HOW, least=0.5, most=0.999)] = 0.95,
    least_difference: Annotated[float, Flag("nats; a smaller difference does not matter", _HOW, least=0.0)] = 0.01,
    correct: Annotated[
        str, Flag("holm: correct verdicts for the number of comparisons; none: leave them as they are", _HOW)
    ] = "none",
    progress: Progress = QUIET,
    **which: Unpack[RowArguments],
) -> "pd.DataFrame":
    """Compares evaluated runs pair by pair, and each with its control, at every length and on the same targets.

    Returns a row per protocol, factor and pair: the difference in loss (`model` minus `other`, nats per token), overall
    and for each seed, its interval and p value, a verdict, and the seeds that both have. `model` is `better` or `worse`
    if the interval excludes zero and the difference is at least `least_difference` nats (default 0.01), `equivalent` if
    the whole interval is closer to zero than `least_difference`, and otherwise `undecided`. Intervals cover documents
    and seeds. If a model has one seed, they cover only documents, and the verdict ends in "(this run)".

    runs: evaluated runs, their folders, or folders of them. extensions: also compare what was applied at inference.
    confidence: the level of the intervals. correct: `holm` corrects verdicts for the number of comparisons, so that the
    probability of one or more false ones is at most 1 - `confidence`; `none` does not. Intervals are not corrected.
    seq_len, corpus, precision, split: use only rows with these values, if runs differ in them.

    Raises UserError if nothing was evaluated, or rows cannot be compared.
    """
    import pandas as pd

    found = comparisons_of(runs, extensions, confidence, least_difference, correct, progress, **which)
    return pd.DataFrame([one.row() for one in found])


def comparisons_of(
    runs: Folders,
    extensions: bool,
    confidence: float,
    least_difference: float,
    correct: str,
    progress: Progress,
    **which: Any,
) -> "list[Comparison]":
    """As `compare`, as objects."""
    from extrapolate.reports.gather import gather
    from extrapolate.statistics import comparison
    from extrapolate.statistics.comparable import frame_of, of_all_checkpoints
    from extrapolate.statistics.comparison import BELOW_OPTIMUM, below_optimum
    from extrapolate.statistics.documents import as_frame

    comparison.check_correction(correct)  # before seconds of work
    gathered = gather(folders_of(runs))
    for message in gathered.left_out:
        progress.say(message)
    evals = gathered.evals()
    if not evals:
        raise UserError("these runs have no losses on text, which are what is compared: evaluate them")
    documents = as_frame(gathered.documents())
    restricted, losses = only(which), frame_of(evals)
    rows, warnings = comparison.comparable_rows(losses, documents, extensions, restricted)
    for message in gathered.unseen(of_all_checkpoints(losses, restricted), "losses on text", restricted):
        progress.say(message)
    for warning in warnings:
        progress.say(f"warning: {warning}")
    found = comparison.corrected(list(comparison.comparisons(rows, confidence, least=least_difference)), correct)
    for one in below_optimum(found):
        where = f"{one.model} is below the optimum at {one.factor:g}x under {one.protocol}"
        progress.say(f"warning: {where}. {BELOW_OPTIMUM}")
    return found
