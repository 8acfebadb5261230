"""A small model with the encoding that is checked, how far it reaches, and which of its hooks is at fault."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from extrapolate.contract.answers import described
from extrapolate.contract.check import HOOKS, move_from_constants
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.errors import UserError
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Block, Model

SIZES = ModelConfig.model_validate(
    {"vocab_size": 61, "width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
)
# In the order of the tensors, but for `bias`, whose absence says the least. What `prepare` makes is read by `scores`.
_BLAMED = ("embed", "attention_input", "rotate", "scores", "bias", "positions")


def subject(name: str, arguments: Mapping[str, Any], seq_len: int) -> Model:
    """A model in eval mode; the encoding's parameters that start as one constant are moved from there.

    Raises UserError where the encoding cannot be built.
    """
    model = Model(SIZES, name, arguments, seq_len)
    with torch.no_grad():
        move_from_constants(encodings_of(model))
    return model.eval()


def dims_of(seq_len: int) -> Dims:
    """What an encoding of that model knows of it."""
    return Dims(SIZES.width, SIZES.heads, SIZES.head_dim, seq_len, layers=SIZES.layers)


def encodings_of(model: Model) -> list[Encoding]:
    """The encoding of each layer."""
    return [cast(Block, block).encoding for block in model.blocks]


def resolved_factor(model: Model, factor: int) -> int:
    """factor times L in tokens, or as far as the encoding is defined."""
    length = factor * model.seq_len
    return min(length, *(encoding.max_length or length for encoding in encodings_of(model)))


def tokens(model: Model, length: int, rows: int = 2) -> Tensor:
    """Random tokens, the same for the same arguments, [rows, length]."""
    return torch.randint(0, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(1))


def culprit(model: Model, holds: Callable[[], bool]) -> str:
    """The hook without which something holds, as a message says it; `the encoding` where it is no single one."""
    for hook in _BLAMED:
        with _without(model, hook) as taken:
            try:
                better = taken and holds()
            except Exception:  # the other hooks may need what this one gives them
                continue
        if better:
            reads = any(_overrides(encoding, "prepare") for encoding in encodings_of(model))
            return "scores, or prepare," if hook == "scores" and reads else hook
    return "the encoding"


@contextmanager
def _without(model: Model, hook: str) -> Iterator[bool]:
    """Every layer has the hook that does nothing; whether that is another one than it had."""
    changed = [encoding for encoding in encodings_of(model) if _overrides(encoding, hook)]
    for encoding in changed:
        encoding.__dict__[hook] = getattr(Encoding, hook).__get__(encoding)
    try:
        yield bool(changed)
    finally:
        for encoding in changed:
            del encoding.__dict__[hook]


def _overrides(encoding: Encoding, hook: str) -> bool:
    return getattr(type(encoding), hook) is not getattr(Encoding, hook)


def failure(error: Exception, file: Path, case: str = "") -> UserError:
    """An error of the model as one that names the hook it came from. `case` says where, ` at 64 tokens`."""
    if isinstance(error, UserError):
        return error
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    hook = next((name for name in names if name in HOOKS), "the encoding")
    return UserError(f"{file}: {hook} failed{case}: {described(error, file)}")
