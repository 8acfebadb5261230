"""RePo: positions that content chooses."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import FREQUENCIES, LOGITS, Dims, Rotations, register
from extrapolate.encodings.rope import RoPE, of_key_heads
from extrapolate.errors import UserError


@register("repo")
class RePo(RoPE):
    """Places each token, for each head of the later layers, where a small network of its content puts it.

    z = W_z (silu(W_g x) * W_c x), with one number z per head, x the layer's attention input and all three matrices
    starting at a standard deviation of 0.02. Queries and keys are then rotated as by RoPE, pair m by z w_m. Layers
    before `start` are RoPE with the true positions: z depends on content alone, so that without those layers only the
    causal mask would tell the order of tokens. Query heads that share a key head turn as the first of them.
    Beyond L: later layers have no position that could leave a trained range. In the first ones, as in RoPE, pairs
    that have not completed a turn within L tokens reach angles never seen. The authors evaluate long texts with YaRN,
    which changes the frequencies of all layers.

    Our choices: x is normalised, while the authors' model normalises after attention and reads the residual stream
    itself; and `start` follows the depth. Arguments: start, the first layer, counted from 0, whose positions come from
    content (default 5/16 of the layers, rounded, but at least 1 if there are two: 5 of 16 in the authors' model); size,
    the rows of W_g and W_c (default width / 8, as there); theta (500,000 there) and pairing, as for rope.
    Source: RePo, Li et al., arXiv 2512.14391.
    """

    display = "RePo"
    source = "arXiv 2512.14391"
    family = "content-dependent"
    caption = "RePo: which layer is the first to place tokens by content is our choice, by the share of the depth"
    accepts = frozenset({FREQUENCIES, LOGITS})  # other positions would reach only the first layers

    def __init__(
        self,
        dims: Dims,
        *,
        start: int | None = None,
        size: int | None = None,
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        self.start = min(dims.layers - 1, max(1, round(dims.layers * 5 / 16))) if start is None else start
        if not 0 <= self.start <= dims.layers:
            raise UserError(f"repo: start must be between 0 and the {dims.layers} layers, not {start}")
        self.size = max(1, dims.width // 8) if size is None else size
        if self.size < 1:
            raise UserError(f"repo: size must be at least 1, not {size}")
        self.by_content = dims.layer >= self.start
        if self.by_content:
            self.gate = nn.Linear(dims.width, self.size, bias=False)
            self.content = nn.Linear(dims.width, self.size, bias=False)
            self.place = nn.Linear(self.size, dims.heads, bias=False)
            for layer in (self.gate, self.content, self.place):
                nn.init.normal_(layer.weight, std=0.02)

    def rotations(self) -> Rotations | None:
        return None if self.by_content else super().rotations()

    def prepare(self, x_BTD: Tensor) -> Tensor | None:
        """z, [B, H, T], float32; None in a layer with true positions."""
        if not self.by_content:
            return None
        gate_BTN, content_BTN = self.gate(x_BTD).float(), self.content(x_BTD).float()
        with torch.autocast(x_BTD.device.type, enabled=False):
            return self.place(nn.functional.silu(gate_BTN) * content_BTN).mT

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        if not self.by_content:
            return super().rotate(q_BHTK, k_BGSK, pos_T, pos_S)
        place_BGT = of_key_heads(state, q_BHTK, k_BGSK)
        angle_BGTM = place_BGT[..., None] * self.scaled_frequencies(pos_T.device)
        return self.rotated_heads(q_BHTK, k_BGSK, angle_BGTM, angle_BGTM)
