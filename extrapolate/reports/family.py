"""The comparisons that a report's answer rests on: a small family, fixed before any loss is seen.

Few comparisons are what lets few seeds tell something: of n that hold at once, each has an error rate of 5 % / n, and
the quantile of Student's t with 2 degrees of freedom, of three seeds, grows as the square root of n.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.results.verdicts import BETTER, WORSE
from extrapolate.statistics.comparison import CONTROL, Comparison, comparisons

ERROR = 0.05  # how often an answer may say something that is not so
HOLDS: Final = "holds"
MAIN = 0.8  # the share of an error rate for the first of two questions: models and extensions, order and control

OfControl = Literal["better", "holds", "worse"]


@dataclass(frozen=True)
class Family:
    """What was compared, and how.

    trained: the models as they were trained, in the order of the table; reference: the first of them. longest: the
    longest factor that one of them reaches. alike: whether a model and its control differ in how far back they see
    alone. orders: by model, its loss minus the reference's, from the longest length down; controls: by model, its loss
    minus its control's. Both end with the first comparison that tells nothing. extended: models with an extension, each
    with the same model without. extensions: their comparisons at the longest length. shares: the error rate of each
    model, and of each extension.
    """

    trained: Sequence[str]
    reference: str
    longest: float
    alike: bool
    orders: Mapping[str, Sequence[Comparison]]
    controls: Mapping[str, Sequence[Comparison]]
    extended: Mapping[str, str]
    extensions: Sequence[Comparison]
    shares: tuple[float, float]

    def at_longest(self, found: Mapping[str, Sequence[Comparison]]) -> list[Comparison]:
        """Of `orders` or `controls`, those at the longest length."""
        return [mine[0] for mine in found.values() if mine and mine[0].factor == self.longest]

    def all(self) -> list[Comparison]:
        """Every comparison that was made."""
        of_models = [one for found in (self.orders, self.controls) for mine in found.values() for one in mine]
        return [*of_models, *self.extensions]


def of_control(one: Comparison, alike: bool) -> OfControl | None:
    """What the interval says of a model beside its control; None where it tells nothing.

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

    The main question is of the models as they were trained: each has an equal share of the error rate for a chain of
    comparisons, with the first model of the table, and with its own control, at the longest length, then at the next
    shorter one. The chain ends with the first that tells nothing. A comparison is only made where all before it in the
    chain told something, so a chain errs no more often than its first comparison could (fixed sequence: Maurer, Hothorn
    and Lehmacher 1995). Only the control at the longest length is compared in any case: the first comparison has MAIN
    of the share, the control the rest, and all of the share if the first told something (fallback: Wiens 2003). Models
    with an extension are compared at the longest length with the same models without; all of these share what is left.
    Where one model alone was trained, its extensions are the main question.
    """
    as_trained = set(rows.loc[rows["extension"] == AS_TRAINED, "model"])
    trained = [model for model in order if model in as_trained] or list(order)
    mine = documents[documents["model"].isin(trained)]
    longest = float(mine["factor"].max()) if len(mine) else 1.0
    here = documents[documents["factor"] == longest]
    reaching = set(here["model"])
    beyond, reference = longest > 1, trained[0]
    chained = [model for model in trained if model in reaching and (beyond or model != reference)]
    extended = {model: plain for model, plain in _extended(rows).items() if beyond and {model, plain} <= reaching}
    of_extensions = 0.0 if not extended else 1 - MAIN if len(trained) > 1 else MAIN
    shares = (
        ERROR * (1 - of_extensions) / max(1, len(chained)),
        ERROR * of_extensions / max(1, len(extended)),
    )
    orders, controls = _chains(mine[mine["factor"].gt(1) | (not beyond)], reference, chained, shares[0], alike)
    extensions = list(_of_extensions(here, extended, 1 - shares[1]))
    return Family(trained, reference, longest, alike, orders, controls, extended, extensions, shares)


def _extended(rows: pd.DataFrame) -> dict[str, str]:
    """Models with an extension, each with what the same runs are called without; those whose runs have no such rows
    are left out."""
    with_one = rows["extension"] != AS_TRAINED
    plain = dict(zip(rows.loc[~with_one, "run"], rows.loc[~with_one, "model"], strict=True))
    pairs = zip(rows.loc[with_one, "model"], rows.loc[with_one, "run"], strict=True)
    return {model: plain[run] for model, run in pairs if run in plain}


def _chains(
    documents: pd.DataFrame, reference: str, models: Sequence[str], share: float, alike: bool
) -> tuple[dict[str, list[Comparison]], dict[str, list[Comparison]]]:
    """`orders` and `controls` of a Family."""
    orders: dict[str, list[Comparison]] = {}
    controls: dict[str, list[Comparison]] = {}
    longest, going_on = documents["factor"].max(), set(models)
    for factor in sorted(set(documents["factor"]), reverse=True):
        here = documents[(documents["factor"] == factor) & documents["model"].isin(going_on | {reference})]
        of_orders = share * MAIN if factor == longest > 1 else share
        untold = set()
        for one in comparisons(here, 1 - of_orders, controls=False, reference=reference):
            orders.setdefault(one.model, []).append(one)
            if not one.sure():
                untold.add(one.model)
        if factor <= 1:
            break
        told, going_on = going_on - untold, set()
        for one in _with_controls(here, told, 1 - share):
            controls.setdefault(one.model, []).append(one)
            if of_control(one, alike) is not None:
                going_on.add(one.model)
        if factor == longest:
            for one in _with_controls(here, untold, 1 - share * (1 - MAIN)):
                controls[one.model] = [one]
    return orders, controls


def _with_controls(here: pd.DataFrame, models: set[str], confidence: float) -> Iterator[Comparison]:
    found = comparisons(here[here["model"].isin(models)], confidence, pairs=False)
    return (one for one in found if one.other == CONTROL)


def _of_extensions(here: pd.DataFrame, extended: Mapping[str, str], confidence: float) -> Iterator[Comparison]:
    rows = dict(list(here.groupby("model", observed=True)))
    for plain in dict.fromkeys(extended.values()):
        mine = [rows[model] for model, of in extended.items() if of == plain]
        yield from comparisons(pd.concat([rows[plain], *mine]), confidence, controls=False, reference=plain)
