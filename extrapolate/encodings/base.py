"""The places where position can enter a decoder.

Shapes: B batch, T queries, S keys, D width, H heads, G key and value heads, K head dim.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from extrapolate import specs
from extrapolate.encodings.plan import Plan

# What an extension may change: see `Encoding.accepts`. Every model has logits.
POSITIONS, VALUES, FREQUENCIES, TABLE = "positions", "values", "frequencies", "the table of positions"
MASK, DISTANCES, LOGITS = "which keys are seen", "distances of pairs", "logits"
RELATIVE = frozenset({POSITIONS, MASK, DISTANCES, LOGITS})  # if scores depend on distance
# What the values that an encoding computes are rounded to: see `Encoding.rounded`.
Storage = Literal["fp32", "bf16"]
EMBEDDED = 0.5  # initial standard deviation of token embeddings; what is added to them must be in proportion
FAMILIES = ("absolute", "rotary", "bias", "content-dependent", "recurrent", "wrapper", "other")


@dataclass(frozen=True)
class Dims:
    """What an encoding knows about its model: width D, heads H, head_dim K, training length L (tokens), its layer.

    kv_heads: G, the key and value heads, each for H/G consecutive query heads (default H).
    """

    width: int
    heads: int
    head_dim: int
    seq_len: int
    layer: int = 0
    layers: int = 1
    kv_heads: int = 0

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)


@dataclass(frozen=True)
class Spectrum:
    """A rotary encoding's frequencies before anything is dropped: theta^(-m/count), m = 0..count-1."""

    theta: float
    count: int

    def turns(self, length: int) -> list[float]:
        """The number of turns each completes within `length` tokens."""
        return [length * self.theta ** (-m / self.count) / (2 * math.pi) for m in range(self.count)]

    def pair_of(self, turns: float, length: int) -> float:
        """The (fractional) index of the frequency that completes `turns` turns within `length` tokens."""
        return self.count * math.log(length / (2 * math.pi * turns)) / math.log(self.theta)


@dataclass(frozen=True)
class Rotations:
    """Which channels of rotated queries and keys turn together (M pairs), and how fast.

    frequency_M, float32, is in radians per position, 0 for a pair that is not turned; channel_M2 has the channels.
    """

    frequency_M: Tensor
    channel_M2: Tensor


@dataclass(frozen=True)
class Context:
    """Where a chunk of queries and the keys they may see lie in their window, for `Encoding.scores`.

    pos_T and pos_S are their positions, `queries` and `keys` their indices (to slice what `prepare` made),
    hidden_TS is True if the query does not see the key.
    """

    pos_T: Tensor
    pos_S: Tensor
    queries: slice
    keys: slice
    hidden_TS: Tensor
    state: Any


class Encoding(nn.Module):
    """The base class of encodings: how position enters a model, one instance per layer.

    By default a hook returns its input, or None for "nothing"; an encoding overrides what its paper changes. The
    hooks are in the order of the forward pass. Keyword-only arguments of the constructor are the configuration; each
    is stored, resolved, in the attribute of the same name, so that values which depend on the training length are
    saved with the run. Positions are float32, also under autocast.
    """

    display: str  # the name in tables: "RoPE"
    source: ClassVar[str]  # the arXiv id, or another source of the formula
    family: ClassVar[str] = "other"  # one of FAMILIES: its group in lists
    caption: str = ""  # a note printed below every table with this encoding
    rescales: frozenset[str] = frozenset()  # hooks that change more than position, such as sizes; the caption says so
    accepts: frozenset[str] = RELATIVE  # which changes at inference are meaningful
    positional: bool = True  # whether any hook reads positions
    shared_by_layers: tuple[str, ...] = ()  # parameters and modules shared with the first layer
    max_length: int | None = None  # longer windows are undefined and reported n/a
    storage: Storage = "fp32"  # what `rounded` rounds to
    window: int | None = None  # most keys that this layer's queries see, including their own

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.dims = dims

    def positions(self, index_T: Tensor) -> Tensor:
        """The position of each token, from its index in the window. Only called on the first layer's instance."""
        return index_T

    @property
    def has_rotation(self) -> bool:
        """Whether this layer's `rotate` does anything. Override it if only some layers rotate."""
        return type(self).rotate is not Encoding.rotate

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        """The input of the first block. Only called on the first layer's instance."""
        return x_BTD

    def embeddings(self) -> list[Tensor]:
        """Parameters that `embed` adds to token embeddings, for the optimiser to treat like them."""
        return []

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        """What W_q and W_k read, and what W_v reads."""
        return x_BTD, x_BTD

    def prepare(self, x_BTD: Tensor) -> Any:
        """State for the hooks below, made once per layer from the normalised residual stream: gates, for example."""
        return None

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys, after their projections; they may become wider than K.

        T and S may differ if `prepare` returns None. If not, both are all tokens of the window, as in `state`.
        """
        return q_BHTK, k_BGSK

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor | None:
        """[H, T, S], or [1, T, S] for all heads, float32, added to the scaled scores; or None.

        Called with a chunk of queries at a time. Attention hides later keys and those outside the window.
        """
        return None

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor | None:
        """[B, H, T, S], replacing the scaled product for a chunk of queries; or None to keep the product."""
        return None

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor | None:
        """[B, H, T, S], how much each query takes of each value; or None for the softmax over keys.

        Called with the scores of a chunk of queries, float32, bias included, and -inf where a key is hidden: those
        keys must get 0. Every key that any of the queries sees is in the chunk. A model with sinks has one key more, in
        front: in the scores, pos_S and hidden_TS, but not in `keys` or in `state`.
        """
        return None

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor | None:
        """[B, H, T, K], what each token gathers in place of attention, such as a recurrence's; or None for attention.

        Called with all tokens of the window, after `rotate`. A token must not depend on later ones. There are no
        scores then, so `bias`, `scores`, `weights` and extensions of attention do not apply.
        """
        return None

    @torch.no_grad()
    def attends(self) -> bool:
        """Whether the layer has attention, which `mix` does not replace."""
        if type(self).mix is Encoding.mix:
            return True
        device = next((tensor.device for tensor in (*self.parameters(), *self.buffers())), None)
        one_BHTK = torch.zeros(1, self.dims.heads, 1, self.dims.head_dim, device=device)
        state = self.prepare(torch.zeros(1, 1, self.dims.width, device=device))
        return self.mix(one_BHTK, one_BHTK, one_BHTK, state) is None

    def spectrum(self) -> Spectrum | None:
        """The frequencies that an extension may scale; None if there are none."""
        return None

    def rotations(self) -> Rotations | None:
        """What `rotate` turns, on the CPU; None unless every pair of channels turns at one speed."""
        return None

    def extended(self, plan: Plan) -> Self:
        """A copy with the plan's changes; parameters stay shared."""
        if plan.window is None:
            return self
        return self.copy_with(window=plan.window if self.window is None else min(plan.window, self.window))

    def rounded_to(self, storage: Storage) -> Self:
        """A copy that rounds the values it computes to `storage`, as do encodings inside it."""
        if storage == self.storage:
            return self
        inside = {name: x.rounded_to(storage) for name, x in self.named_children() if isinstance(x, Encoding)}
        return self.copy_with(storage=storage, **inside)

    def rounded(self, values: Tensor) -> Tensor:
        """Float32 values that the encoding computes, rounded as an evaluation's precision stores them."""
        return values if self.storage == "fp32" else values.to(torch.bfloat16).float()

    def defined_at(self, length: int, plan: Plan) -> bool:
        """Whether windows of `length` tokens are defined under a plan."""
        return self.max_length is None or (length - 1) * plan.position_scale <= self.max_length - 1 + 1e-6

    def copy_with(self, **attributes: Any) -> Self:
        """A shallow copy with other attributes, sharing every other parameter, buffer and module."""
        other = copy.copy(self)
        for registry in ("_parameters", "_buffers", "_modules"):
            kept = {name: value for name, value in vars(self)[registry].items() if name not in attributes}
            vars(other)[registry] = kept
        for name, value in attributes.items():
            if isinstance(value, nn.Module):
                other.add_module(name, value)
            else:
                vars(other)[name] = value
        return other

    def arguments(self) -> dict[str, Any]:
        """The configuration, resolved."""
        return {name: getattr(self, name) for name in specs.parameters(type(self))}

    def label(self) -> str:
        """The name in tables: `ExPE`, or with arguments that differ from their defaults, `ExPE(size=32)`."""
        given = [f"{name}={_short(value)}" for name, value in self.unusual_arguments().items()]
        return self.display + (f"({', '.join(given)})" if given else "")

    def unusual_arguments(self) -> dict[str, Any]:
        """The arguments that differ from their defaults.

        Defaults may depend on the model, so they are read from a second instance. An argument that equals its default
        does not count, so that equal models have the same name.
        """
        usual = type(self)(self.dims).arguments()
        return {name: value for name, value in self.arguments().items() if usual[name] != value}

    def begin_step(self, done: float) -> None:
        """Called before every training step, in every layer, with the share of training that is done, 0 to 1.

        For settings that change during training. They must follow from `done` alone, because training may be resumed,
        or run in several processes. Keep them in a tensor and change it in place: compiled code treats numbers as
        constants, and a plan's copies of this encoding share only tensors.
        """

    def constrain(self) -> None:
        """Clamps parameters to their range, in place; called without gradients.

        Training calls it before the first step and after every step; the forward pass overwrites nothing.
        """

    def share(self, first_layer: Self) -> None:
        """Takes what all layers share from the first layer's instance."""
        for name in self.shared_by_layers:
            setattr(self, name, getattr(first_layer, name))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def scaled_product(q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """q k / sqrt(K), float32 [B, H, T, S], a new tensor."""
    return ((q_BHTK * q_BHTK.shape[-1] ** -0.5) @ k_BHSK.transpose(-1, -2)).float()


encodings: specs.Registry[Encoding] = specs.Registry("encoding")
register = encodings.register


def layers_of(cls: type[Encoding], arguments: Mapping[str, Any], dims: Dims) -> list[Encoding]:
    """One instance per layer, of a class and its converted arguments."""
    layers = [cls(dataclasses.replace(dims, layer=layer), **arguments) for layer in range(dims.layers)]
    for layer in layers[1:]:
        layer.share(layers[0])
    return layers
