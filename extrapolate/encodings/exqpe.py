"""ExQPE: ExPE with larger steps, for few mantissa bits."""

import torch
from torch import Tensor

from extrapolate.encodings.base import register
from extrapolate.encodings.expe import ExPE


@register("exqpe")
class ExQPE(ExPE):
    """ExPE in which only one of the l channels moves from one position to the next, by a step l times as large.

    p_n[c] = start + slope c + step l floor((n + c) / l): the channels take turns. Over l tokens every channel moves
    as far as ExPE's does, but a step is large enough to survive rounding to few mantissa bits.
    Beyond L: as ExPE, the values go on growing past the trained range, a channel at a time.

    Our reading, as for ExPE: the paper says that one dimension is incremented from one position to the next and
    that there are two more hyperparameters; we take these for the increment and the slope.
    Arguments: size, l in channels (default D/8); start (default -1); step, the mean increment of a channel per
    token (default 2/L); slope per channel (default: step); learned, blocks and value_input, as for expe.
    Source: Datseris et al., arXiv 2509.19569.
    """

    display = "ExQPE"
    caption = "ExQPE: our reading of arXiv 2509.19569, whose equations and constants are missing from every copy found"

    def values(self, pos_T: Tensor) -> Tensor:
        start, step, slope = self.constants
        channel_C = torch.arange(self.size, device=pos_T.device, dtype=torch.float32)
        turns_TC = torch.floor((pos_T[:, None] + channel_C) / max(1, self.size))
        return start + slope * channel_C + step * self.size * turns_TC
