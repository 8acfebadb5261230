"""What the tests of encodings of a user's own share: how one is written to a file, and loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import pytest

from extrapolate.encodings.base import Dims, Encoding
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=32, heads=4, head_dim=8, seq_len=64, layers=2)
HEAD = """
import math, sys
import torch
from torch import nn
from extrapolate.encodings.base import *
from extrapolate.encodings.base import DISTANCES, FREQUENCIES, LOGITS, MASK, POSITIONS, RELATIVE
from extrapolate.encodings.rope import RoPE, geometric

class Mine(Encoding):
    display = "Mine"
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., list[Encoding]]:
    """Builds the class Mine of mine.py, whose body is given."""

    def call(body: str, dims: Dims = DIMS, head: str = HEAD, **changes: int) -> list[Encoding]:
        (tmp_path / "mine.py").write_text(head + indent(dedent(body), "    "))
        return layer_encodings(f"{tmp_path / 'mine.py'}:Mine", {}, replace(dims, **changes))

    return call


@pytest.fixture
def refused(load: Callable[..., list[Encoding]]) -> Callable[..., str]:
    """The message, from the file's name on, that a body of Mine is refused with."""

    def call(body: str, *words: str, **options: object) -> str:
        with pytest.raises(ValueError, match=r"mine\.py: ") as raised:
            load(body, **options)
        message = str(raised.value)
        message = message[message.index("mine.py: ") :]
        for word in words:
            assert word in message, message
        return message

    return call
