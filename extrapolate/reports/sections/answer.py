"""The answer first: a sentence that a person can quote."""

from collections.abc import Sequence

from extrapolate.reports.answer import CUT_BACK, ISOLATES, LEAST, Answer, answer, isolates
from extrapolate.reports.material import Material
from extrapolate.reports.page import Quotable, Text
from extrapolate.reports.sections.base import Part, Section, sections


@sections.register("answer")
class TheAnswer(Section):
    """What the intervals say of the models, in at most three sentences."""

    chapter = "The answer"
    place = 0

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return ["answer"] if material.rows else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        found = answer(material)
        return Part([Quotable(found.text, strong=True), Text(explained(found))])


def explained(found: Answer) -> str:
    """What the answer rests on, and what its words mean."""
    said = (
        f"Protocol {found.protocol}. To beat, to lose, better and worse are said where an interval excludes zero; to "
        f"hold, where a loss is surely less than {LEAST:g} nats above that with {CUT_BACK} (the control). "
        f"These sentences are chosen among {found.comparisons} comparisons: of each model with {found.reference}, and "
        "with its control. Their intervals hold all at once at 95 % (Bonferroni), so that the choice claims nothing "
        f"more. {found.resampled}"
    )
    if not isolates(found.protocol):
        said += (
            " The windows of this protocol begin without context, which the control has, so that losing to it would not"
            f" be the fault of length alone, and is not said. The protocol {ISOLATES} isolates length."
        )
    if found.one_run:
        said += " Where a model has one seed, nothing is known of other seeds."
    return said
