"""Copies of a model that keep nothing from earlier calls."""

import copy
from typing import TypeVar

import torch
from torch import nn

from extrapolate.encodings.base import layers_of
from extrapolate.errors import UserError
from extrapolate.model.llama import Decoder
from extrapolate.specs.user_files import is_users, with_fresh_classes

D = TypeVar("D", bound=Decoder)


def copy_of(model: D) -> D:
    """A copy with its own encodings; it shares all other parts, which keep nothing from calls."""
    own = {id(part) for encoding in model.encodings for part in encoding.modules()}
    shared = (module for module in model.modules() if not any(id(part) in own for part in module.modules()))
    return copy.deepcopy(model, {id(part): part for part in (*shared, model.config)})


def not_copied(owner: object, error: RuntimeError) -> UserError:
    """The error about an encoding that torch cannot copy."""
    return UserError(
        f"{owner}: the encoding cannot be copied ({error}): keep no tensor that is computed from tokens or parameters; "
        "torch.nn.utils.parametrizations computes one from parameters in every call"
    )


def made_anew(model: D) -> D:
    """As `copy_of`, but runs a user's file again to construct its encodings, and copies the model's values into them.

    `copy_of` would share whatever a function keeps, such as a cache in its closure.
    """
    copied = with_fresh_classes(copy_of(model))
    first = copied.encodings[0]
    if is_users(first):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            layers = layers_of(type(first), first.arguments(), first.dims)
            for block, old, new in zip(copied.blocks, copied.encodings, layers, strict=True):
                _give_values(old, new.to(model.embedding.weight.device).train(model.training))
                block.encoding = new
    return copied


def _give_values(old: nn.Module, new: nn.Module) -> None:
    """Copies parameters, buffers and attributes, except functions, to another module of the same class."""
    usual = vars(nn.Module()).keys()
    parts = dict(old.named_modules())
    for name, part in new.named_modules():
        if name not in parts:
            continue
        for values, others in ((part._parameters, parts[name]._parameters), (part._buffers, parts[name]._buffers)):
            for key, value in values.items():
                other = others.get(key)
                if value is not None and other is not None:  # in place: functions in the constructor may hold them
                    value.data = other.data.clone()
        kept = {key: value for key, value in vars(parts[name]).items() if key not in usual and not callable(value)}
        vars(part).update(kept)
