"""ExPE: exact positional embeddings, written over the first channels of what queries and keys read."""

from typing import Literal, Self

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, POSITIONS, VALUES, Dims, Encoding, register
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError


@register("expe")
class ExPE(Encoding):
    """Overwrites the first l channels of the input of W_q and W_k with values linear in the position.

    In every block, W_q and W_k read p_n[c] = start + step n + slope c in channels c = 0..l-1 of the token at position
    n, and the normalised residual stream in the other channels. W_v and the residual stream keep the original values.
    Beyond L: the values keep growing past the trained range, slowly and linearly, and the loss rises sooner or later.

    This is our reading, because every copy of the paper that we found lacks its equations and constants. We overwrite
    after the block's RMSNorm, with defaults that put the training range at about -1..1.
    Arguments: size, l in channels (default D/8); start; step per token (default 2/L); slope per channel (default:
    step); learned, "no", "fixed" (start, step and slope are trained from those values, shared by all blocks) or
    "scratch" (from N(0, 0.02)); blocks, "all" or only the "first"; value_input, whether W_v reads the overwritten
    channels too. The paper's ablations are slope=0 (the same value in all l channels), size=1 (one channel), and other
    values of learned, blocks and value_input.
    Source: Datseris et al., arXiv 2509.19569.
    """

    constants: Tensor

    display = "ExPE"
    source = "arXiv 2509.19569"
    family = "absolute"
    caption = "ExPE: our reading of arXiv 2509.19569, whose equations and constants are missing from every copy found"
    accepts = frozenset({POSITIONS, VALUES, LOGITS})
    shared_by_layers = ("constants",)

    def __init__(
        self,
        dims: Dims,
        *,
        size: int | None = None,
        start: float = -1.0,
        step: float | None = None,
        slope: float | None = None,
        learned: Literal["no", "fixed", "scratch"] = "no",
        blocks: Literal["all", "first"] = "all",
        value_input: bool = False,
    ) -> None:
        super().__init__(dims)
        self.size = max(1, dims.width // 8) if size is None else size
        if not 0 <= self.size <= dims.width:
            raise UserError(f"expe: size must be between 0 and the width {dims.width}, not {self.size}")
        self.start = start
        self.step = 2.0 / dims.seq_len if step is None else step
        self.slope = self.step if slope is None else slope
        self.learned = learned
        self.blocks = blocks
        self.value_input = value_input
        self.rescales = frozenset({"attention_input"} if value_input else ())
        self.value_scale = 1.0
        constants = torch.tensor([self.start, self.step, self.slope])
        if learned == "no":
            self.register_buffer("constants", constants, persistent=False)
        else:
            self.constants = nn.Parameter(constants if learned == "fixed" else constants.normal_(std=0.02))

    def values(self, pos_T: Tensor) -> Tensor:
        """p, [T, l], float32."""
        start, step, slope = self.constants
        channel_C = torch.arange(self.size, device=pos_T.device, dtype=torch.float32)
        return start + step * pos_T[:, None] + slope * channel_C

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        if self.blocks == "first" and self.dims.layer > 0:
            return x_BTD, x_BTD
        value_TC = self.rounded(self.value_scale * self.values(pos_T)).to(x_BTD.dtype)
        value_BTC = value_TC.expand(x_BTD.shape[0], -1, -1)
        read_BTD = torch.cat([value_BTC, x_BTD[..., self.size :]], dim=-1)
        return read_BTD, read_BTD if self.value_input else x_BTD

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan).copy_with(value_scale=plan.value_scale)
