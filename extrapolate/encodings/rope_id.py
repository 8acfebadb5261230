"""RoPE-ID: fast rotations of half of the channels."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import RELATIVE, Dims, register
from extrapolate.encodings.rope import RoPE, turn
from extrapolate.errors import UserError

SLOWEST, FASTEST = 32.0, 2 * math.pi  # tokens a turn of the fastest pair: at most the paper's, at least RoPE's


@register("rope-id")
class RoPEID(RoPE):
    """Rotates half of the channels, all of them fast enough for two turns within the training length.

    Pair m of the first n turns by i w_m, with w_m between 2 pi / fast for m = 0 and 2 pi / slow for m = n - 1, in
    equal ratios; the others carry only content. Scores of the query at i >= L are multiplied by (1 + temperature
    ln((i + 1) / L))^2, YaRN's factor for all scores of a text of i + 1 tokens.
    Beyond L: every angle that occurs has been seen in training, and the temperature makes up for the additional
    keys. Nothing is set at inference. Extensions that move positions move what the temperature reads, too.

    Our reading: we found no code, and did not see the paper's text, only a digest of it. Its frequencies lie between 2
    pi / 32 and 4 pi / L for models trained at 4096 or 8192 tokens; how they are spaced, which half of the channels is
    rotated, and the temperature's form are our choices, and so is the default of `fast` for a short L: at 64 tokens,
    both ends would be equal. Arguments: kept, n in pairs (default K/4, half of the channels); fast, in tokens a turn
    (default L/128, but at most 32 and at least 2 pi, RoPE's fastest, and never above slow); slow, in tokens a turn
    (default L/2); temperature (default 0.1, YaRN's; 0 for none); length, L in tokens (default: the training length);
    pairing, as for rope.
    Source: RoPE-ID, Wertheimer et al., arXiv 2603.18017.
    """

    display = "RoPE-ID"
    source = "arXiv 2603.18017"
    caption = "RoPE-ID: our reading of a digest of arXiv 2603.18017; the fast end is ours where L is below 4096 tokens"
    accepts = RELATIVE  # its frequencies are not those of a base, which is what extensions change

    def __init__(
        self,
        dims: Dims,
        *,
        kept: int | None = None,
        fast: float | None = None,
        slow: float | None = None,
        temperature: float = 0.1,
        length: int | None = None,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, pairing=pairing)
        self.length = dims.seq_len if length is None else length
        if self.length < 1:
            raise UserError(f"rope-id: length must be at least 1 token, not {length}")
        self.kept = dims.head_dim // 4 if kept is None else kept
        if not 0 <= self.kept <= dims.head_dim // 2:
            raise UserError(f"rope-id: kept must be between 0 and {dims.head_dim // 2} pairs, not {kept}")
        self.slow = self.length / 2 if slow is None else slow
        self.fast = min(self.slow, max(FASTEST, min(SLOWEST, self.length / 128))) if fast is None else fast
        if not 0 < self.fast <= self.slow:
            raise UserError(
                f"rope-id: fast must be a positive number of tokens a turn and at most slow, not {self.fast:g} and "
                f"{self.slow:g}"
            )
        if temperature < 0:
            raise UserError(f"rope-id: temperature must not be negative, not {temperature:g}")
        self.temperature = temperature

    def frequencies(self, device: torch.device) -> Tensor:
        step_M = torch.arange(self.dims.head_dim // 2, device=device) / max(1, self.kept - 1)
        frequency_M = 2 * math.pi / self.fast * (self.fast / self.slow) ** step_M
        frequency_M[self.kept :] = 0.0
        return frequency_M

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        frequencies = self.frequencies(pos_T.device)
        cos_TM, sin_TM = turn(pos_T, frequencies)
        factor_T = ((pos_T + 1) / self.length).clamp(min=1.0)
        sharp_T1 = (1 + self.temperature * factor_T.log()).square()[:, None]
        turned_q = self.rotated(q_BHTK, self.rounded(sharp_T1 * cos_TM), self.rounded(sharp_T1 * sin_TM))
        return turned_q, self.rotated(k_BGSK, *self.table(pos_S, frequencies))
