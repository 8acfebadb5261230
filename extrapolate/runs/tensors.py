"""Tensors in a safetensors file with a record, JSON in the file's header, so that reading it runs no code.

The record has hashes of the tensors and of itself, so that any flipped bit is noticed.
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
from extrapolate.folders import METADATA


def write(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Atomically writes tensors and a record about them. No two tensors may share memory."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {"format": files.FORMAT, **record, "values": sha256_of(kept)}
    # A single entry, so that equal tensors give equal files: the library writes several in a random order.
    header = json.dumps({**content, files.SEAL: files.sealed_hash(content)})
    files.write_bytes(path, save(kept, {METADATA: header}))


def record(path: Path) -> dict[str, Any]:
    """The record of a file's tensors, with their hash as `values`. Raises UserError if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get(METADATA)
        found = None if written is None else json.loads(written)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if written is None:
        raise UserError(f"{path} was written by another program: it does not say what its tensors are; train again")
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: its {METADATA} is not an object; train again")
    content = files.unsealed(found, str(path))
    files.check_format(path, content.get("format"))
    return content


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


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged: {error}; train again")
