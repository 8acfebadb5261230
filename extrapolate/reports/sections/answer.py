"""The answer first: what a study asks, and at most two sentences that say no more than the comparisons tell."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extrapolate.evaluation.protocols.base import ISOLATES, isolates
from extrapolate.reports.fdr import HOLDS, Family, about_these_runs, family, of_control, simultaneous
from extrapolate.reports.page import Details, Quotable, Text
from extrapolate.reports.questions import QUESTIONS, answers
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, sections
from extrapolate.reports.sections.doubling import doublings, still_moving
from extrapolate.reports.sections.learning_rates import at_edge
from extrapolate.reports.sections.positions import hardly_learned
from extrapolate.results import verdicts
from extrapolate.results.described import Described
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, NO_SHARED_SEED, TOO_FEW, WORSE
from extrapolate.statistics.comparable import of_one_parent, unequal_training
from extrapolate.statistics.comparison import Comparison, resampled
from extrapolate.statistics.intervals import FEWEST_SEEDS

MOST_NAMES = 3  # in a sentence; further models are counted
ASKED = Described(
    "questions", "`questions.parquet` of a study with a `[[question]]`", "run on one side of a question",
    QUESTIONS.groups,
)  # fmt: skip


@sections.register("answer")
class TheAnswer(Section):
    """Answers to a study's questions, what the intervals say of its models, and learning rates that may not be best."""

    chapter = "The answer"
    place = 0
    tables = (ASKED,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["answer"] if data.rows else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        found = answer(data)
        before, after = (hardly_learned(data), found.moving), (found.text, at_edge(data))
        said = [text for text in (*before, *found.asked, *after) if text]
        how = Details([Text(explained(found))], "How sure is this?")
        return Part([*(Quotable(text, strong=True) for text in said), how])


@dataclass(frozen=True)
class Answer:
    """What can be said about a protocol's models, and the comparisons behind it.

    moving: says that it may be another after more training, if it may. asked: the answers to the study's questions.
    resampled: what the intervals are over, in words. of_runs: whether some models have too few seeds for the answer to
    be about more than these runs. freedom: the degrees of freedom left for each number of seeds.
    """

    text: str
    moving: str
    protocol: str
    family: Family
    resampled: str
    of_runs: bool
    freedom: Sequence[int]
    asked: Sequence[str] = ()


def answer(data: ReportData) -> Answer:
    """The answer for `fixed-target` if it was evaluated, and for the first protocol otherwise.

    The losses do not influence what is compared: see `family`.
    """
    protocol = data.protocols()[0]
    rows = data.rows[protocol]
    found = family(rows, data.of_documents(protocol), data.models(protocol), isolates(protocol))
    clauses = [_against_reference(found) if len(found.trained) > 1 else "", _of_extensions(found)]
    first = "; ".join(filter(None, clauses))
    if len(found.trained) > 1 and unequal_training(rows):
        first += "; they were not trained alike"
    if first and of_one_parent(rows):
        first += "; several seeds continue one run"
    if found.longest > 1:
        second = _against_control(found, alone=not first)
    else:
        some = (rows["factor"] > 1).any()
        second = "No model reaches a length beyond L" if some else "No length beyond L was evaluated"
    said = [f"{sentence}." for sentence in (first, second) if sentence]
    made, text = found.all(), " ".join(said)
    of_runs = any(map(about_these_runs, made))
    if of_runs and text:
        if text.startswith(("No ", "There ", "Whether ", "At ", "With ")):  # and not with a model's name
            text = text[0].lower() + text[1:]
        text = f"In {'this run' if rows['run'].nunique() == 1 else 'these runs'}, {text}"
    freedom = sorted({len(one.by_seed) - 1 for one in made if not about_these_runs(one) and one.by_seed})
    along = isolates(protocol) and protocol in data.along
    moving = still_moving(doublings(*data.all_checkpoints(protocol), found)) if along else ""
    return Answer(text, moving, protocol, found, resampled(made), of_runs, freedom, answers(data, protocol))


def _lowest(found: Iterable[Comparison]) -> list[Comparison]:
    """Sorted by difference, the lowest first: a sentence names the first ones and counts the rest."""
    return sorted(found, key=lambda one: one.difference.mean if one.difference else math.inf)


def _against_reference(found: Family) -> str:
    """Which models are better or worse than the reference at the longest length."""
    reference, others, at = found.reference, found.trained[1:], f"at {found.longest:g}x"
    told = [one for one in found.orders if one.sure()]
    if not told:
        return _nothing_told(found.orders, reference, others, at)
    better = _lowest(one for one in told if one.word == BETTER)
    if better or len(others) == 1:
        also = [one.model for one in better[1:]]
        more = f"; {_listed(also)} {_are(also)} better too" if also else ""
        behind = [one.model for one in reversed(_lowest(told)) if one.word == WORSE]
        more += f"; {_listed(behind)} {_are(behind)} worse" if better and behind else ""
        return f"{_by((better or told)[0], len(found.orders))}{more}"
    worse = "all others are" if len(told) == len(others) else f"{_listed([one.model for one in told])} {_are(told)}"
    return f"No model is shown to be better than {reference} {at}, and {worse} worse"


def _nothing_told(here: Sequence[Comparison], reference: str, others: Sequence[str], at: str) -> str:
    words = {one.word for one in here}
    if not here:
        return f"No model is compared with {reference}: they do not reach one length together"
    if words == {NO_SHARED_SEED}:
        return f"No model has a seed that {reference} has, so that none is compared with it"
    if words <= {TOO_FEW, NO_SHARED_SEED}:
        return "There are too few documents to tell models apart"
    if len(others) == 1:
        if words == {EQUIVALENT}:
            return f"{others[0]} and {reference} are equivalent {at}: they differ by less than {LEAST:g} nats"
        return f"Whether {others[0]} is better or worse than {reference} {at} is undecided"
    alike = [one.model for one in here if one.word == EQUIVALENT]
    said = f"No model is shown to be better or worse than {reference} {at}"
    return f"{said}, and {_listed(alike)} {_are(alike)} equivalent to it" if alike else said


def _by(one: Comparison, among: int) -> str:
    """`FoX is better than RoPE by 0.80 nats (0.52 to 1.09) at 16x`, the largest difference among `among` comparisons.

    Since it is the largest, its interval is the simultaneous one. It is left out if it includes zero.
    """
    said, wider = f"{one.model} is {one.word} than {one.other} by", simultaneous(one, among)
    found = wider.difference
    if found is None or found.low is None or found.high is None or not math.isfinite(found.mean):
        return f"{said} an infinite loss at {one.factor:g}x"
    digits = 2 if abs(found.mean) >= 0.1 else 3
    said += f" {abs(found.mean):.{digits}f} nats"
    if wider.sure():
        low, high = sorted((abs(found.low), abs(found.high)))
        said += f" ({low:.{digits}f} to {high:.{digits}f})"
    return f"{said} at {one.factor:g}x"


def _against_control(found: Family, alone: bool) -> str:
    """How each model changes at the longest length, relative to the same model with its context cut back.

    alone: whether no sentence before it names the longest length.
    """
    here = found.controls
    if here and all(one.word == TOO_FEW for one in here):
        return "There are too few documents to tell" if alone else ""
    word = {one.model: of_control(one, found.excused) for one in _lowest(here)}
    said = []
    for verdict, (verb, verbs) in {
        BETTER: ("gets better", "get better"),
        HOLDS: (f"loses less than {LEAST:g} nats", f"lose less than {LEAST:g} nats"),
        WORSE: ("gets worse", "get worse"),
    }.items():
        models = [model for model in word if word[model] == verdict]
        if verdict == WORSE:
            models.reverse()
        if len(models) == len(found.trained) > 1:
            said.append(f"{'both' if len(models) == 2 else f'all {len(models)}'} models {verbs}")
        elif models:
            said.append(f"{_listed(models)} {verb if len(models) == 1 else verbs}")
    reaching = {*word, *(one.model for one in found.orders)}
    unknown = [model for model in found.trained if model in reaching and word.get(model) is None]
    if unknown:
        lose = "loses" if len(unknown) == 1 else "lose"
        nothing_else = f"it is undecided whether {_listed(unknown)} {lose} anything"
        said.append(f"for {_listed(unknown)} this is undecided" if said else nothing_else)
    ends = [model for model in found.trained if model not in reaching]
    if ends:
        said.append(f"{_listed(ends)} {'has' if len(ends) == 1 else 'have'} no loss at {found.longest:g}x")
    if not here:
        return "; ".join(said)
    return f"{f'At {found.longest:g}x,' if alone else 'With the longer context,'} {'; '.join(said)}"


def _of_extensions(found: Family) -> str:
    """Whether an extension lowers a model's loss at the longest length."""
    told = [one for one in found.extensions if one.sure()]
    if all(one.word == TOO_FEW for one in found.extensions):
        return ""
    if better := _lowest(one for one in told if one.word == BETTER):
        return _by(better[0], len(found.extensions))
    worse = [one.model for one in told]
    none = (
        "no extension is shown to help"
        if len(found.trained) > 1
        else f"No extension is shown to help at {found.longest:g}x"
    )
    return none + (f", and {_listed(worse)} {_are(worse)} worse than without" if worse else "")


def explained(found: Answer) -> str:
    """What the answer rests on, and what its words mean."""
    said = (
        f"Protocol {found.protocol}. {verdicts.explained(LEAST)} With the longer context, a model is compared with "
        "itself on the same tokens, with its context cut back to the training length, L tokens (the control). It loses "
        f"less than {LEAST:g} nats if the whole interval of its loss minus the control's is below that. "
        f"{_compared(found.family)} {found.resampled}"
    )
    if found.freedom:
        said += (
            f" Student's t, used for the part over seeds, has {' or '.join(map(str, found.freedom))} "
            f"degree{'' if found.freedom == [1] else 's'} of freedom."
        )
        if shared := max((one.estimate.shared for one in found.family.orders if one.estimate), default=0.0):
            said += (
                f" In comparisons with {found.family.reference} it has {shared:.2g} more, because each variance over "
                "seeds is averaged with the mean of all."
            )
    if not isolates(found.protocol):
        said += (
            " The windows of this protocol begin without context, which the control has. A model is therefore called "
            f"worse only if it is surely further above its control than at 1x. The protocol {ISOLATES} isolates length."
        )
    if found.asked:
        said += (
            " The answers to the study's questions have an error rate of 5 % of their own: their intervals hold all "
            "at once (Bonferroni)."
        )
    if found.of_runs:
        said += f" With fewer than {FEWEST_SEEDS} seeds, this is about these runs: other seeds may give another order."
    return said


def _compared(family: Family) -> str:
    """What was compared, and how sure that is."""
    compared = {
        f"every model with {family.reference}": family.orders,
        "every model with its control": family.controls,
        "every model that has an extension with the same model without it": family.extensions,
    }
    said = [text for text, found in compared.items() if found]
    if not said:
        return "Nothing was compared."
    return (
        f"The comparisons at {family.longest:g}x were fixed before any loss was seen: {', '.join(said)}. Of the "
        f"statements that answer {'each of these questions' if len(said) > 1 else 'this'}, at most 5 % are wrong on "
        "average (the false discovery rate: Benjamini and Hochberg 1995). An interval in parentheses holds for all "
        "comparisons of its question at once (Bonferroni), and is left out if it includes zero."
    )


def _are(models: Sequence[object]) -> str:
    return "is" if len(models) == 1 else "are"


def _listed(models: Sequence[str]) -> str:
    """`A, B and C`, `A, B and 4 others`."""
    if len(models) > MOST_NAMES:
        models = [*models[: MOST_NAMES - 1], f"{len(models) - MOST_NAMES + 1} others"]
    return models[0] if len(models) == 1 else f"{', '.join(models[:-1])} and {models[-1]}"
