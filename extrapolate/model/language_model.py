"""The interface of models in evaluations, ours or another library's.

Shapes: B batch, T tokens, D what enters the head, R rows, V vocabulary.
"""

from typing import Any, Protocol, Self

import torch
from torch import Tensor

from extrapolate.encodings.base import Encoding, Storage
from extrapolate.encodings.plan import Plan


class LanguageModel(Protocol):
    """A causal model: its logits at a token depend on that token and those before it."""

    seq_len: int  # the training length L, tokens

    @property
    def vocab_size(self) -> int:
        """V."""

    @property
    def device(self) -> torch.device:
        """The device of its inputs."""

    @property
    def encoding(self) -> Encoding:
        """Its encoding, whose `accepts` decides which extensions apply."""

    @property
    def encodings(self) -> list[Encoding]:
        """Each layer's encoding; at least one."""

    @property
    def ssmax(self) -> bool:
        """Whether it scales scores by the logarithm of the keys in sight."""

    def label(self) -> str:
        """Its name in tables."""

    def parameter_count(self) -> int | None:
        """The number of trained parameters; None if unknown."""

    def defined_at(self, length: int, plan: Plan) -> bool:
        """Whether windows of `length` tokens are defined under a plan."""

    def resolve(self, plan: Plan, storage: Storage = "fp32") -> Any:
        """The plan in the form that `hidden` takes. Reuse it across forward passes that share a plan."""

    def hidden(self, tokens_BT: Tensor, plan: Any, first_wanted: int = 0) -> Tensor:
        """The input of the head, [B, T - first_wanted, D], for the tokens from that index on."""

    def head(self, hidden_RD: Tensor) -> Tensor:
        """Logits, [R, V]."""

    def to(self, device: str) -> Self:
        """The same model on a device."""

    def copied(self) -> Self:
        """A copy, whose calls leave nothing in this one; itself if it cannot be copied."""
