"""The comparisons behind a report's answer: three questions about all models, each with its own error rate.

At most ERROR of the statements that answer a question are wrong, on average: the false discovery rate (Benjamini and
Hochberg 1995). Bounding the chance that any statement is wrong would need an error rate of ERROR / n for each of n
comparisons. With three seeds, almost nothing could be shown then: the quantile of Student's t with 2 degrees of freedom
grows as the square root of n.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, WORSE
from extrapolate.statistics.comparison import CONTROL, Comparison, comparisons
from extrapolate.statistics.intervals import FEWEST_SEEDS, judged_together

ERROR = 0.05  # the false discovery rate of each question
HOLDS: Final = "holds"

OfControl = Literal["better", "holds", "worse"]


@dataclass(frozen=True)
class Family:
    """What was compared, at the longest length.

    trained: the models as they were trained, in the order of the table. reference: the first of them. longest: the
    longest factor that any of them reaches. orders: the models compared with the reference. controls: the models
    compared with their own controls. excused: how far a model may be above its control for another reason than length,
    nats; infinite if it is not among them. extensions: the models with an extension, compared with the same models
    without it.
    """

    trained: Sequence[str]
    reference: str
    longest: float
    orders: Sequence[Comparison]
    controls: Sequence[Comparison]
    excused: Mapping[str, float]
    extensions: Sequence[Comparison]

    def all(self) -> list[Comparison]:
        """Every comparison that was made."""
        return [*self.orders, *self.controls, *self.extensions]


def of_control(one: Comparison, excused: Mapping[str, float]) -> OfControl | None:
    """The verdict on a model beside its control; None if it is undecided. excused: see Family.

    A model holds if it is not better, and its interval ends below the least difference that matters.
    """
    found = one.difference
    if one.word == BETTER:
        return BETTER
    if found is not None and found.high is not None and found.high < one.least:
        return HOLDS
    above = found is None or found.low is None or found.low > excused.get(one.model, math.inf)
    return WORSE if one.word == WORSE and above else None


def family(rows: pd.DataFrame, documents: pd.DataFrame, order: Sequence[str], alike: bool) -> Family:
    """The comparisons for one protocol. The losses do not influence what is compared.

    rows, documents: the protocol's rows, and those by document. order: its models in the order of the table. alike:
    whether a model and its control differ only in how far back they see. If not, its windows begin without context. It
    is excused for that by as much as it is above its control at 1x, where windows begin most often.
    """
    as_trained = set(rows.loc[rows["extension"] == AS_TRAINED, "model"])
    trained = [model for model in order if model in as_trained] or list(order)
    group = documents[documents["model"].isin(trained)]
    longest, reference = float(group["factor"].max()) if len(group) else 1.0, trained[0]
    here = group[group["factor"] == longest]
    orders = _judged_together(comparisons(here, controls=False, reference=reference))
    controls = [one for one in comparisons(here, pairs=False) if one.other == CONTROL] if longest > 1 else []
    excused = dict.fromkeys(trained, 0.0) if alike else _above_control(group[group["factor"] == 1.0])
    extensions = _of_extensions(rows, documents[documents["factor"] == longest]) if longest > 1 else []
    return Family(
        trained, reference, longest,
        at_false_discovery_rate(orders, _tells_order),
        at_false_discovery_rate(controls, lambda one: of_control(one, excused) is not None),
        excused,
        at_false_discovery_rate(extensions, _tells_order),
    )  # fmt: skip


def _above_control(documents: pd.DataFrame) -> dict[str, float]:
    """The upper end of each model's loss minus its control's, with the least difference that matters added."""
    found = [one for one in comparisons(documents, pairs=False) if one.other == CONTROL]
    highest = {one.model: one.difference.high for one in found if one.difference is not None}
    return {model: high + LEAST for model, high in highest.items() if high is not None}


def simultaneous(one: Comparison, among: int) -> Comparison:
    """The comparison with an interval that holds for all of `among` comparisons at once (Bonferroni)."""
    return _with_confidence(one, 1 - ERROR / among)


def _tells_order(one: Comparison) -> bool:
    return one.sure() or one.word == EQUIVALENT


def at_false_discovery_rate(found: Iterable[Comparison], tells: Callable[[Comparison], bool]) -> list[Comparison]:
    """The comparisons, with the confidence of all intervals raised to control the false discovery rate.

    If k of n comparisons tell something at an error rate of r each, about n r of the k may be due to chance. The rate
    is the highest at which this is at most ERROR k (Benjamini and Hochberg 1995; for intervals, Benjamini and Yekutieli
    2005).
    """
    found = list(found)
    telling = len(found)
    while telling:
        raised = [_with_confidence(one, 1 - ERROR * telling / len(found)) for one in found]
        if (count := sum(map(tells, raised))) >= telling:
            return raised
        telling = count
    return [simultaneous(one, len(found)) for one in found]  # these are wider, so they tell nothing either


def _judged_together(found: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons with the variances over seeds of `judged_together`. Not for controls and extensions: their
    variances differ by orders of magnitude, as between a model that ignores far tokens and one that fails on them."""
    found = list(found)
    estimates = iter(judged_together([one.estimate for one in found if one.estimate is not None]))
    return [one if one.estimate is None else replace(one, estimate=next(estimates)) for one in found]


def about_these_runs(one: Comparison) -> bool:
    """Whether there are too few seeds to say anything about others, so that the interval is over documents alone."""
    return one.difference is not None and len(one.by_seed) < FEWEST_SEEDS


def _with_confidence(one: Comparison, confidence: float) -> Comparison:
    if one.estimate is None:
        return one
    found = one.estimate.of_these_runs() if about_these_runs(one) else one.estimate
    return replace(one, difference=found.interval(confidence), by_seed=found.by_seed, confidence=confidence)


def _of_extensions(rows: pd.DataFrame, here: pd.DataFrame) -> Iterable[Comparison]:
    """Each model with an extension, compared with the same runs without it if these have rows."""
    by_model = dict(list(here.groupby("model", observed=True)))
    extended = rows["extension"] != AS_TRAINED
    without = dict(zip(rows.loc[~extended, "run"], rows.loc[~extended, "model"], strict=True))
    pairs = zip(rows.loc[extended, "model"], rows.loc[extended, "run"], strict=True)
    plain_of = {model: without[run] for model, run in pairs if run in without}
    plain_of = {model: plain for model, plain in plain_of.items() if {model, plain} <= set(by_model)}
    for plain in dict.fromkeys(plain_of.values()):
        group = [by_model[model] for model, of in plain_of.items() if of == plain]
        yield from comparisons(pd.concat([by_model[plain], *group]), controls=False, reference=plain)
