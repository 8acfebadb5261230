"""What to inspect: the arguments of `xt.inspect`, and the flags of its command. Imports nothing that takes long."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from extrapolate.evaluation.settings import EvaluationSettings, Lengths
from extrapolate.specs.settings import Flag

PROTOCOL = "fixed-target"  # windows that end at the same places, with more and more context before them
_what = partial(Flag, panel="What to inspect")


@dataclass(frozen=True)
class InspectionSettings(Lengths):
    """What to measure, on how many windows.

    windows is the most that are read; None: 16, or fewer where the longest have more than 2,048 tokens, but 4.
    """

    measures: Annotated[
        tuple[str, ...], _what("{measurements}, or several; repeatable", name="--measure", usual="all")
    ] = ()
    windows: Annotated[
        int | None,
        _what("the most windows that are read at each length", usual="16; fewer, to 4, of long ones"),
    ] = None

    def evaluation(self) -> EvaluationSettings:
        """The settings of an evaluation of the same lengths and extensions, which is checked in the same way."""
        return EvaluationSettings(factors=self.factors, extend=self.extend, protocols=(PROTOCOL,), split=self.split)
