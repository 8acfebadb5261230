"""HoPE: RoPE with its incomplete pairs left unrotated."""

from typing import Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.rope import RoPE, complete_pairs
from extrapolate.errors import UserError


@register("hope")
class HoPE(RoPE):
    """Rotates only the pairs that complete a full turn within the training length.

    Pair m turns by i w_m, w_m = theta^(-2m/K), if w_m >= 2 pi / L; the others carry only content. This is p-rope with p
    set by L.
    Beyond L: every angle that occurs has been seen in training.

    Our reading: we found no code by the authors, and have not verified what their slow channels hold instead of
    rotations. Arguments: kept, in pairs (default: as many as complete a turn within L); theta and pairing, as for rope.
    Source: Chen et al., arXiv 2410.21216.
    """

    display = "HoPE"
    source = "arXiv 2410.21216"
    caption = "HoPE: our reading of arXiv 2410.21216, whose replacement for the slow channels is not verified"

    def __init__(
        self,
        dims: Dims,
        *,
        kept: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        self.kept = complete_pairs(self, dims.seq_len) if kept is None else kept
        if not 0 <= self.kept <= dims.head_dim // 2:
            raise UserError(f"hope: kept must be between 0 and {dims.head_dim // 2} pairs, not {kept}")

    def frequencies(self, device: torch.device) -> Tensor:
        frequencies = super().frequencies(device)
        frequencies[self.kept :] = 0.0
        return frequencies
