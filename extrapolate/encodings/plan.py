"""Plans: what changes in a model at one evaluation length. They are frozen, and equal plans give equal numbers."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Kinds of layers that a part of a plan may be for: all, those that see all keys, those with a window, those that rotate
# queries and keys, and those that do not.
ALL_LAYERS, GLOBAL, LOCAL, ROTATED, UNROTATED = "all", "global", "local", "rotated", "unrotated"
LAYERS = (ALL_LAYERS, GLOBAL, LOCAL, ROTATED, UNROTATED)


class Layer(Protocol):
    """The attributes that decide a layer's kinds: see `Encoding`."""

    @property
    def window(self) -> int | None: ...

    @property
    def has_rotation(self) -> bool: ...


def is_of(layers: str, encoding: Layer) -> bool:
    """Whether a layer with this encoding, as trained, is of that kind."""
    if layers in (GLOBAL, LOCAL):
        return (encoding.window is None) == (layers == GLOBAL)
    return layers == ALL_LAYERS or encoding.has_rotation == (layers == ROTATED)


@dataclass(frozen=True)
class Branch:
    """Some of the pairs of a query and a key, and their pretended positions, all by index in the window.

    `queries` and `keys` map to pretended positions; `seen(i, j)` is whether query i attends to key j in this branch.
    frequency_scale multiplies the frequencies, on top of the plan's (none: unchanged), except for the first
    `unscaled` tokens of a distance r: a pair turns by w unscaled + w scale (r - unscaled).
    """

    queries: Callable[[Tensor], Tensor]
    keys: Callable[[Tensor], Tensor]
    seen: Callable[[Tensor, Tensor], Tensor]
    frequency_scale: tuple[float, ...] = ()
    unscaled: float = 0.0


class Pairs(ABC):
    """Which pairs attend, at which pretended positions: disjoint branches under one softmax.

    Subclasses are frozen dataclasses; equal ones give equal numbers.
    """

    @abstractmethod
    def branches(self) -> list[Branch]:
        """At least one branch; no pair is seen in two."""


@dataclass(frozen=True)
class Plan:
    """What changes at one evaluation length. The defaults change nothing at all.

    position_scale multiplies every position before the encoding sees it; value_scale multiplies the values that
    ExPE writes; frequency_scale multiplies the frequencies, one factor each (none: unchanged); logit_scale
    multiplies every score; with log_length L, scores of query i are multiplied by max(1, ln(i + 1) / ln L) too, and
    with log_offset a by ln(i + a) / ln a, and with log_steps (c, F) by 1 + c ln(1 + floor((i + 1) / F)); window is the
    number of most recent keys that a query sees; pairs decides which keys are seen, and from where. `only` has what
    else changes in layers of a kind. Two lengths, or two extensions, whose plans are equal give the same numbers.
    """

    position_scale: float = 1.0
    value_scale: float = 1.0
    frequency_scale: tuple[float, ...] = ()
    logit_scale: float = 1.0
    log_length: int | None = None
    log_offset: int | None = None
    log_steps: tuple[float, int] | None = None
    window: int | None = None
    pairs: Pairs | None = None
    only: tuple[tuple[str, "Plan"], ...] = ()

    def query_scale(self, length: int, device: torch.device) -> Tensor | None:
        """The factor of each query's scores, [1, T], from its true index; None if there is none."""
        if self.log_length is None and self.log_offset is None and self.log_steps is None:
            return None if self.logit_scale == 1.0 else torch.full((1, length), self.logit_scale, device=device)
        index_T = torch.arange(length, device=device)
        scale_T = torch.full((length,), self.logit_scale, device=device)
        for base, first in ((self.log_length, 1), (self.log_offset, self.log_offset)):
            if base is not None and first is not None:
                log_base = torch.full((), base, device=device).log()  # a number from the CPU would be copied
                scale_T = scale_T * ((index_T + first).log() / log_base).clamp(min=1.0)
        if self.log_steps is not None:
            c, size = self.log_steps
            scale_T = scale_T * (1.0 + c * ((index_T + 1) // size).log1p())
        return scale_T[None]

    def joined(self, other: "Plan") -> "Plan":
        """Both plans in one: logit scales multiply; nothing else may be set in both."""
        changed = {
            field.name: getattr(other, field.name)
            for field in dataclasses.fields(self)
            if getattr(other, field.name) != field.default
        }
        both = {"logit_scale": self.logit_scale * other.logit_scale, "only": self.only + other.only}
        return dataclasses.replace(self, **changed | both)

    def everywhere(self, encodings: Sequence[Layer]) -> "Plan":
        """The plan for layers with these encodings: a part for a kind that they all are becomes unconditional."""
        plan = dataclasses.replace(self, only=())
        for layers, part in self.only:
            if all(is_of(layers, encoding) for encoding in encodings):
                plan = plan.joined(part)
            else:
                plan = plan.joined(Plan(only=((layers, part),)))
        return plan

    def of_layer(self, encoding: Layer) -> "Plan":
        """The plan for a layer with this encoding, as trained."""
        return dataclasses.replace(self.everywhere([encoding]), only=())


PLAIN = Plan()
