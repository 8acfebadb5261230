"""The base class of extensions, which make a plan for an encoding and a length."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from extrapolate import specs
from extrapolate.encodings.base import FREQUENCIES, Encoding
from extrapolate.encodings.plan import ALL_LAYERS, PLAIN, Plan, is_of
from extrapolate.errors import UserError

LONGEST = 24  # characters of an argument in a label


class Extension(ABC):
    """The base class of extensions, which are applied at inference to reach beyond the training length.

    Keyword-only arguments of the constructor are the configuration, as for encodings.
    """

    display: ClassVar[str]  # the name in tables: "PI"
    source: ClassVar[str]
    slot: str  # the part of a plan that it fills: extensions can be joined if their slots differ; scales multiply
    needs: ClassVar[str]  # what the encoding must accept: see `Encoding.accepts`
    clashes_with_ssmax: ClassVar[bool] = False
    example: ClassVar[str] = ""  # an example of the argument that is otherwise fitted: "c=0.4"
    for_layers: str = ALL_LAYERS  # the default kind of layers that it applies to

    @abstractmethod
    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        """The plan for windows of `length` tokens and a model trained at `seq_len`.

        Raises UserError if the extension cannot reach this length with its arguments.
        """

    def applied(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        """The plan, limited to the extension's layers."""
        plan = self.plan(encoding, seq_len, length)
        return plan if self.for_layers == ALL_LAYERS or plan == PLAIN else Plan(only=((self.for_layers, plan),))

    def with_layers(self, layers: str) -> Self:
        """A copy for layers of that kind."""
        other = copy.copy(self)
        other.for_layers = layers
        return other

    def arguments(self) -> dict[str, Any]:
        """The configuration."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    def label(self) -> str:
        """The name in tables with arguments that are not defaults, the first without its name: `YaRN(8, fast=16)`."""
        given = []
        for at, (name, usual) in enumerate(specs.parameters(type(self)).items()):
            if (value := getattr(self, name)) != usual.default:
                given.append(f"{name}={_short(value)}" if at else _short(value))
        if self.for_layers != type(self).for_layers:
            given.append(f"{self.for_layers} layers")
        return self.display + (f"({', '.join(given)})" if given else "")

    def refusal(self, encodings: Sequence[Encoding]) -> str | None:
        """Why it does not apply to a model whose layers have these encodings; None if it does."""
        label = encodings[0].display
        if self.needs not in encodings[0].accepts:
            return f"it changes {self.needs}, and {label} has none that can be changed at inference"
        its = [encoding for encoding in encodings if is_of(self.for_layers, encoding)]
        if not its:
            return f"it is for {self.for_layers} layers, and {label} has none here"
        if self.for_layers != ALL_LAYERS and self.needs == FREQUENCIES and not any(one.has_rotation for one in its):
            return f"it changes frequencies, and the {self.for_layers} layers of {label} have none here"
        return None

    def unfitted(self) -> bool:
        """Whether a constant must be fitted to held-out text for each length."""
        return False

    def fitted(self, value: float) -> Self:
        """This extension with that constant."""
        raise UserError(f"{self.display} has no constant to fit")


class Searched(Extension):
    """An extension with several constants, or whole numbers, that are found by a search."""

    @abstractmethod
    def fitted(self, value: float) -> Self:
        """Without a search: for 0, what applies up to the training length; otherwise a placeholder for the result."""

    @abstractmethod
    def found(self, encoding: Encoding, seq_len: int, length: int, loss: Callable[[Self], float]) -> Self:
        """This extension with the constants that give the lowest loss in windows of `length` tokens."""

    @abstractmethod
    def most_tries(self, count: int) -> int:
        """An upper bound on calls of the loss by `found`, for an encoding with `count` frequencies."""


def _short(value: Any) -> str:
    """A value in a label; a long list is cut and gets a hash."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}...{hashlib.sha256(text.encode()).hexdigest()[:4]}"


SCALE = "scale"  # the only slot that several extensions can fill together

extensions: specs.Registry[Extension] = specs.Registry("extension")
register = extensions.register
