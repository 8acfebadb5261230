"""The state that a stopped training resumes from: weights, the optimiser's moments, random generators, the log so far.

It is one file of tensors and JSON; reading it runs no code.
"""

from dataclasses import dataclass
from pathlib import Path

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
    """How far a training has come: its step, the length, bytes, and SHA-256 of its log, and the end of its branch."""

    step: int
    log_bytes: int
    log_sha256: str
    branch_end: int | None = None


def save(path: Path, model: Model, optimizer: torch.optim.AdamW, progress: ResumePoint, config_sha256: str) -> None:
    """Atomically writes the state of a training whose configuration has that hash."""
    found = {f"{MODEL}{name}": tensor for name, tensor in unique_weights(model).items()}
    for index, moments in optimizer.state_dict()["state"].items():
        found |= {f"{MOMENTS}{index}.{name}": tensor for name, tensor in moments.items()}
    found[CPU_GENERATOR] = torch.get_rng_state()
    if model.device.type == "cuda":
        found[CUDA_GENERATOR] = torch.cuda.get_rng_state()
    tensors.write(path, found, {**vars(progress), "config": config_sha256})


def restore(path: Path, model: Model, optimizer: torch.optim.AdamW, config_sha256: str) -> ResumePoint:
    """Loads a saved state into a fresh model, its optimiser and the random generators.

    Raises UserError if the file is damaged, or belongs to another configuration.
    """
    record = tensors.record(path)
    if record.get("config") != config_sha256:
        raise UserError(f"{path} does not belong to the config.json beside it, which was changed: restore that file")
    found = tensors.read(path)
    load_weights(model, _under(MODEL, found), str(path))
    try:
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(MOMENTS, found).items():
            index, _, moment = name.partition(".")
            moments.setdefault(int(index), {})[moment] = tensor
        # Groups, with their rates and decays, stay those of the configuration.
        optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
        torch.set_rng_state(found[CPU_GENERATOR])
        if CUDA_GENERATOR in found:
            torch.cuda.set_rng_state(found[CUDA_GENERATOR])
        return ResumePoint(
            int(record["step"]), int(record["log_bytes"]), str(record["log_sha256"]), record.get("branch_end")
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged: {error!r}; delete {path.parent} and train again") from error


def _under(prefix: str, found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
