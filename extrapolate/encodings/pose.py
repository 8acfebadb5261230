"""PoSE: positional skip-wise training, around any encoding that has positions."""

import torch
from torch import Tensor

from extrapolate.encodings.base import DISTANCES, Dims, register
from extrapolate.encodings.training_positions import TrainingPositions


@register("pose")
class PoSE(TrainingPositions):
    """Trains with a gap between the positions of a window's two parts, so that far distances occur in short windows.

    At each training step, the first c tokens of all windows of T tokens keep positions 0..c-1, c drawn from
    1..(T+1)/2, and a number drawn from 0..max-T is added to the positions of the others. The base is built as if the
    training length were max. At evaluation positions are plain, 0..N-1. Beyond L: up to max tokens, every distance
    between two tokens occurs in training; further out, the base extrapolates.

    The authors fine-tune a model with an extension: train --from RUN --pe "pose:max=1024" --extend yarn:factor=16. pose
    also works from the first step on. Their code draws for every window, and takes the text of the second part from
    later in the document; here all windows of a forward pass share one draw, and their text is contiguous. The first
    part stays at 0, as in their code.

    Arguments: base, a spec, in parentheses if it has arguments; max, in tokens (default 16 L); curriculum, the share of
    training over which the range grows linearly from L to max (default 0: it is max from the first step).
    Source: Zhu et al., arXiv 2309.10400.
    """

    display = "PoSE"
    source = "arXiv 2309.10400"

    def __init__(self, dims: Dims, *, base: str = "rope", max: int | None = None, curriculum: float = 0.0) -> None:
        super().__init__(dims, "pose", base, 16 * dims.seq_len if max is None else max, curriculum)
        self.accepts -= {DISTANCES}  # pairs are placed by index, in training too

    def positions(self, index_T: Tensor) -> Tensor:
        if not self.training:
            return index_T
        # Drawn on the CPU: a seed then gives the same positions on every device.
        length = len(index_T)
        kept = torch.randint(1, (length + 1) // 2 + 1, ())
        most = (self.reach(length).floor() - length).clamp(min=0)
        gap = (torch.rand((), dtype=torch.float64) * (most + 1)).floor()
        place_T = torch.arange(length)
        return (place_T + gap * (place_T >= kept)).to(index_T, non_blocking=True)
