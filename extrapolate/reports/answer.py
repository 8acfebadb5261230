"""The answer to what a report is asked, in at most three sentences, made from intervals that hold all at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from extrapolate.folders import listed
from extrapolate.reports import tables
from extrapolate.reports.comparison import CONTROL, OPTIMUM, Comparison, comparisons, resampled
from extrapolate.reports.material import Material
from extrapolate.reports.positions import LEAST

ISOLATES = "fixed-target"  # scores the same targets at every length, so that their context alone differs
CUT_BACK = "a context cut back to L"
CONFIDENCE = 0.95  # of all comparisons at once


@dataclass(frozen=True)
class Answer:
    """What can be said of a protocol's models, and what was compared for it.

    reference: the model that all others are compared with. comparisons: how many the sentences are chosen from.
    resampled: what their intervals are over, in words. one_run: whether some model has one run.
    """

    text: str
    protocol: str
    reference: str
    comparisons: int
    resampled: str
    one_run: bool


def isolates(protocol: str) -> bool:
    """Whether a protocol scores the same targets at every length, each with more context; with whatever arguments."""
    return protocol.partition(":")[0] == ISOLATES


def answer(material: Material) -> Answer:
    """The answer, of `fixed-target` where it was evaluated, else of the first protocol.

    Models are compared with the first of the table, which is the baseline, or the first by name: no loss chooses it.
    What is said is chosen among all of these comparisons, and those of each model with its control, at every length
    beyond L. So their intervals hold all at once: of so many, each has a confidence of 1 - 0.05 / number (Bonferroni).
    That is stricter than Holm's correction, which is for signs alone: sizes are chosen here too.
    """
    protocol = next(filter(isolates, material.rows), next(iter(material.rows)))
    rows, models = material.rows[protocol], material.models(protocol)
    documents = material.documents[material.documents["protocol"] == protocol]
    beyond = documents[documents["factor"] > 1]
    extrapolates = not beyond.empty
    asked = beyond if extrapolates else documents
    pairs = asked[["model", "factor"]].drop_duplicates()["model"]
    count = len(pairs) * extrapolates + int((pairs != models[0]).sum())
    confidence = 1 - (1 - CONFIDENCE) / max(1, count)
    found = list(comparisons(asked, confidence, reference=models[0], controls=extrapolates))
    found = [one for one in found if one.other != OPTIMUM]
    against = [one for one in found if one.other != CONTROL]
    controls = [one for one in found if one.other == CONTROL]
    said = []
    if len(models) > 1:
        said.append(_against_reference(against, models, "beyond L" if extrapolates else "that was evaluated"))
        if tables.unequal_training(rows):
            said[0] = f"{said[0].removesuffix('.')}; they were not trained alike."
    if extrapolates:
        alike = isolates(protocol)
        said += [_against_control(controls, _best(against) or models[0], alike)]
        said += [_at_the_longest(controls, models, alike)]
    else:
        some = (rows["factor"] > 1).any()
        said.append("No model reaches a length beyond L." if some else "No length beyond L was evaluated.")
    one_run, text = any(one.one_run for one in found), " ".join(filter(None, said))
    if one_run and text:
        own_case = text[0].lower() + text[1:] if text.startswith(("No ", "There ")) else text
        text = f"In {'this run' if len(models) == 1 else 'these runs'}, {own_case}"
    return Answer(text, protocol, models[0], count, resampled(found), one_run)


def _verdict(one: Comparison) -> str:
    """`win`, `loss`, `tie`, `too few`, `no shared seed`."""
    return one.verdict().split(" (")[0]


def _best(against: Sequence[Comparison]) -> str | None:
    """The model that is better than the reference by most, at the longest length at which one surely is."""
    wins = [one for one in against if _verdict(one) == "win"]
    if not wins:
        return None
    return min(wins, key=lambda one: (-one.factor, one.difference.mean if one.difference else math.inf)).model


def _against_reference(against: Sequence[Comparison], models: Sequence[str], where: str) -> str:
    """Which model is better than the reference, at the longest length at which one is; else which are worse."""
    reference, others = models[0], models[1:]
    told = [one for one in against if _verdict(one) in ("win", "loss")]
    if not told:
        return _nothing_told(against, reference, others, where)
    wins = [one for one in told if _verdict(one) == "win"]
    longest = max(one.factor for one in wins or told)
    here, at = [one for one in wins or told if one.factor == longest], f"at {longest:g}x"
    if wins:
        best = next(one for one in here if one.model == _best(against))
        said = f"{best.model} is {_by(best, 'better')} {at}"
        if len(others) > 1:
            number = f"{len(here)} of {len(others)} models {'are' if len(here) > 1 else 'is'}"
            said = f"{number} better than {reference} {at}, {best.model} by {_size(best)}"
        worse = [f"{one.factor:g}x" for one in told if one.model == best.model and one.factor > longest]
        return said + (f", but worse at {_and(worse)}." if worse else ".")
    if len(others) == 1:
        return f"{here[0].model} is {_by(here[0], 'worse')} {at}."
    worse_ones = "all others are" if len(here) == len(others) else f"{len(here)} of {len(others)} others are"
    return f"No model is shown to be better than {reference} at any length {where}, and {at} {worse_ones} worse."


def _nothing_told(against: Sequence[Comparison], reference: str, others: Sequence[str], where: str) -> str:
    verdicts = {_verdict(one) for one in against}
    if not against:
        return f"No model is compared with {reference}: they reach no length {where} together."
    if verdicts == {"no shared seed"}:
        return f"No model has a seed that {reference} has, so that none is compared with it."
    if verdicts <= {"too few", "no shared seed"}:
        return "There are too few documents to tell models apart."
    whom = (
        f"{others[0]} and {reference}" if len(others) == 1 else f"{reference} and any of the {len(others)} other models"
    )
    return f"No difference between {whom} is shown at any length {where}."


def _by(one: Comparison, word: str) -> str:
    """`0.15 nats (0.12 to 0.18) better than RoPE`."""
    size = _size(one)
    return f"{size} {word} than {one.other}" if size != INFINITE else f"{word} than {one.other} by {INFINITE}"


INFINITE = "an infinite loss"


def _size(one: Comparison) -> str:
    """`0.15 nats (0.12 to 0.18)`."""
    found = one.difference
    if found is None or found.low is None or found.high is None or not math.isfinite(found.mean):
        return INFINITE
    digits = 2 if abs(found.mean) >= 0.1 else 3
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"{abs(found.mean):.{digits}f} nats ({low:.{digits}f} to {high:.{digits}f})"


def _against_control(controls: Sequence[Comparison], model: str, alike: bool) -> str:
    """What becomes of a model beyond L, beside its own control.

    alike: whether the two differ in how far back they see alone. Else the model's windows begin without context, and it
    is not said to lose, nor to gain nothing.
    """
    mine = sorted((one for one in controls if one.model == model), key=lambda one: one.factor)
    if not mine:
        return f"{model} reaches no length beyond L."
    if any(_verdict(one) == "too few" for one in mine):
        return "" if any(one.model != model for one in controls) else "There are too few documents to tell."
    if all(_holds(one) for one in mine):
        nothing = alike and all(
            one.difference and one.difference.low is not None and one.difference.low > -LEAST for one in mine
        )
        gains = "but gains nothing" if nothing else "and is not shown to gain anything"
        return f"{model} holds up to {mine[-1].factor:g}x, {gains} beyond {CUT_BACK}."
    kinds = {
        "beats": [one for one in mine if _verdict(one) == "win"],
        "holds against": [one for one in mine if _holds(one)],
        "loses to": [one for one in mine if alike and _verdict(one) == "loss" and not _holds(one)],
    }
    kinds["is not shown to hold against"] = [one for one in mine if not any(one in those for those in kinds.values())]
    parts, what = [], CUT_BACK
    for verb, those in kinds.items():
        if those:
            parts.append(f"{verb} {what} at {_and([f'{one.factor:g}x' for one in those])}")
            what = "it"
    return f"{model} {'; '.join(parts)}."


def _holds(one: Comparison) -> bool:
    """Surely less than LEAST worse than its control, and not better."""
    high = None if one.difference is None else one.difference.high
    return _verdict(one) != "win" and high is not None and high < LEAST


def _at_the_longest(controls: Sequence[Comparison], models: Sequence[str], alike: bool) -> str:
    """Which of several models beat their controls at the longest length; `alike` as above."""
    longest = max(one.factor for one in controls)
    here = [one for one in controls if one.factor == longest]
    if len(models) == 1 or all(_verdict(one) == "too few" for one in here):
        return ""
    winners = [one.model for one in here if _verdict(one) == "win"]
    if len(winners) == 1:
        return f"At {longest:g}x only {winners[0]} is shown to beat {CUT_BACK}."
    if winners:
        all_of_two = len(winners) == len(models) == 2
        who = "both models beat" if all_of_two else f"{len(winners)} of {len(models)} models beat"
        return f"At {longest:g}x {who} {CUT_BACK}{f': {listed(winners)}' if len(winners) < len(models) else ''}."
    if alike and len(here) == len(models) and all(_verdict(one) == "loss" for one in here):
        return f"At {longest:g}x {'both' if len(here) == 2 else f'all {len(here)}'} models lose to {CUT_BACK}."
    return f"At {longest:g}x {'neither' if len(models) == 2 else 'no model'} is shown to beat {CUT_BACK}."


def _and(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
