"""Tensors in a file, with a record of what they are: safetensors, whose header is JSON, so that nothing in it runs.

Every bit counts: the record has the hash of the tensors, and a hash of itself.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from extrapolate import files
from extrapolate.errors import UserError

FORMAT = 2
METADATA = "extrapolate"  # our entry in the file's own header
_FIRST = {"step", "tokens", "sha256"}  # all that the first format said: it had no hash of itself


def write(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Writes tensors and what is to be said of them, JSON, atomically; no two may share memory."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {"format": FORMAT, **record, "values": sha256_of(kept)}
    # One entry: the library writes several in a random order, and equal tensors should be equal files.
    header = json.dumps({**content, files.SEAL: files.sealed_hash(content)})
    files.write_bytes(path, save(kept, {METADATA: header}))


def record(path: Path) -> dict[str, Any]:
    """What was said of a file's tensors, with their hash as `values`. Raises UserError if the file is damaged."""
    found = _header(path)
    if found.keys() == _FIRST:
        return {"step": found["step"], "tokens": found["tokens"], "values": found["sha256"]}
    if found.get("format") != FORMAT:
        raise UserError(f"{path} is damaged, or of a later version of extrapolate: there is no format {FORMAT} in it")
    return files.unsealed(found, str(path))


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, from the header alone. Raises UserError if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (a file is no dict)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def read(path: Path) -> dict[str, Tensor]:
    """The tensors, on the CPU. Raises UserError if they are not those that were written."""
    expected = record(path)["values"]
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error
    if sha256_of(tensors) != expected:
        raise UserError(f"{path} is damaged: its content does not have the hash it was written with; train again")
    return tensors


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _header(path: Path) -> dict[str, Any]:
    files.check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            found = json.loads(file.metadata()[METADATA])
    except (SafetensorError, OSError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: its {METADATA} is not an object; train again")
    return found


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged: {error}; train again")
