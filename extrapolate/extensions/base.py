"""What an extension is: a recipe that, for an encoding and a length, resolves to a plan."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from extrapolate import specs
from extrapolate.encodings.base import FREQUENCIES
from extrapolate.encodings.plan import ALL_LAYERS, PLAIN, Plan, is_of
from extrapolate.errors import UserError

if TYPE_CHECKING:
    from extrapolate.encodings.base import Encoding


LONGEST = 24  # characters of an argument in a label


class Extension(ABC):
    """The base class of extensions, which are applied at inference to reach beyond the training length.

    Keyword-only arguments of the constructor are the configuration, as for encodings.
    """

    display: ClassVar[str]  # the name in tables: "PI"
    source: ClassVar[str]
    slot: str  # the part of a plan it fills: extensions join if their slots differ, and scales multiply
    needs: ClassVar[str]  # what the encoding must accept: see `Encoding.accepts`
    clashes_with_ssmax: ClassVar[bool] = False
    example: ClassVar[str] = ""  # of a constant that would be fitted, as it is given: "c=0.4"
    for_layers: str = ALL_LAYERS  # the kind of layers that it is for; a recipe's text may give another

    @abstractmethod
    def plan(self, encoding: "Encoding", seq_len: int, length: int) -> Plan:
        """The plan for windows of `length` tokens and a model trained at `seq_len`.

        Raises UserError if the extension cannot reach this length with its arguments.
        """

    def applied(self, encoding: "Encoding", seq_len: int, length: int) -> Plan:
        """The plan, for the layers that the extension is for."""
        plan = self.plan(encoding, seq_len, length)
        return plan if self.for_layers == ALL_LAYERS or plan == PLAIN else Plan(only=((self.for_layers, plan),))

    def with_layers(self, layers: str) -> Self:
        """The same for layers of that kind."""
        other = copy.copy(self)
        other.for_layers = layers
        return other

    def arguments(self) -> dict[str, Any]:
        """The configuration."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    def label(self) -> str:
        """The name in tables, with what is not its default, the first argument by its value: `YaRN(8, fast=16)`."""
        given = []
        for at, (name, usual) in enumerate(specs.parameters(type(self)).items()):
            if (value := getattr(self, name)) != usual.default:
                given.append(f"{name}={_short(value)}" if at else _short(value))
        if self.for_layers != type(self).for_layers:
            given.append(f"{self.for_layers} layers")
        return self.display + (f"({', '.join(given)})" if given else "")

    def refusal(self, encodings: "Sequence[Encoding]") -> str | None:
        """Why it means nothing for a model whose layers have these encodings; None if it means something."""
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
        """Whether a constant must be fitted to held-out text, for each length."""
        return False

    def fitted(self, value: float) -> Self:
        """This extension with that constant."""
        raise UserError(f"{self.display} has no constant to fit")


class Searched(Extension):
    """An extension whose constants are found by trying: there are several, or they are whole numbers."""

    @abstractmethod
    def fitted(self, value: float) -> Self:
        """Without a search: what applies up to the training length for 0, a stand-in for what is found otherwise."""

    @abstractmethod
    def found(self, encoding: "Encoding", seq_len: int, length: int, loss: Callable[[Self], float]) -> Self:
        """This extension with the constants that give the lowest loss in windows of `length` tokens."""

    @abstractmethod
    def most_tries(self, count: int) -> int:
        """How often `found` calls the loss, at most, for an encoding with `count` frequencies."""


def _short(value: Any) -> str:
    """A value in a label; a long list is cut and gets a hash that tells it from others."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}...{hashlib.sha256(text.encode()).hexdigest()[:4]}"


SCALE = "scale"  # the only slot that several extensions may fill

extensions: specs.Registry[Extension] = specs.Registry("extension")
register = extensions.register
