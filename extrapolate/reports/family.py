"""The comparisons that a report's answer rests on: three questions of all models, each with its error rate.

What is said in answer to a question is wrong in at most ERROR of its statements, on average: the false discovery rate
(Benjamini and Hochberg 1995). To bound instead how often anything is wrong, each of n comparisons would need an error
rate of ERROR / n, at which three seeds show almost nothing: the quantile of Student's t with 2 degrees of freedom grows
as the square root of n.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.results.verdicts import BETTER, EQUIVALENT, WORSE
from extrapolate.statistics.comparison import CONTROL, Comparison, comparisons
from extrapolate.statistics.intervals import FEWEST_SEEDS, judged_together

ERROR = 0.05  # of what is said in answer to a question
HOLDS: Final = "holds"

OfControl = Literal["better", "holds", "worse"]


@dataclass(frozen=True)
class Family:
    """What was compared, and how.

    trained: the models as they were trained, in the order of the table; reference: the first of them. longest: the
    longest factor that one of them reaches. alike: whether a model and its control differ in how far back they see
    alone. orders: the models with the reference; controls: the models with their own controls; extensions: models that
    have one with the same model without. All are at the longest length.
    """

    trained: Sequence[str]
    reference: str
    longest: float
    alike: bool
    orders: Sequence[Comparison]
    controls: Sequence[Comparison]
    extensions: Sequence[Comparison]

    def all(self) -> list[Comparison]:
        """Every comparison that was made."""
        return [*self.orders, *self.controls, *self.extensions]


def of_control(one: Comparison, alike: bool) -> OfControl | None:
    """What the interval says of a model beside its control; None if it tells nothing.

    A model holds if it is surely less than the least difference that matters worse, and not better. If not `alike`,
    the model's windows begin without context, and it is not said to be worse.
    """
    high = None if one.difference is None else one.difference.high
    if one.word == BETTER:
        return BETTER
    if high is not None and high < one.least:
        return HOLDS
    return WORSE if alike and one.word == WORSE else None


def family(rows: pd.DataFrame, documents: pd.DataFrame, order: Sequence[str], alike: bool) -> Family:
    """The family of one protocol: its rows, those by document, and its models in the order of the table.

    No loss chooses what is compared.
    """
    as_trained = set(rows.loc[rows["extension"] == AS_TRAINED, "model"])
    trained = [model for model in order if model in as_trained] or list(order)
    mine = documents[documents["model"].isin(trained)]
    longest, reference = float(mine["factor"].max()) if len(mine) else 1.0, trained[0]
    here = mine[mine["factor"] == longest]
    orders = _judged_together(comparisons(here, controls=False, reference=reference))
    controls = [one for one in comparisons(here, pairs=False) if one.other == CONTROL] if longest > 1 else []
    extensions = _of_extensions(rows, documents[documents["factor"] == longest]) if longest > 1 else []
    return Family(
        trained, reference, longest, alike,
        _at_false_discovery_rate(orders, _tells_order),
        _at_false_discovery_rate(controls, lambda one: of_control(one, alike) is not None),
        _at_false_discovery_rate(extensions, _tells_order),
    )  # fmt: skip


def simultaneous(one: Comparison, among: int) -> Comparison:
    """With the interval that holds for all of `among` comparisons at once (Bonferroni)."""
    return _with_confidence(one, 1 - ERROR / among)


def _tells_order(one: Comparison) -> bool:
    return one.sure() or one.word == EQUIVALENT


def _at_false_discovery_rate(found: Iterable[Comparison], tells: Callable[[Comparison], bool]) -> list[Comparison]:
    """The comparisons, with the confidence of all intervals raised until few enough of those that tell something err.

    If k of n comparisons tell something at an error rate of r each, about n r of them err, if all that tell something
    were chance. The rate is the highest at which this is at most ERROR k (Benjamini and Hochberg 1995, put in terms of
    intervals by Benjamini and Yekutieli 2005).
    """
    found = list(found)
    telling = len(found)
    while telling:
        raised = [_with_confidence(one, 1 - ERROR * telling / len(found)) for one in found]
        if (count := sum(map(tells, raised))) >= telling:
            return raised
        telling = count
    return [simultaneous(one, len(found)) for one in found]  # which tell nothing either, being wider


def _judged_together(found: Iterable[Comparison]) -> list[Comparison]:
    """With variances over seeds as `judged_together` has them. Not for controls, nor extensions: how much they vary
    differs by orders of magnitude, as between a model that ignores far tokens and one that fails on them."""
    found = list(found)
    estimates = iter(judged_together([one.estimate for one in found if one.estimate is not None]))
    return [one if one.estimate is None else replace(one, estimate=next(estimates)) for one in found]


def about_these_runs(one: Comparison) -> bool:
    """Whether there are too few seeds to say anything of others: the interval is then over documents alone."""
    return one.difference is not None and len(one.by_seed) < FEWEST_SEEDS


def _with_confidence(one: Comparison, confidence: float) -> Comparison:
    if one.estimate is None:
        return one
    found = one.estimate.of_these_runs() if about_these_runs(one) else one.estimate
    return replace(one, difference=found.interval(confidence), by_seed=found.by_seed, confidence=confidence)


def _of_extensions(rows: pd.DataFrame, here: pd.DataFrame) -> Iterable[Comparison]:
    by_model = dict(list(here.groupby("model", observed=True)))
    extended = {model: plain for model, plain in _extended(rows).items() if {model, plain} <= set(by_model)}
    for plain in dict.fromkeys(extended.values()):
        mine = [by_model[model] for model, of in extended.items() if of == plain]
        yield from comparisons(pd.concat([by_model[plain], *mine]), controls=False, reference=plain)


def _extended(rows: pd.DataFrame) -> Mapping[str, str]:
    """Models with an extension, each with what the same runs are called without; those whose runs have no such rows
    are left out."""
    with_one = rows["extension"] != AS_TRAINED
    plain = dict(zip(rows.loc[~with_one, "run"], rows.loc[~with_one, "model"], strict=True))
    pairs = zip(rows.loc[with_one, "model"], rows.loc[with_one, "run"], strict=True)
    return {model: plain[run] for model, run in pairs if run in plain}
