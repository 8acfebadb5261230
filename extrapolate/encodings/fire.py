"""FIRE: functional interpolation for relative positions."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims, Encoding, register
from extrapolate.errors import UserError

EPSILON = 1e-6
DEEPEST = 100  # hidden layers


@register("fire")
class FIRE(Encoding):
    """Adds to each score a small network's output for the distance, relative to the query's own position.

    bias_h(i, j) = f( psi(i - j) / (psi(max(T, i)) + 1e-6) )_h with psi(x) = ln(|c x| + 1). f is a network 1 -> width ->
    H with ReLU; c (from 0.1) and a factor on the threshold T (from 1) are learned too.
    Beyond L: the network's input stays within 0..1 at any length. If an extension presents pairs at other distances, i
    is the presented position.

    The official code was not seen, so depth and sharing are options. As in public code, T starts at half the training
    length.
    Arguments: width, of the network; depth, its hidden layers; shared, whether all layers share one network; threshold,
    T in tokens (default L/2).
    Source: Li et al., arXiv 2310.04418.
    """

    display = "FIRE"
    source = "arXiv 2310.04418"
    family = "bias"

    def __init__(
        self, dims: Dims, *, width: int = 32, depth: int = 1, shared: bool = False, threshold: float | None = None
    ) -> None:
        super().__init__(dims)
        self.width = width
        self.depth = depth
        self.shared = shared
        self.threshold = dims.seq_len / 2 if threshold is None else threshold
        if width < 1 or depth < 1 or self.threshold <= 0:
            raise UserError(f"fire: width, depth and threshold must be positive, not {width}, {depth}, {threshold}")
        if depth > DEEPEST:
            raise UserError(f"fire: depth must be at most {DEEPEST} hidden layers, not {depth}")
        self.shared_by_layers = ("network", "c", "factor") if shared else ()
        self.network = nn.Sequential(nn.Linear(1, width), nn.ReLU())
        for _ in range(depth - 1):
            self.network.extend([nn.Linear(width, width), nn.ReLU()])
        self.network.append(nn.Linear(width, dims.heads))
        self.c = nn.Parameter(torch.tensor(0.1))
        self.factor = nn.Parameter(torch.tensor(1.0))

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        distance_TS = (pos_T[:, None] - pos_S[None, :]).clamp(min=0)
        threshold = (self.factor * self.threshold).abs()
        share_TS = self._psi(distance_TS) / (self._psi(torch.maximum(threshold, pos_T)) + EPSILON)[:, None]
        with torch.autocast(pos_T.device.type, enabled=False):
            return self.network(share_TS[..., None]).permute(2, 0, 1)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c * x).abs())
