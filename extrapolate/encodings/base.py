"""The places where position can enter a decoder.

Shapes: B batch, T queries, S keys, D width, H heads, G key and value heads, K head dim.
"""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from extrapolate import specs

if TYPE_CHECKING:
    from extrapolate.extensions.base import Plan

# What an extension may change in an encoding: see `Encoding.accepts`.
POSITIONS, VALUES = "positions", "values"


@dataclass(frozen=True)
class Dims:
    """What an encoding may know of its model: width D, heads H, head_dim K, training length L (tokens), its layer."""

    width: int
    heads: int
    head_dim: int
    seq_len: int
    layer: int = 0
    layers: int = 1


class Encoding(nn.Module):
    """How position enters a model, one instance per layer.

    Every hook is the identity, or None for "nothing"; an encoding overrides what its paper changes. The order
    of the hooks is the order of the tensors in the forward pass. Keyword-only arguments of the constructor are
    the configuration; each is kept, resolved, in an attribute of its own name, so that values which depend on
    the training length are stored with the run. Positions are float32, also under autocast.
    """

    display: ClassVar[str]  # the name in tables: "RoPE"
    source: ClassVar[str]  # the arXiv id, or what else the formula comes from
    caption: ClassVar[str] = ""  # said under every table that shows this encoding
    accepts: ClassVar[frozenset[str]] = frozenset({POSITIONS})  # which changes at inference mean something
    max_length: int | None = None  # a learned table ends here: longer is reported n/a
    window: int | None = None  # this layer's queries see at most so many keys, their own included

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.dims = dims

    def positions(self, index_T: Tensor) -> Tensor:
        """The position of each token, from its index in the window."""
        return index_T

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        """What enters the first block. Asked of the first layer's instance only."""
        return x_BTD

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        """What W_q and W_k read, and what W_v reads."""
        return x_BTD, x_BTD

    def rotate(self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, after their projections."""
        return q_BHTK, k_BGSK

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor | None:
        """[H, T, S], added to the scaled scores; or None."""
        return None

    def extended(self, plan: "Plan") -> Self:
        """This encoding with the plan's changes to its own values; parameters stay shared. Most have none."""
        return self

    def view(self, **attributes: Any) -> Self:
        """A shallow copy with other attributes, sharing every parameter and buffer."""
        other = copy.copy(self)
        other.__dict__.update(attributes)
        return other

    def arguments(self) -> dict[str, Any]:
        """The configuration, resolved."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    @classmethod
    def label(cls, arguments: Mapping[str, Any], dims: Dims) -> str:
        """The name in tables: `ExPE`, with any argument that is not its default: `ExPE(size=32)`."""
        usual = cls(dims).arguments()
        given = [f"{name}={_short(value)}" for name, value in arguments.items() if usual[name] != value]
        return cls.display + (f"({', '.join(given)})" if given else "")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


encodings: specs.Registry[Encoding] = specs.Registry("encoding")
register = encodings.register


def find(name: str) -> type[Encoding]:
    """The class called `name`: a registered name, or `path/to/file.py:Class`. Raises ValueError if there is none."""
    file, colon, class_name = name.rpartition(":")
    if colon:
        return specs.load_user_class(Path(file), class_name, Encoding)
    return encodings[name]


def build(name: str, arguments: Mapping[str, Any], dims: Dims) -> list[Encoding]:
    """One instance per layer. Raises ValueError on unknown names, arguments, or values the encoding refuses."""
    cls = find(name)
    converted = specs.convert_arguments(cls, arguments, owner=name)
    return [cls(dataclasses.replace(dims, layer=layer), **converted) for layer in range(dims.layers)]
