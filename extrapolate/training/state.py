"""What a stopped training continues from: the weights, the optimiser's moments, the random generators, the log so far.

It is one file of tensors and JSON: reading it runs nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extrapolate.errors import UserError
from extrapolate.model.model import Model
from extrapolate.runs import tensors
from extrapolate.runs.weights import load_weights, unique_weights

MODEL, MOMENTS = "model.", "optimizer."
CPU_GENERATOR, CUDA_GENERATOR = "generator.cpu", "generator.cuda"


@dataclass(frozen=True)
class ResumePoint:
    """How far a training came: its step, and the length, bytes, and SHA-256 of its log until then."""

    step: int
    log_bytes: int
    log_sha256: str


def save(path: Path, model: Model, optimizer: torch.optim.AdamW, progress: ResumePoint, config_sha256: str) -> None:
    """Writes the state of a training of the configuration with that hash, atomically."""
    found = {f"{MODEL}{name}": tensor for name, tensor in unique_weights(model).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        found |= {f"{MOMENTS}{index}.{name}": tensor for name, tensor in moments.items()}
    found[CPU_GENERATOR] = torch.get_rng_state()
    if model.device.type == "cuda":
        found[CUDA_GENERATOR] = torch.cuda.get_rng_state()
    tensors.write(path, found, {**vars(progress), "config": config_sha256})


def restore(path: Path, model: Model, optimizer: torch.optim.AdamW, config_sha256: str) -> ResumePoint:
    """Puts a saved state into a fresh model, its optimizer and the random generators, and says how far it came.

    Raises UserError if the file is damaged, or belongs to another configuration.
    """
    record = tensors.record(path)
    if record.get("config") != config_sha256:
        raise UserError(f"{path} does not belong to the config.json beside it, which was changed: restore that file")
    found = tensors.read(path)
    load_weights(model, _under(MODEL, found), str(path))
    try:
        _load_moments(optimizer, _under(MOMENTS, found))
        torch.set_rng_state(found[CPU_GENERATOR])
        if CUDA_GENERATOR in found:
            torch.cuda.set_rng_state(found[CUDA_GENERATOR])
        return ResumePoint(int(record["step"]), int(record["log_bytes"]), str(record["log_sha256"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {error!r}; delete {path.parent} and train again") from error


def _load_moments(optimizer: torch.optim.AdamW, found: dict[str, Tensor]) -> None:
    """The groups, with their rates and decays, stay those of the configuration."""
    values: dict[int, dict[str, Any]] = {}
    for name, tensor in found.items():
        index, _, moment = name.partition(".")
        values.setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": values})


def _under(prefix: str, found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
