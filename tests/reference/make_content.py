"""Writes content.safetensors: CoPE's and FoX's biases as x-transformers computes them, with what went in.

Made with x-transformers 2.31.10 and torch 2.13.0, in float64, stored as float32. To make it again:

    pip install x-transformers==2.31.10
    python tests/reference/make_content.py

The tests read the file alone, so x-transformers is not needed to run them.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from x_transformers.x_transformers import CoPE, DataDependentAlibi

B, H, T, K, D = 2, 3, 21, 8, 12
COUNT = 6  # fewer positions than tokens: some are cut off


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Numbers that float32 holds exactly, as float64."""
    return torch.randn(*shape, generator=generator).double()


def cope(generator: torch.Generator) -> dict[str, Tensor]:
    """Queries, keys and CoPE's table, and what CoPE adds to the scaled scores."""
    q, k = normal(generator, B, H, T, K), normal(generator, B, H, T, K)
    module = CoPE(dim=K, heads=H, max_pos=COUNT).double()
    module.pos_emb.data = normal(generator, COUNT, K)
    scores = q @ k.mT / K**0.5
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    added = module(q, scores.masked_fill(later, -torch.finfo(scores.dtype).max))
    return {"q": q, "k": k, "table": module.pos_emb, "added": added}


def fox(generator: torch.Generator) -> dict[str, Tensor]:
    """Attention inputs and gates, and the forgetting transformer's bias."""
    x = normal(generator, B, T, D)
    module = DataDependentAlibi(dim=D, heads=H).double()
    gate = module.to_forget_gates[0]
    gate.weight.data, gate.bias.data = normal(generator, H, D), normal(generator, H)
    return {"x": x, "weight": gate.weight, "bias": gate.bias, "added": module(x)}


if __name__ == "__main__":
    random = torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {}
    for name, made in {"cope": cope(random), "fox": fox(random)}.items():
        tensors |= {f"{name}.{key}": value.detach().float().contiguous() for key, value in made.items()}
    save_file(tensors, Path(__file__).parent / "content.safetensors")
