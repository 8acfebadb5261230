"""A model's encoding: one instance a layer, checked first where the class is of a user's own file."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, find
from extrapolate.errors import UserError
from extrapolate.model.hooks import check
from extrapolate.model.size import check_encoding


def layer_encodings(name: str, arguments: Mapping[str, Any], dims: Dims, kv_heads: int | None = None) -> list[Encoding]:
    """One instance per layer; `kv_heads` is G (default H).

    Raises UserError on unknown names, arguments, or values the encoding refuses, and where a class of a user's file
    does not do what an encoding must, or the layers do not fit into memory.
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


def layers_of(cls: type[Encoding], arguments: Mapping[str, Any], dims: Dims) -> list[Encoding]:
    """One instance per layer, of a class and its converted arguments."""
    layers = [cls(dataclasses.replace(dims, layer=layer), **arguments) for layer in range(dims.layers)]
    for layer in layers[1:]:
        layer.share(layers[0])
    return layers
