"""A decoder as runs have it: made from an encoding's name, and with what training and evaluation need.

Shapes: B batch, T tokens, N targets, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.model.config import ModelConfig
from extrapolate.model.layers import layer_encodings
from extrapolate.model.llama import Decoder
from extrapolate.model.loss import cross_entropy
from extrapolate.model.setting import Setting
from extrapolate.model.size import check_model


class Model(Decoder):
    """A decoder made from the name of an encoding."""

    def __init__(self, config: ModelConfig, encoding: str, arguments: Mapping[str, Any], seq_len: int) -> None:
        """Builds the model with fresh weights.

        `encoding` is a name or file spec, `arguments` its configuration, `seq_len` the training length in tokens.
        Raises UserError if the encoding refuses its arguments or the sizes, or they do not fit into memory.
        """
        check_model(config)
        dims = Dims(config.width, config.heads, config.head_dim, seq_len, layers=config.layers)
        with torch.random.fork_rng(devices=[]):  # one seed gives every encoding the same weights elsewhere
            encodings = layer_encodings(encoding, arguments, dims, config.kv_heads)
        super().__init__(config, encodings, seq_len)
        self.dims = dims

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.config.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def ssmax(self) -> bool:
        """Whether it was trained with SSMax."""
        return self.config.ssmax

    def label(self) -> str:
        """The encoding's name in tables, and what is combined with it: `RoPE+SSMax`."""
        return "+".join([self.encoding.label(), *self.config.combined()])

    def parameter_count(self) -> int:
        """Trained parameters; tied embeddings count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @torch.no_grad()
    def constrain(self) -> None:
        """Brings the encodings' parameters that left their range back into it, in place."""
        for encoding in self.encodings:
            encoding.constrain()

    def loss(
        self, tokens_BT: Tensor, targets_BT: Tensor, plan: Plan | Setting = PLAIN, weight_BT: Tensor | None = None
    ) -> Tensor:
        """Mean negative log-likelihood of the targets, nats, float32.

        With weights, which add up to 1 in every window, the mean over windows of their weighted means.
        """
        logits_NV = self(tokens_BT, plan).flatten(0, 1)
        weight_N = None if weight_BT is None else weight_BT.flatten() / len(weight_BT)
        return cross_entropy(logits_NV, targets_BT.flatten(), weight_N)
