"""Verdicts on differences in loss, for all comparisons."""

from typing import Final, Literal

LEAST: Final = 0.01  # nats: a smaller difference does not matter, even if it is significant

Verdict = Literal["better", "worse", "equivalent", "undecided", "too few", "no shared seed"]

BETTER: Final = "better"  # the interval is below zero, and the difference is at least the least one that matters
WORSE: Final = "worse"  # the same above zero
EQUIVALENT: Final = "equivalent"  # the whole interval is nearer to zero than the least difference that matters
UNDECIDED: Final = "undecided"  # anything else with an interval
TOO_FEW: Final = "too few"  # documents for an interval
NO_SHARED_SEED: Final = "no shared seed"  # and so nothing to compare
ORDERED = (BETTER, WORSE)

THIS_RUN = " (this run)"  # ends the verdict on one run of a model: another seed may give another

COLUMN = (  # describes a table's column of verdicts
    "`better` or `worse`: the interval excludes zero, and the difference is at least the least one that matters; "
    "`equivalent`: the whole interval is nearer to zero than that; `undecided`; or `too few` documents for an interval"
)


def explained(least: float) -> str:
    """Explains the verdicts."""
    return (
        f"Better and worse: the interval excludes zero, and the difference is at least {least:g} nats. "
        f"Equivalent: the whole interval is nearer to zero than {least:g}. Anything else is undecided."
    )
