"""What changes in a model at one evaluation length: frozen; equal plans give equal numbers."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Branch:
    """Some of the pairs of a query and a key, and their pretended positions, all by index in the window.

    `queries` and `keys` map to pretended positions; `seen(i, j)` is whether query i attends to key j in this branch.
    frequency_scale multiplies the frequencies, on top of the plan's (none: unchanged), but for the first `unscaled`
    tokens of a distance r: a pair turns by w unscaled + w scale (r - unscaled).
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
        """At least one; no pair is seen in two."""


@dataclass(frozen=True)
class Plan:
    """What changes at one evaluation length. The defaults change nothing at all.

    position_scale multiplies every position before the encoding sees it; value_scale multiplies the values that
    ExPE writes; frequency_scale multiplies the frequencies, one factor each (none: unchanged); logit_scale
    multiplies every score; with log_length L, scores of query i are multiplied by max(1, ln(i + 1) / ln L) too;
    window is the number of most recent keys that a query sees; pairs decides which keys are seen, and from where. Two
    lengths, or two extensions, whose plans are equal give the same numbers.
    """

    position_scale: float = 1.0
    value_scale: float = 1.0
    frequency_scale: tuple[float, ...] = ()
    logit_scale: float = 1.0
    log_length: int | None = None
    window: int | None = None
    pairs: Pairs | None = None

    def query_scale(self, length: int, device: torch.device) -> Tensor | None:
        """The factor of each query's scores, [1, T], from its true index; None if there is none."""
        if self.log_length is None:
            return None if self.logit_scale == 1.0 else torch.full((1, length), self.logit_scale, device=device)
        index_T = torch.arange(1, length + 1, device=device)
        log_length = torch.full((), self.log_length, device=device).log()  # a number from the CPU would be copied
        return self.logit_scale * (index_T.log() / log_length).clamp(min=1.0)[None]

    def joined(self, other: "Plan") -> "Plan":
        """Both plans in one: logit scales multiply; nothing else may be set in both."""
        changed = {
            field.name: getattr(other, field.name)
            for field in dataclasses.fields(self)
            if getattr(other, field.name) != field.default
        }
        return dataclasses.replace(self, **changed | {"logit_scale": self.logit_scale * other.logit_scale})


PLAIN = Plan()
