"""A model's encoding, found by its name: one instance per layer, checked first if its class is in a user's file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, encodings, layers_of
from extrapolate.errors import UserError
from extrapolate.model.hooks import check
from extrapolate.model.size import check_encoding
from extrapolate.specs import user_files


def find(name: str) -> type[Encoding]:
    """The class called `name`: a registered name, or `path/to/file.py:Class`. Raises UserError if there is none."""
    file, _, class_name = name.rpartition(":")
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the class in it too, {name}:MyEncoding")
    if not file.endswith(".py"):
        return encodings[name]
    cls = user_files.load_user_class(Path(file), class_name, Encoding)
    if not hasattr(cls, "display"):
        raise UserError(f'{name} has no display, which is its name in tables: write display = "{class_name}"')
    return cls


def layer_encodings(name: str, arguments: Mapping[str, Any], dims: Dims, kv_heads: int | None = None) -> list[Encoding]:
    """One instance per layer; `kv_heads` is G (default H).

    Raises UserError if the name or an argument is unknown, the encoding refuses a value, a class of a user's file does
    not do what an encoding must, or the layers do not fit into memory.
    """
    cls = find(name)
    converted = specs.convert_arguments(cls, arguments, owner=name)
    check_encoding(cls, converted, dims)
    if ":" in name:
        file = Path(name.rpartition(":")[0])
        check(cls, file, lambda: layers_of(cls, converted, dims), dims, kv_heads or dims.heads)
    try:
        return layers_of(cls, converted, dims)
    except UserError:
        raise
    except (ArithmeticError, ValueError) as error:  # too large, divided by 0, or the logarithm of 0
        said = ", ".join(f"{key}={value}" for key, value in converted.items())
        raise UserError(f"{name}: {said} gives numbers that cannot be computed with: {error}") from error
