"""The answer to what a report is asked, in at most four sentences that say no more than their intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from extrapolate.folders import listed
from extrapolate.reports.family import HOLDS, Family, OfControl, family, of_control
from extrapolate.reports.material import Material
from extrapolate.reports.questions import answers
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, NO_SHARED_SEED, ORDERED, TOO_FEW, WORSE
from extrapolate.statistics.comparable import unequal_training
from extrapolate.statistics.comparison import Comparison, resampled

ISOLATES = "fixed-target"  # scores the same targets at every length, so that their context alone differs
CUT_BACK = "a context cut back to L"
INFINITE = "an infinite loss"
# What is said of a model and its control, and of further lengths after it.
_OF_CONTROL: dict[OfControl | None, tuple[str, str]] = {
    BETTER: (f"is better than with {CUT_BACK}", "is better"),
    HOLDS: (f"holds against {CUT_BACK}", "holds"),
    WORSE: (f"is worse than with {CUT_BACK}", "is worse"),
    None: (f"is not shown to hold against {CUT_BACK}", "is not shown to hold"),
}


@dataclass(frozen=True)
class Answer:
    """What can be said of a protocol's models, and what was compared for it.

    asked: what the study asks, answered. resampled: what the intervals are over, in words. one_run: whether some model
    has one run. freedom: the degrees of freedom that the seeds leave, of each number of seeds.
    """

    text: str
    protocol: str
    family: Family
    resampled: str
    one_run: bool
    freedom: Sequence[int]
    asked: Sequence[str] = ()


def isolates(protocol: str) -> bool:
    """Whether a protocol scores the same targets at every length, each with more context; with whatever arguments."""
    return protocol.partition(":")[0] == ISOLATES


def answer(material: Material) -> Answer:
    """The answer, of `fixed-target` where it was evaluated, else of the first protocol.

    It rests on a small family of comparisons that no loss chooses: see `family`.
    """
    protocol = next(filter(isolates, material.rows), next(iter(material.rows)))
    rows, documents = material.rows[protocol], material.documents
    documents = documents[documents["protocol"] == protocol]
    found = family(rows, documents, material.models(protocol), isolates(protocol))
    said = []
    if len(found.trained) > 1:
        said.append(_against_reference(found))
        if unequal_training(rows):
            said[0] = f"{said[0].removesuffix('.')}; they were not trained alike."
    if found.longest > 1:
        best = _best(found.at_longest(found.orders))
        said += [_against_control(found, best.model if best else found.reference), _at_the_longest(found)]
        said += [_of_extensions(found)]
    else:
        some = (rows["factor"] > 1).any()
        said.append("No model reaches a length beyond L." if some else "No length beyond L was evaluated.")
    made, text = found.all(), " ".join(filter(None, said))
    one_run = any(one.one_run for one in made)
    if one_run and text:
        own_case = text[0].lower() + text[1:] if text.startswith(("No ", "There ", "Whether ")) else text
        text = f"In {'this run' if len(found.trained) == 1 else 'these runs'}, {own_case}"
    freedom = sorted({len(one.by_seed) - 1 for one in made if len(one.by_seed) > 1})
    return Answer(text, protocol, found, resampled(made), one_run, freedom, answers(material, protocol))


def _best(found: Sequence[Comparison]) -> Comparison | None:
    """The one that is better by most."""
    better = [one for one in found if one.word == BETTER]
    return min(better, key=lambda one: one.difference.mean if one.difference else math.inf, default=None)


def _against_reference(found: Family) -> str:
    """Which models are better than the reference at the longest length; else which are worse."""
    reference, others, at = found.reference, found.trained[1:], f"at {found.longest:g}x"
    here = found.at_longest(found.orders)
    told = [one for one in here if one.sure()]
    if not told:
        return _nothing_told(here, reference, others, at)
    best, better = _best(here), sum(one.word == BETTER for one in told)
    one = best or told[0]
    if best and len(others) > 1:
        number = f"{better} of {len(others)} models {_are_shown(better)}"
        return f"{number} be better than {reference} {at}, {best.model} by {_size(best)}{_shorter(found, best)}."
    if best or len(others) == 1:
        return f"{one.model} is {_by(one)} {at}{_shorter(found, one)}."
    worse = "all others" if len(told) == len(others) else f"{len(told)} of {len(others)} others"
    return f"No model is shown to be better than {reference} {at}, and {worse} {_are_shown(len(told))} be worse."


def _shorter(found: Family, longest: Comparison) -> str:
    """Where else the model is better, or worse: `, and better at 2x and 4x`."""
    said = ""
    for word in sorted(ORDERED, key=lambda word: word != longest.word):
        at = [f"{one.factor:g}x" for one in found.orders[longest.model][:0:-1] if one.word == word]
        said += f", {'and' if word == longest.word else 'but'} {word} at {_and(at)}" if at else ""
    return said


def _nothing_told(here: Sequence[Comparison], reference: str, others: Sequence[str], at: str) -> str:
    words = {one.word for one in here}
    if not here:
        return f"No model is compared with {reference}: they do not reach one length together."
    if words == {NO_SHARED_SEED}:
        return f"No model has a seed that {reference} has, so that none is compared with it."
    if words <= {TOO_FEW, NO_SHARED_SEED}:
        return "There are too few documents to tell models apart."
    if len(others) == 1:
        if words == {EQUIVALENT}:
            return f"{others[0]} and {reference} are equivalent {at}: they differ by less than {LEAST:g} nats."
        return f"Whether {others[0]} is better or worse than {reference} {at} is undecided."
    alike = sum(one.word == EQUIVALENT for one in here)
    said = f"No model is shown to be better or worse than {reference} {at}"
    return f"{said}, and {alike} of {len(others)} {_are_shown(alike)} be equivalent to it." if alike else f"{said}."


def _by(one: Comparison) -> str:
    """`0.15 nats (0.12 to 0.18) better than RoPE`."""
    size = _size(one)
    return f"{size} {one.word} than {one.other}" if size != INFINITE else f"{one.word} than {one.other} by {INFINITE}"


def _size(one: Comparison) -> str:
    """`0.15 nats (0.12 to 0.18)`."""
    found = one.difference
    if found is None or found.low is None or found.high is None or not math.isfinite(found.mean):
        return INFINITE
    digits = 2 if abs(found.mean) >= 0.1 else 3
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"{abs(found.mean):.{digits}f} nats ({low:.{digits}f} to {high:.{digits}f})"


def _against_control(found: Family, model: str) -> str:
    """What becomes of a model beside its own control, as far down from the longest length as that is told."""
    mine = found.controls.get(model, [])
    if not mine or mine[0].factor != found.longest:
        return f"{model} does not reach {found.longest:g}x."
    if mine[0].word == TOO_FEW:
        return "" if len(found.trained) > 1 else "There are too few documents to tell."
    said = {one.factor: of_control(one, found.alike) for one in reversed(mine)}
    if set(said.values()) == {HOLDS}:
        lows = [one.difference.low for one in mine if one.difference and one.difference.low is not None]
        gains = "but gains nothing" if found.alike and min(lows) > -LEAST else "and is not shown to gain anything"
        return f"{model} holds up to {found.longest:g}x, {gains} beyond {CUT_BACK}."
    parts: list[str] = []
    for word, verbs in _OF_CONTROL.items():
        at = [f"{factor:g}x" for factor, found_word in said.items() if found_word == word]
        if at:
            parts.append(f"{verbs[bool(parts)]} at {_and(at)}")
    return f"{model} {'; '.join(parts)}."


def _at_the_longest(found: Family) -> str:
    """Which of several models are better than their controls at the longest length, or worse."""
    here, count = found.at_longest(found.controls), len(found.trained)
    if count == 1 or all(one.word == TOO_FEW for one in here):
        return ""
    at = f"At {found.longest:g}x"
    better = [one.model for one in here if of_control(one, found.alike) == BETTER]
    worse = sum(of_control(one, found.alike) == WORSE for one in here)
    if len(better) == 1:
        return f"{at} only {better[0]} is shown to be better than with {CUT_BACK}."
    if better:
        who = "both models are" if len(better) == count == 2 else f"{len(better)} of {count} models are shown to be"
        return f"{at} {who} better than with {CUT_BACK}{f': {listed(better)}' if len(better) < count else ''}."
    if worse == count:
        return f"{at} {'both' if count == 2 else f'all {count}'} models are worse than with {CUT_BACK}."
    some_worse = f", and {worse} of {count} {_are_shown(worse)} be worse" if worse else ""
    return f"{at} {'neither' if count == 2 else 'no model'} is shown to be better than with {CUT_BACK}{some_worse}."


def _of_extensions(found: Family) -> str:
    """Whether an extension lowers a model's loss at the longest length."""
    count, at = len(found.extended), f"at {found.longest:g}x"
    told = [one for one in found.extensions if one.sure()]
    if not count or all(one.word == TOO_FEW for one in found.extensions):
        return ""
    best, better = _best(told), sum(one.word == BETTER for one in told)
    if best:
        if count == 1:
            return f"{best.model} is {_by(best)} {at}."
        number = f"{better} of {count} models with an extension {_are_shown(better)}"
        return f"{number} be better {at} than without it, {best.model} by {_size(best)}."
    worse = f", and {len(told)} of {count} {_are_shown(len(told))} be worse" if told else ""
    return f"No extension is shown to make a model better {at}{worse}."


def _are_shown(count: int) -> str:
    return "is shown to" if count == 1 else "are shown to"


def _and(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
