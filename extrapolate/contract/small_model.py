"""The small model that checks run an encoding in."""

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.errors import UserError
from extrapolate.model.config import ModelConfig
from extrapolate.model.hooks import HOOKS, check, move_from_constants
from extrapolate.model.model import Model
from extrapolate.specs.user_files import described

SIZES = ModelConfig.model_validate(
    {"vocab_size": 61, "width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
)


def small_model(name: str, arguments: Mapping[str, Any], seq_len: int) -> Model:
    """A model in eval mode, with constant parameters of the encoding moved away from their initial value.

    Raises UserError if the encoding cannot be built.
    """
    model = Model(SIZES, name, arguments, seq_len)
    with torch.no_grad():
        move_from_constants(model.encodings)
    return model.eval()


def fresh_model(name: str, arguments: Mapping[str, Any], seq_len: int) -> Model:
    """A model in eval mode as it is at the start of training, with a fixed seed. Raises UserError if building fails."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Model(SIZES, name, arguments, seq_len).eval()


def check_hooks(cls: type[Encoding], arguments: Mapping[str, Any], seq_len: int, file: Path) -> None:
    """Raises UserError if a hook of the class is wrong by itself."""
    dims = Dims(SIZES.width, SIZES.heads, SIZES.head_dim, seq_len, layers=SIZES.layers, kv_heads=SIZES.kv_heads)
    check(cls, file, arguments, dims)


def resolved_factor(model: Model, factor: int) -> int:
    """factor times L in tokens, or the longest length for which the encoding is defined."""
    length = factor * model.seq_len
    return min(length, *(encoding.max_length or length for encoding in model.encodings))


def tokens(model: Model, length: int, rows: int = 2) -> Tensor:
    """Random tokens with a fixed seed, [rows, length]."""
    return torch.randint(0, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(1))


def failure(error: Exception, file: Path, case: str = "") -> UserError:
    """Turns an error of the model into one that names the hook it came from. case: when, such as ` at 64 tokens`."""
    if isinstance(error, UserError):
        return error
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    hook = next((name for name in names if name in HOOKS), "the encoding")
    found = UserError(f"{file}: {hook} failed{case}: {described(error, file)}")
    found.__cause__ = error
    return found
