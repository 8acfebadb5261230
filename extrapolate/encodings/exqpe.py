"""ExQPE: ExPE with larger steps, for few mantissa bits."""

import torch
from torch import Tensor

from extrapolate.encodings.base import register
from extrapolate.encodings.expe import ExPE


@register("exqpe")
class ExQPE(ExPE):
    """ExPE in which only one of the l channels changes from one position to the next, by a step l times as large.

    p_n[c] = start + slope c + step l floor((n + c) / l), so the channels take turns. Over l tokens each channel moves
    as far as in ExPE, but each step is large enough to survive rounding to a few mantissa bits.
    Beyond L: as in ExPE, the values keep growing past the trained range, one channel at a time.

    Our reading: as for ExPE, the equations are missing. The paper says that one dimension is incremented from one
    position to the next and that there are two more hyperparameters; we take these to be the increment and the slope.
    Arguments: step, the mean increment of a channel per token (default 2/L); size, start, slope, learned, blocks and
    value_input, as for expe.
    Source: Datseris et al., arXiv 2509.19569.
    """

    display = "ExQPE"
    caption = "ExQPE: our reading of arXiv 2509.19569, whose equations and constants are missing from every copy found"

    def values(self, pos_T: Tensor) -> Tensor:
        start, step, slope = self.constants
        channel_C = torch.arange(self.size, device=pos_T.device, dtype=torch.float32)
        turns_TC = torch.floor((pos_T[:, None] + channel_C) / max(1, self.size))
        return start + slope * channel_C + step * self.size * turns_TC
