"""GRAPE: additive forms of group representational position encoding."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.alibi import slopes
from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register, scaled_product
from extrapolate.errors import UserError


@register("grape")
class GRAPE(Encoding):
    """Subtracts from each score a distance whose price content decides: the query and key, or the tokens on the way.

    Form "a": bias = -r softplus(omega_h) slope_h [softplus(v_h q_i / sqrt(K)) + softplus(u_h k_j / sqrt(K))], with
    r = i - j, ALiBi's slopes, and vectors u and v divided by their norms; softplus(omega) starts at 1.

    Form "ap", a path integral: bias = slope_h times the sum over t = j+1..i of ln sigmoid(p_i R(t) n_t / P), with p_t
    = W x_t, P channels per head, n_t = p_t divided by its root mean square, x the layer's attention input, and R(t) the
    rotation of every pair by -t radians. As in the authors' code, p_i is neither rotated nor normalised, so that the
    bias depends on where t is in the window.

    Nothing is rotated otherwise. The authors also normalise queries and keys: a setting of the model (--qk-norm).
    Beyond L: the bias keeps growing with the distance, at a rate that content sets: a soft window, wider for some.

    Arguments: form, "a" or "ap"; width, P in channels, even, for form "ap" (default 8, as in the authors' runs).
    Source: Zhang et al., arXiv 2512.07805; the forms are those of their files grape-a-querykeygated and grape-ap-v1.
    """

    display = "GRAPE"
    source = "arXiv 2512.07805"
    family = "content-dependent"

    slope_H: Tensor

    def __init__(self, dims: Dims, *, form: Literal["a", "ap"] = "a", width: int = 8) -> None:
        super().__init__(dims)
        if width < 2 or width % 2:
            raise UserError(f"grape: width must be an even number of channels from 2 up, not {width}")
        self.form = form
        self.width = width
        self.register_buffer("slope_H", torch.tensor(slopes(dims.heads)), persistent=False)
        if form == "a":
            self.omega_H = nn.Parameter(torch.full((dims.heads,), math.log(math.expm1(1.0))))
            self.query_HK, self.key_HK = (
                nn.Parameter(torch.randn(dims.heads, dims.head_dim) * dims.head_dim**-0.5) for _ in range(2)
            )
        else:
            self.positional = False  # R(t) counts tokens
            self.accepts = frozenset({LOGITS})
            self.project = nn.Linear(dims.width, dims.heads * width, bias=False)
            nn.init.normal_(self.project.weight, std=0.5 * dims.width**-0.5)

    def prepare(self, x_BTD: Tensor) -> tuple[Tensor, Tensor] | None:
        """p, and n after its rotation, [B, H, T, P], for form "ap"."""
        if self.form == "a":
            return None
        p_BHTP = self.project(x_BTD).float().unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)
        angle_T1 = torch.arange(x_BTD.shape[1], dtype=torch.float32, device=x_BTD.device)[:, None]
        a, b = nn.functional.rms_norm(p_BHTP, p_BHTP.shape[-1:]).chunk(2, dim=-1)
        cos_T1, sin_T1 = angle_T1.cos(), angle_T1.sin()
        return p_BHTP, torch.cat([a * cos_T1 + b * sin_T1, b * cos_T1 - a * sin_T1], dim=-1)

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        content_BHTS = scaled_product(q_BHTK, k_BHSK)
        if self.form == "a":
            return content_BHTS - self._gated(q_BHTK, k_BHSK, context)
        p_BHTP, turned_BHTP = context.state
        with torch.autocast(q_BHTK.device.type, enabled=False):
            price_BHTS = p_BHTP[:, :, context.queries] @ turned_BHTP[:, :, context.keys].mT / self.width
        step_BHTS = self.slope_H[:, None, None] * nn.functional.logsigmoid(price_BHTS)
        step_BHTS = step_BHTS.masked_fill(context.hidden_TS, 0.0)
        # The steps after each key: of all keys, less those up to it.
        return content_BHTS + step_BHTS.sum(dim=-1, keepdim=True) - step_BHTS.cumsum(dim=-1)

    def _gated(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        distance_TS = context.pos_T[:, None] - context.pos_S
        slope_H11 = self.rounded(nn.functional.softplus(self.omega_H) * self.slope_H)[:, None, None]
        gate_BHT, gate_BHS = (
            nn.functional.softplus((x.float() * self._unit(vector)[:, None]).sum(dim=-1) * x.shape[-1] ** -0.5)
            for x, vector in ((q_BHTK, self.query_HK), (k_BHSK, self.key_HK))
        )
        return slope_H11 * distance_TS * (gate_BHT[..., None] + gate_BHS[:, :, None])

    def _unit(self, vector_HK: Tensor) -> Tensor:
        return self.rounded(nn.functional.normalize(vector_HK, dim=-1, eps=1e-6))
