"""A cache of keys and values, with which a model continues a text token by token: see `llama.Cache`.

Shapes: B batch, T tokens, G key and value heads, K head dim, D width.
"""

import torch
from torch import Tensor

from extrapolate.encodings.base import Encoding


class Kept:
    """Keeps the tokens of all layers. Its user adds the number of new ones to `length` after each forward pass."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Adds a layer's keys, values and inputs of new tokens; returns those of all tokens."""
        layer, new = encoding.dims.layer, (k_BGTK, v_BGTK, x_BTD)
        if layer in self._layers:
            k, v, x = (torch.cat(pair, dim=-2) for pair in zip(self._layers[layer], new, strict=True))
            new = (k, v, x)
        self._layers[layer] = new
        return new
