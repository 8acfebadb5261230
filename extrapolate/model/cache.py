"""What attention keeps of a window's earlier tokens, where a model continues a text token by token.

Shapes: B batch, T tokens, D width, G key and value heads, K head dim.
"""

from typing import Protocol

from torch import Tensor

from extrapolate.encodings.base import Encoding


class Cache(Protocol):
    """Keys are kept as they leave their projection: an encoding may place earlier tokens anew as the text grows."""

    @property
    def length(self) -> int:
        """How many tokens it held when the forward pass began."""

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Takes a layer's keys, values and normalised inputs of the tokens that follow; gives those of all tokens.

        The inputs are needed by an encoding that has a `prepare`; others may be given anything.
        """
