"""The answer first: a sentence that a person can quote."""

from collections.abc import Sequence

from extrapolate.reports.answer import Answer, answer
from extrapolate.reports.family import Family
from extrapolate.reports.material import ISOLATES, Material, isolates
from extrapolate.reports.page import Details, Quotable, Text
from extrapolate.reports.questions import QUESTIONS
from extrapolate.reports.sections.base import Part, Section, sections
from extrapolate.reports.sections.learning_rates import at_edge
from extrapolate.results import verdicts
from extrapolate.results.described import Described
from extrapolate.statistics.intervals import FEWEST_SEEDS

ASKED = Described(
    "questions", "`questions.parquet` of a study with a `[[question]]`", "run on one side of a question",
    QUESTIONS.groups,
)  # fmt: skip


@sections.register("answer")
class TheAnswer(Section):
    """What a study asks, what the intervals say of its models, and whose learning rate may not be the best."""

    chapter = "The answer"
    place = 0
    tables = (ASKED,)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return ["answer"] if material.rows else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        found = answer(material)
        said = [*found.asked, *filter(None, [found.text, at_edge(material)])]
        how = Details([Text(explained(found))], "How sure is this?")
        return Part([*(Quotable(text, strong=True) for text in said), how])


def explained(found: Answer) -> str:
    """What the answer rests on, and what its words mean."""
    said = (
        f"Protocol {found.protocol}. {verdicts.explained(verdicts.LEAST)} With the longer context, a model is compared "
        "with itself on the same tokens, its context cut back to the training length, L tokens (the control). It loses "
        f"less than {verdicts.LEAST:g} nats if the whole interval of its loss minus the control's is below that. "
        f"{_compared(found.family)} {found.resampled}"
    )
    if found.freedom:
        said += (
            f" Student's t, which makes the part over seeds, has {' or '.join(map(str, found.freedom))} "
            f"degree{'' if found.freedom == [1] else 's'} of freedom."
        )
        if shared := max((one.estimate.shared for one in found.family.orders if one.estimate), default=0.0):
            said += (
                f" Beside {found.family.reference}, {shared:.2g} more: each variance over seeds is averaged with the "
                "mean of all."
            )
    if not isolates(found.protocol):
        said += (
            " The windows of this protocol begin without context, which the control has, so that a model can be worse "
            f"than its control for another reason than length, and this is not said. The protocol {ISOLATES} isolates "
            "length."
        )
    if found.asked:
        said += " What the study asks has 5 % of its own: the intervals of these answers hold all at once (Bonferroni)."
    if found.of_runs:
        said += f" With fewer than {FEWEST_SEEDS} seeds, this is about these runs: other seeds may give another order."
    return said


def _compared(family: Family) -> str:
    """What was compared, and how sure that is."""
    at, said = f"at {family.longest:g}x", []
    if family.orders:
        said.append(f"every model with {family.reference}")
    if family.controls:
        said.append("every model with its control")
    if family.extensions:
        said.append("every model that has an extension with the same model without it")
    if not said:
        return "Nothing was compared."
    return (
        f"What is compared {at} was fixed before any loss was seen: {', '.join(said)}. Of what is said in answer to "
        f"{'each of these questions' if len(said) > 1 else 'this'}, at most 5 % is wrong on average (the false "
        "discovery rate: Benjamini and Hochberg 1995). An interval in parentheses holds for all comparisons of its "
        "question at once (Bonferroni), and is left out if it includes zero."
    )
