"""Writes rotary.safetensors: what transformers and x-transformers make of the same queries and keys.

Made with transformers 5.23.0, x-transformers 2.31.10 and torch 2.13.0. To make it again:

    pip install transformers==5.23.0 x-transformers==2.31.10
    python tests/reference/make_rotary.py

A tensor is called after the encoding it belongs to and what it is: `xpos:scale_base=7 scores`. The tests read the
file alone, so neither package is needed to run them.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from x_transformers.x_transformers import (
    PolarEmbedding,
    RotaryEmbedding,
    apply_polar_pos_emb,
    apply_rotary_pos_emb,
)

H, T, K = 2, 24, 16


def rope(q: Tensor, k: Tensor, theta: int) -> dict[str, Tensor]:
    """x-transformers pairs neighbouring channels."""
    freqs, _ = RotaryEmbedding(K, base=theta)(torch.arange(T))
    both = {"q": apply_rotary_pos_emb(q, freqs), "k": apply_rotary_pos_emb(k, freqs)}
    return {f"rope:pairing=interleaved,theta={theta} {name}": x for name, x in both.items()}


def p_rope(head_dim: int, p: float, theta: int) -> dict[str, Tensor]:
    """The frequencies of Gemma 4's `proportional` type."""
    parameters = {"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": p}
    config = LlamaConfig(head_dim=head_dim, rope_parameters=parameters)
    frequencies, _ = ROPE_INIT_FUNCTIONS["proportional"](config)
    return {f"p-rope:p={p:g},theta={theta} frequencies of {head_dim}": frequencies}


def partial_rope_in_halves(q: Tensor, k: Tensor, fraction: float, theta: int) -> dict[str, Tensor]:
    parameters = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": fraction}
    config = GPTNeoXConfig(hidden_size=H * K, num_attention_heads=H, rope_parameters=parameters)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(T)[None])
    both = dict(zip("qk", neox.apply_rotary_pos_emb(q, k, cos, sin), strict=True))
    return {f"partial-rope:fraction={fraction:g},theta={theta} {name}": x for name, x in both.items()}


def partial_rope_in_neighbours(q: Tensor, k: Tensor, channels: int) -> dict[str, Tensor]:
    freqs, _ = RotaryEmbedding(channels)(torch.arange(T))
    both = {"q": apply_rotary_pos_emb(q, freqs), "k": apply_rotary_pos_emb(k, freqs)}
    return {f"partial-rope:fraction={channels / K:g},pairing=interleaved {name}": x for name, x in both.items()}


def xpos(q: Tensor, k: Tensor, scale_base: int, theta: int) -> dict[str, Tensor]:
    """Scores before the scaling: queries and keys alone depend on where positions are counted from."""
    freqs, scale = RotaryEmbedding(K, use_xpos=True, scale_base=scale_base, base=theta)(torch.arange(T))
    scores = apply_rotary_pos_emb(q, freqs, scale) @ apply_rotary_pos_emb(k, freqs, 1 / scale).mT
    return {f"xpos:scale_base={scale_base},theta={theta} scores": scores}


def pope(q: Tensor, k: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Scores with no delta, with a delta, and with one that has left its range; all scaled."""
    module = PolarEmbedding(K, H)
    inside = -6 * torch.rand(H, K, generator=generator)
    tensors = {}
    for name, delta in {"zero": torch.zeros(H, K), "inside": inside, "outside": 3 * inside + 6}.items():
        module.learned_bias.data = delta[:, None].clone()
        freqs, bias = module(torch.arange(T))
        scores = apply_polar_pos_emb(q, freqs) @ apply_polar_pos_emb(k, freqs + bias).mT / K**0.5
        tensors |= {f"pope {name} delta": delta, f"pope {name} scores": scores}
    return tensors


if __name__ == "__main__":
    random = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, H, T, K, generator=random).unbind()
    tensors = {"q": q, "k": k}
    for theta in (10_000, 500_000):
        tensors |= rope(q, k, theta)
    for head_dim in (8, 16, 32, 64, 128):
        for p in (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0):
            tensors |= p_rope(head_dim, p, theta=1_000_000 if p == 0.25 else 10_000)
    tensors |= partial_rope_in_halves(q, k, 0.25, 10_000) | partial_rope_in_halves(q, k, 0.5, 500)
    tensors |= partial_rope_in_neighbours(q, k, 8)
    tensors |= xpos(q, k, 24, 10_000) | xpos(q, k, 7, 500)
    tensors |= pope(q, k, random)
    made = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    save_file(made, Path(__file__).parent / "rotary.safetensors")
