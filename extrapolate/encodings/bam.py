"""BAM: a generalised Gaussian prior over distances."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.alibi import slopes
from extrapolate.encodings.base import Dims, Encoding, register

EPSILON = 1e-5  # keeps the base of the power from 0


@register("bam")
class BAM(Encoding):
    """Subtracts from each score a learned power of the distance: the logarithm of a generalised Gaussian prior.

    bias_h(i, j) = -e^(s_h) (|j - i - 2 sinh(mu_h)| + 0.00001)^(a_h). Each head learns its scale s, which starts at the
    logarithm of ALiBi's slope, and its shape a: 1 is ALiBi, 2 a Gaussian, and the nearer to 0, the flatter the tail.
    mu moves the peak. With SSMax, which is a setting of the model, the bias is multiplied too, as in the paper's best.
    Beyond L: a head whose shape falls towards 0 sees far keys nearly alike; the others act as soft windows.

    mu is fixed unless train_loc is set: the class of the authors' code has it so, and its script for training sets it.
    Arguments: shape, where a starts (default 1); loc, where mu starts (default 0); train_loc, whether mu is learned;
    shared, whether all layers share one set (the default, and the code's).
    Source: Bianchessi et al., arXiv 2505.22842.
    """

    display = "BAM"
    source = "arXiv 2505.22842"
    family = "bias"

    loc_H: Tensor

    def __init__(
        self, dims: Dims, *, shape: float = 1.0, loc: float = 0.0, train_loc: bool = False, shared: bool = True
    ) -> None:
        super().__init__(dims)
        self.shape = shape
        self.loc = loc
        self.train_loc = train_loc
        self.shared = shared
        self.scale_H = nn.Parameter(torch.tensor(slopes(dims.heads)).log())
        self.shape_H = nn.Parameter(torch.full((dims.heads,), shape))
        loc_H = torch.full((dims.heads,), loc)
        if train_loc:
            self.loc_H = nn.Parameter(loc_H)
        else:
            self.register_buffer("loc_H", loc_H, persistent=False)
        if shared:
            self.shared_by_layers = ("scale_H", "shape_H", "loc_H")

    def bias(self, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        scale_H11, shape_H11, loc_H11 = (x_H[:, None, None] for x_H in (self.scale_H, self.shape_H, self.loc_H))
        away_HTS = (pos_S - pos_T[:, None] - 2 * loc_H11.sinh()).abs() + EPSILON
        return -scale_H11.exp() * away_HTS**shape_H11
