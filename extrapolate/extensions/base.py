"""What an extension is: a recipe that, for an encoding and a length, resolves to a plan."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from extrapolate import specs

if TYPE_CHECKING:
    from extrapolate.encodings.base import Encoding


@dataclass(frozen=True)
class Branch:
    """Some of the pairs of a query and a key, and where they pretend to be: all by index in the window.

    `queries` and `keys` give pretended positions, `seen(i, j)` whether query i attends to key j here.
    """

    queries: Callable[[Tensor], Tensor]
    keys: Callable[[Tensor], Tensor]
    seen: Callable[[Tensor, Tensor], Tensor]


class Pairs(ABC):
    """Which pairs attend, at which pretended positions: branches whose pairs differ, one softmax over all.

    Subclasses are frozen dataclasses: equal ones give the same numbers.
    """

    @abstractmethod
    def branches(self) -> list[Branch]:
        """At least one; no pair is seen in two."""


@dataclass(frozen=True)
class Plan:
    """What changes at one evaluation length. The defaults change nothing, exactly.

    position_scale multiplies every position before the encoding sees it; value_scale multiplies the values that
    ExPE writes; frequency_scale multiplies the frequencies, one factor each (none: unchanged); logit_scale
    multiplies every score; with log_length L, scores of query i are multiplied by max(1, ln(i + 1) / ln L) too;
    window hides keys further back than so many tokens; pairs decides which keys are seen, and from where; storage
    is what an encoding's own values are rounded to. Two lengths, or two extensions, whose plans are equal give the
    same numbers.
    """

    position_scale: float = 1.0
    value_scale: float = 1.0
    frequency_scale: tuple[float, ...] = ()
    logit_scale: float = 1.0
    log_length: int | None = None
    window: int | None = None
    pairs: Pairs | None = None
    storage: Literal["fp32", "bf16"] = "fp32"

    def query_scale(self, length: int, device: torch.device) -> Tensor | None:
        """What the scores of each query are multiplied by, [1, T], from its true index; None for nothing."""
        if self.log_length is None:
            return None if self.logit_scale == 1.0 else torch.full((1, length), self.logit_scale, device=device)
        index_T = torch.arange(1, length + 1, device=device)
        return self.logit_scale * (index_T.log() / torch.tensor(self.log_length).log()).clamp(min=1.0)[None]

    def joined(self, other: "Plan") -> "Plan":
        """Both: logit scales multiply, the rest must not be in both."""
        changed = {
            field.name: getattr(other, field.name)
            for field in dataclasses.fields(self)
            if getattr(other, field.name) != field.default
        }
        return dataclasses.replace(self, **changed | {"logit_scale": self.logit_scale * other.logit_scale})


PLAIN = Plan()


class Extension(ABC):
    """Something applied at inference to reach beyond the training length.

    Keyword-only arguments of the constructor are the configuration, as for encodings.
    """

    display: ClassVar[str]  # the name in tables: "PI"
    source: ClassVar[str]
    slot: str  # what of a plan it fills: extensions join where their slots differ, and scales multiply
    needs: ClassVar[str]  # what the encoding must accept: see `Encoding.accepts`
    clashes_with_ssmax: ClassVar[bool] = False

    @abstractmethod
    def plan(self, encoding: "Encoding", seq_len: int, length: int) -> Plan:
        """The plan for windows of `length` tokens and a model trained at `seq_len`.

        Raises ValueError where the extension cannot reach so far with its arguments.
        """

    def arguments(self) -> dict[str, Any]:
        """The configuration."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    def label(self) -> str:
        """The name in tables, with the arguments given: `PI(2)`."""
        usual = specs.parameters(type(self))
        given = [_short(value) for name, value in self.arguments().items() if value != usual[name].default]
        return self.display + (f"({', '.join(given)})" if given else "")

    def unfitted(self) -> bool:
        """Whether a constant was left out that has to be fitted to held-out text, for each length."""
        return False

    def fitted(self, value: float) -> Self:
        """This extension with that constant."""
        raise ValueError(f"{self.display} has no constant to fit")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


SCALE = "scale"  # the one slot that several may fill

extensions: specs.Registry[Extension] = specs.Registry("extension")
register = extensions.register
