"""Kimi Delta Attention: a state that forgets by channel and corrects what it holds, in place of attention."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm, silu, softplus

from extrapolate.encodings.base import Dims, Encoding, register

TAPS = 4  # tokens that a short convolution reads
BLOCK = 16  # tokens
# The least that the logarithm of a gate can be. Within a block, factors are computed from its middle token: over half
# of its tokens they stay below e^80, which float32 holds.
FLOOR = -80 / (BLOCK // 2)


@register("kda")
class KDA(Encoding):
    """Replaces attention with a state per head, which forgets per channel and only writes what it does not hold yet.

    S <- diag(e^g_t) S, then S <- S + b_t k_t (v_t - S^T k_t)^T, and token t gathers S^T q_t / sqrt(K). Here q and k are
    the model's queries and keys after a causal convolution over 4 tokens per channel, silu, and division by their
    2-norm; v only gets the first two. The gates read the layer's attention input x: g = -e^(a_h) softplus(W2 W1 x + c)
    for each channel, with W2 W1 of rank K, and b = sigmoid(w_h x). What a head gathers is normalised (RMSNorm) and
    multiplied by sigmoid(W4 W3 x + d), also of rank K. Computed in blocks of 16 tokens, each by a triangular system, in
    float32.
    Beyond L: there are no positions and no growing number of keys. The state has a fixed size, and what the gates do to
    it over more than L tokens was never trained.

    Our reading: g is clamped to at least -10, so that float32 suffices within a block. If the model has fewer key heads
    than query heads, each query head has its own convolution for its key and its value. Initial values are those of the
    authors' code: e^(a_h) is drawn from 1..16, softplus(c) log-uniformly from 0.001..0.1, and the gates' weights with
    a standard deviation of 0.02. Kimi Linear alternates such layers with NoPE: see pattern. No extension applies,
    because there are no scores.
    Source: Kimi Linear, arXiv 2510.26692.
    """

    display = "KDA"
    source = "arXiv 2510.26692"
    family = "recurrent"
    caption = "KDA: the logarithm of a gate is at least -10 (our reading)."
    accepts = frozenset()
    positional = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        channels = dims.heads * dims.head_dim
        bound = TAPS**-0.5  # as for any convolution of torch
        self.taps_HK4 = nn.Parameter(torch.empty(3 * dims.heads, dims.head_dim, TAPS).uniform_(-bound, bound))
        self.log_speed_H = nn.Parameter(torch.empty(dims.heads).uniform_(1, 16).log())
        speed = torch.empty(dims.heads, dims.head_dim).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.forget_bias_HK = nn.Parameter(speed.expm1().log())  # the inverse of softplus
        self.forget_down = nn.Linear(dims.width, dims.head_dim, bias=False)
        self.forget_up = nn.Linear(dims.head_dim, channels, bias=False)
        self.write = nn.Linear(dims.width, dims.heads, bias=False)
        self.gate_down = nn.Linear(dims.width, dims.head_dim, bias=False)
        self.gate_up = nn.Linear(dims.head_dim, channels)
        for layer in (self.forget_down, self.forget_up, self.write, self.gate_down, self.gate_up):
            nn.init.normal_(layer.weight, std=0.02)
        nn.init.zeros_(self.gate_up.bias)
        self.scale_K = nn.Parameter(torch.ones(dims.head_dim))

    def prepare(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g, [B, H, T, K]; b, [B, H, T]; and the output's gate, [B, H, T, K]; all float32."""
        forget, gate = (
            up(down(x_BTD)).float().unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)
            for up, down in ((self.forget_up, self.forget_down), (self.gate_up, self.gate_down))
        )
        speed_H11 = self.log_speed_H.exp()[:, None, None]
        log_decay_BHTK = (-speed_H11 * softplus(forget + self.forget_bias_HK[:, None])).clamp(min=FLOOR)
        return log_decay_BHTK, self.write(x_BTD).float().sigmoid().transpose(1, 2), gate.sigmoid()

    def attends(self) -> bool:
        return False

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor:
        log_decay_BHTK, write_BHT, gate_BHTK = state
        groups = q_BHTK.shape[1] // k_BGTK.shape[1]
        k_BHTK, v_BHTK = (x.repeat_interleave(groups, dim=1) for x in (k_BGTK, v_BGTK))
        with torch.autocast(q_BHTK.device.type, enabled=False):
            all_three = torch.cat([q_BHTK, k_BHTK, v_BHTK], dim=1).float()
            q, k, v = silu(convolved(all_three, self.taps_HK4)).chunk(3, dim=1)
            q, k = (x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
            mixed_BHTK = delta_rule(q * q.shape[-1] ** -0.5, k, v, log_decay_BHTK, write_BHT)
            normed_BHTK = rms_norm(mixed_BHTK, mixed_BHTK.shape[-1:], self.scale_K, eps=1e-5)
        return (normed_BHTK * gate_BHTK).to(q_BHTK.dtype)


def convolved(x_BHTK: Tensor, taps_HK4: Tensor) -> Tensor:
    """For each channel, the sum of the last tokens times its taps; the first tap is that of the token itself."""
    length = x_BHTK.shape[2]
    padded = pad(x_BHTK, (0, 0, TAPS - 1, 0))
    shifted = (padded[:, :, TAPS - 1 - back :][:, :, :length] for back in range(TAPS))
    first, *others = (x * taps_HK4[:, None, :, back] for back, x in enumerate(shifted))
    return sum(others, start=first)


def delta_rule(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, log_decay_BHTK: Tensor, write_BHT: Tensor) -> Tensor:
    """S^T q_t for every token, [B, H, T, K], from S <- diag(e^g) S + b k (v - (diag(e^g) S)^T k)^T.

    In a block, u_t = b_t (v_t - S^T k_t) is what token t writes. It depends on what the tokens before it in the block
    wrote, through (I + A) U = b (V - K' S), with A the products of keys, faded, times b, K' the keys faded since the
    start of the block, and S the state at the start. All blocks are solved at once for both terms of the right side.
    """
    length, width = k_BHTK.shape[2:]
    missing = -length % BLOCK  # the tokens that fill the last block write nothing
    q, k, v, g = (
        pad(x, (0, 0, 0, missing)).unflatten(2, (-1, BLOCK)) for x in (q_BHTK, k_BHTK, v_BHTK, log_decay_BHTK)
    )
    b = pad(write_BHT, (0, missing)).unflatten(2, (-1, BLOCK))[..., None]
    total = g.cumsum(dim=-2)
    from_middle = total - total[..., BLOCK // 2 - 1 : BLOCK // 2, :]
    later, earlier = from_middle.exp(), (-from_middle).exp()
    keys = (k * earlier).mT
    pairs = ((k * later) @ keys).tril(-1) * b
    products = ((q * later) @ keys).tril()
    since_start = total.exp()
    right = torch.cat([v, k * since_start], dim=-1) * b
    values, faded_keys = torch.linalg.solve_triangular(pairs, right, upper=False, unitriangular=True).split(width, -1)
    faded_queries, until_end = q * since_start, (k * (total[..., -1:, :] - total).exp()).mT
    over_block = since_start[..., -1, :, None]
    state, mixed = torch.zeros_like(until_end[:, :, 0] @ v[:, :, 0]), []
    for n in range(k.shape[2]):
        written = values[:, :, n] - faded_keys[:, :, n] @ state
        mixed.append(faded_queries[:, :, n] @ state + products[:, :, n] @ written)
        state = over_block[:, :, n] * state + until_end[:, :, n] @ written
    return torch.cat(mixed, dim=2)[:, :, :length]
