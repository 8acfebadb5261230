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
        f"nothing if its loss is surely less than {verdicts.LEAST:g} nats above the control's. "
        f"{_compared(found.family)} {found.resampled}"
    )
    if found.freedom:
        said += (
            f" Student's t, which makes the part over seeds, has {' or '.join(map(str, found.freedom))} "
            f"degree{'' if found.freedom == [1] else 's'} of freedom."
        )
    if not isolates(found.protocol):
        said += (
            " The windows of this protocol begin without context, which the control has, so that a model can be worse "
            f"than its control for another reason than length, and this is not said. The protocol {ISOLATES} isolates "
            "length."
        )
    if found.asked:
        said += " What the study asks has 5 % of its own: the intervals of these answers hold all at once (Bonferroni)."
    if found.one_run:
        said += " Where a model has one seed, nothing is known of other seeds."
    return said


def _compared(family: Family) -> str:
    """What was compared, and how sure that is."""
    of_models, of_extensions = (f"{share:.2%}" for share in family.shares)
    at, others, extended = f"at {family.longest:g}x", len(family.trained) > 1, len(family.extended)
    said = []
    if family.longest > 1:
        who = "Each model as it was trained" if others else "The model as it was trained"
        what = f"with {family.reference} and with its control" if others else "with its control"
        said.append(
            f"{who} is compared {what} {at}, and at each shorter length for as long as every comparison tells "
            f"something; its error rate is {of_models}."
        )
    elif others:
        said.append(f"Each model is compared with {family.reference} {at}; its error rate is {of_models}.")
    if extended:
        whose = "The model" if extended == 1 else f"Each of {extended} models"
        said.append(
            f"{whose} with an extension is compared {at} with the same model without; its error rate is "
            f"{of_extensions}."
        )
    if not said:
        return "Nothing was compared."
    return (
        f"What is compared was fixed before any loss was seen. {' '.join(said)} Together these are 5 %: the intervals "
        "in brackets hold all at once (Bonferroni), and of 100 reports, about 5 at most tell an order that is not so."
    )
