"""LeRoPE: RoPE with frequencies that are learned."""

from typing import Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.rope import RoPE


@register("lerope")
class LeRoPE(RoPE):
    """Learns the frequency of each pair, for all layers and heads together.

    Pair m turns by i w_m, w_m = exp(alpha_m) theta^(-2m/K), with alpha_m trained from 0, which is RoPE. There is no
    weight decay on alpha.
    Beyond L: as in RoPE, pairs that have not completed a turn within L tokens reach angles never seen. The paper
    reports that learned frequencies do better within L and worse beyond, unless an extension changes them.

    An extension finds its factors from theta, not from what was learned, and multiplies the learned frequencies by
    them. Our reading: we found no code by the authors, and saw a digest of the paper; there alpha's gradient is clipped
    separately, here together with all others. Arguments: theta and pairing, as for rope.
    Source: LeRoPE, arXiv 2607.10134.
    """

    display = "LeRoPE"
    source = "arXiv 2607.10134"
    caption = "LeRoPE: our reading of a digest of arXiv 2607.10134; its gradient is clipped with all others"
    shared_by_layers = ("alpha_M",)

    def __init__(
        self, dims: Dims, *, theta: float = 10_000.0, pairing: Literal["half", "interleaved"] = "half"
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        self.alpha_M = nn.Parameter(torch.zeros(dims.head_dim // 2))

    def frequencies(self, device: torch.device) -> Tensor:
        return super().frequencies(device) * self.alpha_M.float().exp().to(device)
