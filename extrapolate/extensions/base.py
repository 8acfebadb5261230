"""What an extension is: a recipe that, for an encoding and a length, resolves to a plan."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from extrapolate import specs

if TYPE_CHECKING:
    from extrapolate.encodings.base import Encoding


@dataclass(frozen=True)
class Plan:
    """What changes at one evaluation length. The defaults change nothing, exactly.

    position_scale multiplies every position before the encoding sees it; value_scale multiplies the values that
    ExPE writes. Two lengths, or two extensions, whose plans are equal give the same numbers.
    """

    position_scale: float = 1.0
    value_scale: float = 1.0


PLAIN = Plan()


class Extension(ABC):
    """Something applied at inference to reach beyond the training length.

    Keyword-only arguments of the constructor are the configuration, as for encodings.
    """

    display: ClassVar[str]  # the name in tables: "PI"
    source: ClassVar[str]
    needs: ClassVar[str]  # what the encoding must accept: see `Encoding.accepts`

    @abstractmethod
    def plan(self, seq_len: int, length: int) -> Plan:
        """The plan for windows of `length` tokens and a model trained at `seq_len`."""

    def arguments(self) -> dict[str, Any]:
        """The configuration."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    def label(self) -> str:
        """The name in tables, with the arguments given: `PI(2)`."""
        given = [f"{value:g}" for value in self.arguments().values() if value is not None]
        return self.display + (f"({', '.join(given)})" if given else "")

    @classmethod
    def applies_to(cls, encoding: "Encoding") -> bool:
        """Whether the extension means anything for the encoding."""
        return cls.needs in encoding.accepts


extensions: specs.Registry[Extension] = specs.Registry("extension")
register = extensions.register


def build(text: str) -> Extension:
    """An extension from its spec: `pi`, `pi:factor=4`. Raises ValueError on unknown names, arguments or values."""
    spec = specs.parse(text)
    cls = extensions[spec.name]
    return cls(**specs.convert_arguments(cls, spec.arguments, owner=spec.name))


def check_applies(text: str, encoding: "Encoding", encoding_label: str) -> None:
    """Raises ValueError where the extension means nothing for the encoding, saying why and what does apply."""
    cls = extensions[specs.parse(text).name]
    if cls.applies_to(encoding):
        return
    applicable = [name for name in extensions.names() if extensions[name].applies_to(encoding)]
    raise ValueError(
        f"{specs.parse(text).name} means nothing for {encoding_label}: it changes {cls.needs}, "
        f"and {encoding_label} has none that can be changed at inference; "
        f"what applies: {', '.join(applicable) or 'no extension'}"
    )
