"""Files of a model's weights, which record their step and configuration, and those that a run keeps on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.folders import CHECKPOINTS, HALF, METRICS, TRUNK
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.model.size import expected_shapes
from extrapolate.runs import tensors


@dataclass(frozen=True)
class Checkpoint:
    """Weights on disk after some steps and tokens; sha256 is the hash of their content.

    config_sha256: of the configuration that they were trained with, or of the files that they were imported from.
    final: whether they are the end of the training.
    """

    path: Path
    step: int
    tokens: int
    sha256: str
    config_sha256: str = ""
    final: bool = True

    @property
    def annealed(self) -> bool:
        """Whether the learning rate had fallen to its end."""
        return self.final or self.path.parent.name == HALF


def unique_weights(model: Model) -> dict[str, Tensor]:
    """The state dict with every shared tensor (tied embeddings) only under its first name."""
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    return {name: state[name] for name in names.values()}


def load_weights(model: Model, weights: dict[str, Tensor], where: str) -> None:
    """Copies weights into the model, which may have been built without. Raises UserError if names or shapes differ."""
    own = unique_weights(model)
    wrong = set(own) ^ set(weights) | {name for name in own.keys() & weights if own[name].shape != weights[name].shape}
    if wrong:
        raise UserError(f"{where} does not belong to its config.json: {', '.join(sorted(wrong)[:3])} differ")
    if any(tensor.is_meta for tensor in own.values()):
        _allocate(model)
        own = unique_weights(model)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def _allocate(model: Model) -> None:
    """Gives parameters on the meta device memory, on the CPU; those that modules share stay shared."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter.is_meta:
                made.setdefault(parameter, nn.Parameter(torch.empty_like(parameter, device="cpu")))
                setattr(module, name, made[parameter])


def load_start(model: Model, checkpoint: Checkpoint) -> None:
    """Copies another run's weights into a fresh model of the same sizes.

    If the encodings differ, the encoding's own parameters stay fresh. Raises UserError if weights are damaged or do
    not fit.
    """
    weights, own = tensors.read(checkpoint.path), unique_weights(model)
    shapes, own_shapes = ({name: one.shape for name, one in each.items()} for each in (weights, own))
    if shapes != own_shapes:
        weights = {name: tensor for name, tensor in weights.items() if ".encoding." not in name}
        weights |= {name: tensor for name, tensor in own.items() if ".encoding." in name}
    load_weights(model, weights, str(checkpoint.path))


def describe(path: Path) -> Checkpoint:
    """The record of a file of weights. Raises UserError if it is damaged."""
    record = tensors.record(path)
    try:
        names = ("step", "tokens", "values", "config", "final")
        return Checkpoint(path, *(record[name] for name in names))
    except KeyError as missing:
        raise UserError(f"{path} is damaged: its record has no {missing}; train again") from None


def check_sizes(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Raises UserError if a configuration's sizes are not those of the weights, without building a model."""
    there = tensors.shapes(checkpoint.path)
    layers = {name.split(".")[1] for name in there if name.startswith("blocks.")}
    here = expected_shapes(config) if len(layers) == config.layers else {}
    wrong = sorted(name for name in here if there.get(name) != here[name])
    if not here or wrong:
        differ = ", ".join(wrong[:3]) or f"{config.layers} layers in the one, {len(layers)} in the other,"
        raise UserError(f"{checkpoint.path} does not belong to its config.json: {differ} differ")


def name_of(step: int) -> str:
    """The file name of an intermediate checkpoint."""
    return f"step-{step:08d}.safetensors"


def kept_along(path: Path, folders: Sequence[str] = (CHECKPOINTS, HALF)) -> list[Path]:
    """The weights kept along the training, in order of their steps; of a step with two, that of half the budget."""
    found = {file.name: file for folder in folders for file in (path / folder).glob("*.safetensors")}
    return [found[name] for name in sorted(found)]


def forget_training(path: Path) -> None:
    """Removes files of a training whose weights are gone, which the next one in the folder might not overwrite.

    Its results stay until the folder is evaluated; reports ignore them.
    """
    forget_checkpoints(path, 0)
    (path / TRUNK).unlink(missing_ok=True)
    (path / METRICS).unlink(missing_ok=True)


def forget_checkpoints(path: Path, step: int, half: int | None = None) -> None:
    """Removes what was kept after a step, since a training that resumes there may write others.

    half: the end of the model of half the budget, if it stays.
    """
    files.check_no_link(path / CHECKPOINTS)
    kept = None if half is None else path / HALF / name_of(half)
    for folder in (CHECKPOINTS, HALF):
        for file in (path / folder).glob("*.safetensors"):
            if file.name > name_of(step) and file != kept:
                file.unlink(missing_ok=True)


def has_half(path: Path, step: int) -> bool:
    """Whether the model of half the budget, which ends at this step, was kept."""
    return (path / HALF / name_of(step)).is_file()
