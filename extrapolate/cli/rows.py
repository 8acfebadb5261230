"""extrapolate report and extrapolate compare"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from extrapolate.api import rows as calls
from extrapolate.cli.flags import AsJson, CommandLine, command_of
from extrapolate.errors import UserError
from extrapolate.terminal import say

if TYPE_CHECKING:
    from extrapolate.statistics.comparison import Comparison


@command_of(calls.report, panels=(calls.REPORT, calls.PANEL))
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="evaluated runs, or folders of them  [default: ckpt]")
    ] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Write tables and plots of evaluated runs.

    The tables are Parquet, Markdown and LaTeX. They show loss by length and by position, and the results of probes.
    """
    from extrapolate.cli.render import print_json, print_table, print_text
    from extrapolate.reports.tables import formatted

    written = calls.report(runs or "ckpt", **given, progress=CommandLine())
    if as_json:
        print_json(written.rows)
    else:
        print_text(written.answer)
        for table in written.shown:
            print_table(formatted(table.frame), table.title)
    say(f"wrote {given['out']}/: {', '.join(written.files)}")


@command_of(calls.compare, panels=(calls.HOW, calls.PANEL))
def compare(
    runs: Annotated[list[Path], typer.Argument(help="evaluated runs, or folders of them")],
    fail_if: Annotated[
        Literal["worse"] | None,
        typer.Option(
            help="compare each model of the first folder with itself in the second: exit code 1 if one got "
            "worse, or is gone"
        ),
    ] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare evaluated runs pair by pair.

    A row has the difference in loss, its 95 % interval and a verdict: a model is better, worse or equivalent, or the
    comparison is undecided.
    """
    from extrapolate.cli.render import print_json
    from extrapolate.results.verdicts import TOO_FEW
    from extrapolate.statistics.regression import worse

    if fail_if is not None and len(runs) != 2:
        raise UserError("--fail-if compares what is now with what was before: name two folders, NOW and BEFORE")
    now, before = (runs, None) if fail_if is None else (runs[0], runs[1])
    found = calls.comparisons_of(now, before, **given, progress=CommandLine())
    if as_json:
        print_json(one.row() for one in found)
    else:
        _print(found, **given)
    if before is not None:
        if said := worse(found):
            raise RuntimeError(said)
        if all(one.word == TOO_FEW for one in found):
            raise UserError("there are too few documents for a verdict: evaluate with a larger `max_targets`")
        say(f"none of {len(found)} losses is worse than before")


def _print(found: "Sequence[Comparison]", confidence: float, least_difference: float, correct: str, **_: Any) -> None:
    """The tables of comparisons, and what their words mean."""
    from extrapolate.cli.render import print_table, print_text
    from extrapolate.results.verdicts import NO_SHARED_SEED, explained
    from extrapolate.statistics import comparison
    from extrapolate.statistics.sums import ENOUGH_DOCUMENTS

    for protocol in dict.fromkeys(one.protocol for one in found):
        table = comparison.table([one for one in found if one.protocol == protocol], confidence)
        print_table(table, f"{protocol}: the model's loss minus the other's, nats per token", names=3)
    print_text(
        f"The verdict is about the model, which is better below zero. {explained(least_difference)} "
        f"{comparison.resampled(found)} {_many(found, correct, confidence)}"
    )
    if any(one.advice() for one in found):
        print_text(
            "Needs about: the size of a study that would decide a difference such as the one seen, in four of five "
            "studies of that size. It is a rough guess from few seeds."
        )
    if any(one.one_run and one.difference is not None for one in found):
        print_text(
            "(this run): a model has one seed here. Interval and verdict are about that run, and another seed may "
            "give another order. To compare encodings, train and evaluate each with three seeds or more."
        )
    if any(one.clusters == "stretches" for one in found):
        say(
            f"fewer than {ENOUGH_DOCUMENTS} documents: contiguous stretches of 16 L tokens stand in. "
            "Those of one document are alike, which makes intervals too narrow rather than too wide"
        )
    if any(one.word == NO_SHARED_SEED for one in found):
        say("some models share no seed, and cannot be compared: train and evaluate them with the same --seed")


def _many(found: "Sequence[Comparison]", correct: str, confidence: float) -> str:
    if correct == "none":
        return "Each interval stands for itself: of many intervals, some exclude zero by chance. --correct holm helps."
    count = sum(one.corrected is not None for one in found)
    return (
        f"Verdicts are corrected for the number of comparisons, {count} (Holm): of {1 / (1 - confidence):.0f} such "
        "tables, about one at most has a better or a worse model by chance. Intervals are not corrected."
    )
