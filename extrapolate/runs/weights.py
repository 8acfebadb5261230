"""Weights on disk: every tensor once, with their hash in the file itself."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from extrapolate.model.decoder import Model

METADATA = "extrapolate"  # our entry in the weights' own header


@dataclass(frozen=True)
class Checkpoint:
    """Weights on disk: where, after how many steps and tokens, and the SHA-256 of their content."""

    path: Path
    step: int
    tokens: int
    sha256: str


def unique_weights(model: Model) -> dict[str, Tensor]:
    """The state dict with every shared tensor (tied embeddings) once, under its first name."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights


def load_weights(model: Model, weights: dict[str, Tensor], where: str) -> None:
    """Copies weights into the model. Raises ValueError where names or shapes differ."""
    own = unique_weights(model)
    wrong = [name for name in {*own, *weights} if name not in own or name not in weights]
    wrong += [name for name in own if name in weights and own[name].shape != weights[name].shape]
    if wrong:
        raise ValueError(f"{where} does not belong to its config.json: {', '.join(sorted(wrong)[:3])} differ")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def load_start(model: Model, checkpoint: Checkpoint) -> None:
    """Copies another run's weights into a fresh model of the same sizes.

    Where its encoding is another one, the encoding's own parameters stay fresh. Raises ValueError where weights are
    damaged or do not fit.
    """
    weights, own = read_weights(checkpoint), unique_weights(model)
    fits = all(name in weights and weights[name].shape == own[name].shape for name in own)
    if not fits or set(weights) != set(own):
        weights = {name: tensor for name, tensor in weights.items() if ".encoding." not in name}
        weights |= {name: tensor for name, tensor in own.items() if ".encoding." in name}
    load_weights(model, weights, str(checkpoint.path))


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """A hash of names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def describe(path: Path) -> Checkpoint:
    try:
        with safe_open(path, framework="pt") as file:
            record = json.loads(file.metadata()[METADATA])
        return Checkpoint(path, record["step"], record["tokens"], record["sha256"])
    except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; delete {path.parent} and train again") from error


def read_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    try:
        weights = load_file(checkpoint.path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{checkpoint.path} is damaged: {error}; train again") from error
    if weights_sha256(weights) != checkpoint.sha256:
        raise ValueError(f"{checkpoint.path} is damaged: its content does not have the hash it was written with")
    return weights
