"""Selective RoPE: rotations that content makes, token after token."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Dims, Rotations, register
from extrapolate.encodings.rope import RoPE, of_key_heads
from extrapolate.errors import UserError

TAPS = 4  # tokens that the convolution reads, its own included
EPSILON = 1e-6  # of the norm, as in the authors' code


@register("selective-rope")
class SelectiveRoPE(RoPE):
    """Turns each pair of channels by the sum of angles that the tokens so far chose for it.

    Pair m of head h turns token i by w_m (phi_1 + ... + phi_i), w_m = theta^(-2m/K), where token t contributes the
    angle phi_t[h, m]: phi = conv(W_2 W_1 y). y is the layer's attention input, cut into one piece per head, each
    divided by its 2-norm; W_1 has `rank` rows, and the causal convolution adds up the last 4 tokens, with separate
    weights for each head and pair. None of these has a bias. Query heads that share a key head all turn by the angles
    of the first. Sums are float32. With gate, phi is multiplied by sigmoid(w_h y + b_h), so that a head may pass over a
    token.
    Beyond L: the angle between two tokens depends on what lies between them, and grows with their distance unless
    tokens cancel each other out. Pairs may reach sums never seen in training, slow ones last.

    As in the authors' code, the norm is taken for each piece. Their code normalises queries and keys after rotating
    them, if at all; ours does so before, as with every encoding.
    Arguments: rank (default 16, as in the code; the authors' language models have 32); theta, the base; gate, whether
    there is one; form, either "learned", with weights that start at a standard deviation of 0.02 as in the authors'
    models, which hardly turn anything at first, or "fixed" (our reading of a random phi), with weights that stay as
    they were drawn, so that phi has a variance of 1; pairing, as for rope.
    Source: Selective RoPE, arXiv 2511.17388.
    """

    display = "Selective RoPE"
    source = "arXiv 2511.17388"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(
        self,
        dims: Dims,
        *,
        rank: int = 16,
        theta: float = 500_000.0,
        gate: bool = False,
        form: Literal["learned", "fixed"] = "learned",
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        if rank < 1:
            raise UserError(f"selective-rope: rank must be at least 1, not {rank}")
        if dims.width % dims.heads:
            raise UserError(
                f"selective-rope cuts the width into one piece per head: {dims.width} is no multiple of {dims.heads}"
            )
        self.rank = rank
        self.gate = gate
        self.form = form
        self.caption = "Selective RoPE: a fixed phi is our reading" if form == "fixed" else ""
        fixed = form == "fixed"
        self.down = nn.Linear(dims.width, rank, bias=False)
        self.up = nn.Linear(rank, dims.heads * dims.head_dim // 2, bias=False)
        self.tap_UC = nn.Parameter(torch.empty(TAPS, self.up.out_features))  # the first is that of the token itself
        # The pieces have norm 1, so that their squares add up to the number of heads.
        for weight, added in ((self.down.weight, dims.heads), (self.up.weight, rank), (self.tap_UC, TAPS)):
            nn.init.normal_(weight, std=added**-0.5 if fixed else 0.02)
            weight.requires_grad_(not fixed)
        if gate:
            self.gating = nn.Linear(dims.width, dims.heads)
            nn.init.normal_(self.gating.weight, std=0.02)
            nn.init.zeros_(self.gating.bias)

    def rotations(self) -> Rotations | None:
        return None  # content decides how fast

    def prepare(self, x_BTD: Tensor) -> Tensor:
        """The angle of each pair, [B, H, T, M], float32."""
        heads = self.dims.heads
        piece_BTHN = x_BTD.float().unflatten(-1, (heads, -1))
        y_BTD = (piece_BTHN * (piece_BTHN.square().sum(dim=-1, keepdim=True) + EPSILON).rsqrt()).flatten(-2)
        own_BTC = self.up(self.down(y_BTD)).float()
        length = own_BTC.shape[1]
        earlier_BTC = nn.functional.pad(own_BTC, (0, 0, TAPS - 1, 0))
        phi_BTC = sum(tap_C * earlier_BTC[:, TAPS - 1 - u :][:, :length] for u, tap_C in enumerate(self.tap_UC))
        phi_BTHM = phi_BTC.unflatten(-1, (heads, -1))
        if self.gate:
            phi_BTHM = phi_BTHM * self.gating(y_BTD).float().sigmoid()[..., None]
        return (self.frequencies(x_BTD.device) * phi_BTHM.cumsum(dim=1)).transpose(1, 2)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        angle_BGTM = of_key_heads(state, q_BHTK, k_BGSK)
        return self.rotated_heads(q_BHTK, k_BGSK, angle_BGTM, angle_BGTM)
