"""Rotary position embedding."""

import math
from typing import Any, Literal, Self

import torch
from torch import Tensor

from extrapolate.encodings.base import FREQUENCIES, RELATIVE, Dims, Encoding, Rotations, Spectrum, register
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError


@register("rope")
class RoPE(Encoding):
    """Rotates pairs of query and key channels by an angle proportional to the position.

    Pair m of K/2 turns by i w_m, w_m = theta^(-2m/K): (x, y) -> (x cos - y sin, y cos + x sin). The product of a query
    at i and a key at j then depends only on i - j. Values are untouched.
    Beyond L: pairs that have not completed a turn within L tokens (L w_m < 2 pi) reach angles never seen, and the loss
    rises steeply.

    Arguments: theta, the base (Llama 3 uses 500,000); pairing, which channels form a pair: "half" (m, m + K/2), as in
    Llama on Hugging Face, or "interleaved" (2m, 2m + 1), as in the paper. Trained from scratch, both give the same
    class of functions, but weights do not carry over.
    Source: Su et al., arXiv 2104.09864.
    """

    display = "RoPE"
    source = "arXiv 2104.09864"
    family = "rotary"
    accepts = RELATIVE | {FREQUENCIES}

    def __init__(
        self, dims: Dims, *, theta: float = 10_000.0, pairing: Literal["half", "interleaved"] = "half"
    ) -> None:
        super().__init__(dims)
        if dims.head_dim % 2:
            raise UserError(f"rope needs an even head size, not {dims.head_dim}")
        if theta <= 1:
            raise UserError(f"rope: theta must be more than 1, not {theta:g}")
        self.theta = theta
        self.pairing = pairing
        self.frequency_scale: tuple[float, ...] = ()

    def frequencies(self, device: torch.device) -> Tensor:
        """w_m in radians per token, [K/2], float32, fastest first."""
        return geometric(self.theta, self.dims.head_dim, device)

    def scaled_frequencies(self, device: torch.device) -> Tensor:
        """The frequencies, as an extension changes them."""
        return scaled(self.frequencies(device), self.frequency_scale)

    def spectrum(self) -> Spectrum:
        return Spectrum(self.theta, self.dims.head_dim // 2)

    def rotations(self) -> Rotations | None:
        frequency_M = self.scaled_frequencies(torch.device("cpu")).detach()
        turned = 2 * len(frequency_M)
        channel_K = torch.arange(self.dims.head_dim)
        pairs_M2 = channel_K[:turned].view(2, -1).T if self.pairing == "half" else channel_K[:turned].view(-1, 2)
        rest_M2 = channel_K[turned:].view(-1, 2)  # of a partial rotation
        frequency_M = torch.cat([frequency_M, torch.zeros(len(rest_M2))])
        return Rotations(frequency_M, torch.cat([pairs_M2, rest_M2]))

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan).copy_with(frequency_scale=plan.frequency_scale)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        frequencies = self.scaled_frequencies(pos_T.device)
        turn_T = self.table(pos_T, frequencies)
        turn_S = turn_T if pos_S is pos_T else self.table(pos_S, frequencies)
        return self.rotated(q_BHTK, *turn_T), self.rotated(k_BGSK, *turn_S)

    def table(self, pos_T: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, [T, M], as they are stored."""
        cos_TM, sin_TM = turn(pos_T, frequencies)
        return self.rounded(cos_TM), self.rounded(sin_TM)

    def rotated(self, x_BHTK: Tensor, cos_TM: Tensor, sin_TM: Tensor) -> Tensor:
        """x with every pair turned."""
        if self.pairing == "half":
            a, b = x_BHTK.float().chunk(2, dim=-1)
            pair = torch.cat([a * cos_TM - b * sin_TM, b * cos_TM + a * sin_TM], dim=-1)
        else:
            a, b = x_BHTK.float().unflatten(-1, (-1, 2)).unbind(-1)
            pair = torch.stack([a * cos_TM - b * sin_TM, b * cos_TM + a * sin_TM], dim=-1).flatten(-2)
        return pair.to(x_BHTK.dtype)

    def rotated_heads(
        self, q_BHTK: Tensor, k_BGSK: Tensor, angle_BGTM: Tensor, angle_BGSM: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys, turned by angles of each key head: query heads that share a key head turn alike."""
        turn_BGTM = self.rounded(angle_BGTM.cos()), self.rounded(angle_BGTM.sin())
        turn_BGSM = turn_BGTM
        if angle_BGSM is not angle_BGTM:
            turn_BGSM = self.rounded(angle_BGSM.cos()), self.rounded(angle_BGSM.sin())
        group = q_BHTK.shape[1] // k_BGSK.shape[1]
        cos_BHTM, sin_BHTM = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in turn_BGTM)
        return self.rotated(q_BHTK, cos_BHTM, sin_BHTM), self.rotated(k_BGSK, *turn_BGSM)


def of_key_heads(x_BHT: Tensor, q_BHTK: Tensor, k_BGSK: Tensor) -> Tensor:
    """What each key head turns by, [B, G, T]: of the query heads that share it, the first one's."""
    return x_BHT[:, :: q_BHTK.shape[1] // k_BGSK.shape[1]]


def geometric(theta: float, channels: int, device: torch.device) -> Tensor:
    """theta^(-2m/channels), m = 0..channels/2 - 1, float32."""
    return theta ** (-torch.arange(0, channels, 2, device=device) / channels)


def complete_pairs(rope: RoPE, length: int) -> int:
    """The number of RoPE's pairs that complete a turn within `length` tokens: w_m >= 2 pi / length."""
    frequencies = geometric(rope.theta, rope.dims.head_dim, torch.device("cpu"))
    return int((frequencies >= 2 * math.pi / length).sum())


def scaled(frequencies: Tensor, factors: tuple[float, ...]) -> Tensor:
    """Each frequency times its factor; unchanged if there are no factors."""
    if not factors:
        return frequencies
    return frequencies * torch.tensor(factors).to(frequencies.device, non_blocking=True)


def turn(pos_T: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, [T, M]."""
    angle_TM = torch.outer(pos_T, frequencies)
    if torch.compiler.is_compiling() and not angle_TM.requires_grad:
        return circle(angle_TM)
    return angle_TM.cos(), angle_TM.sin()


@torch.library.custom_op("extrapolate::circle", mutates_args=())
def circle(angle_TM: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine.

    As an operator unknown to the compiler, it is computed once for all layers, rather than again for every head and
    window within the product that reads it.
    """
    return angle_TM.cos(), angle_TM.sin()


@circle.register_fake
def _(angle_TM: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(angle_TM), torch.empty_like(angle_TM)
