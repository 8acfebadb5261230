"""The arguments of `xt.inspect` and the flags of its command. Imports nothing slow."""

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

    windows: the most to read; None: 16, or fewer if the longest have more than 2,048 tokens, but at least 4.
    """

    measures: Annotated[
        tuple[str, ...], _what("{measurements}, or several; repeatable", name="--measure", usual="all")
    ] = ()
    windows: Annotated[
        int | None,
        _what("the most windows that are read at each length", usual="16, or fewer if they are long, but at least 4"),
    ] = None

    def evaluation(self) -> EvaluationSettings:
        """The settings of an evaluation at the same lengths with the same extensions, which is checked the same way."""
        return EvaluationSettings(factors=self.factors, extend=self.extend, protocols=(PROTOCOL,), split=self.split)
