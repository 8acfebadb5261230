"""RoPE++: heads that read the imaginary part of RoPE's product."""

from typing import Any, Literal

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, register
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError


@register("rope-pp")
class RoPEPlusPlus(RoPE):
    """Rotates as RoPE does, and turns the queries of half of the heads back by a quarter turn.

    Pair m of a key at j turns by j w_m, w_m = theta^(-2m/K), and that of a query at i by i w_m, or by i w_m - pi/2 in
    an imaginary head: (x, y) -> (x sin + y cos, y sin - x cos). A pair of equal queries and keys then scores
    sin((i - j) w_m) instead of cos((i - j) w_m): 0 for the token itself, and more for those further back, within a
    quarter turn.
    Beyond L: as in RoPE, pairs that have not completed a turn within L tokens reach angles never seen.

    This is the form that the authors' code calls "imagh", with as many heads as before, each with its own queries. The
    paper's models have both heads for every query: twice as many heads, or half as many keys and values, which no
    encoding can change here. Arguments: imaginary, which heads they are: "second-half", as in that form, or
    "every-second" (the code's "imagx"), so that query heads that share a key head are of both kinds; theta and pairing,
    as for rope.
    Source: RoPE++, arXiv 2512.07525.
    """

    display = "RoPE++"
    source = "arXiv 2512.07525"
    caption = (
        "RoPE++: the form of the authors' code with as many heads as RoPE, not one of the paper's; a token's score "
        "with itself starts at 0 in half of them"
    )
    rescales = frozenset({"rotate"})

    def __init__(
        self,
        dims: Dims,
        *,
        imaginary: Literal["second-half", "every-second"] = "second-half",
        theta: float = 10_000.0,
        pairing: Literal["half", "interleaved"] = "half",
    ) -> None:
        super().__init__(dims, theta=theta, pairing=pairing)
        if dims.heads % 2:
            raise UserError(f"rope-pp needs an even number of heads, not {dims.heads}")
        self.imaginary = imaginary

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        frequencies = self.scaled_frequencies(pos_T.device)
        cos_TM, sin_TM = self.table(pos_T, frequencies)
        turn_S = (cos_TM, sin_TM) if pos_S is pos_T else self.table(pos_S, frequencies)
        # cos(a - pi/2) = sin(a), and sin(a - pi/2) = -cos(a).
        real, imaginary = (cos_TM, sin_TM), (sin_TM, -cos_TM)
        if self.imaginary == "second-half":
            first, second = q_BHTK.chunk(2, dim=1)
            turned_q = torch.cat([self.rotated(first, *real), self.rotated(second, *imaginary)], dim=1)
        else:
            first, second = q_BHTK[:, ::2], q_BHTK[:, 1::2]
            turned_q = torch.stack([self.rotated(first, *real), self.rotated(second, *imaginary)], dim=2).flatten(1, 2)
        return turned_q, self.rotated(k_BGSK, *turn_S)
