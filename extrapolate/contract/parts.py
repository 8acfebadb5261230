"""Runs the parts of the contract one after the other, and times each."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from extrapolate import specs
from extrapolate.contract import causality, lengths, scale
from extrapolate.contract.autocast import check_autocast
from extrapolate.contract.resume import check_resume
from extrapolate.contract.small_model import SIZES, dims_of, failure, fresh_model, small_model
from extrapolate.encodings.base import layers_of
from extrapolate.model.hooks import check
from extrapolate.model.model import Model, find


@dataclass(frozen=True)
class Part:
    """One part of the contract: what is wrong, empty if nothing is, and the seconds it took."""

    name: str
    wrong: str
    seconds: float


def of_encoding(name: str, given: Mapping[str, Any], seq_len: int) -> Iterator[Part]:
    """Runs every part for an encoding. If a hook is wrong by itself, stops after that part.

    Raises UserError if there is no such encoding, or its arguments are wrong.
    """
    cls = find(name)
    arguments = specs.convert_arguments(cls, given, owner=name)
    file = Path(name.rpartition(":")[0] or name)
    dims, kv_heads = dims_of(seq_len), SIZES.kv_heads

    def model_of(arguments: Mapping[str, Any]) -> Model:
        return small_model(name, arguments, seq_len)

    first = timed(
        "hooks, one by one", file, lambda: check(cls, file, lambda: layers_of(cls, arguments, dims), dims, kv_heads)
    )
    yield first
    if first.wrong:
        return
    with _fixed_seed():
        model = model_of(arguments)
    for factor in causality.FACTORS:
        yield timed(f"causality, {factor}x L", file, partial(causality.check_causality, model, file, factor))
    yield timed("chunks of queries", file, lambda: lengths.check_model_chunks(model, file))
    yield timed(f"far positions, to {lengths.FACTORS[-1]}x L", file, lambda: lengths.check_far(model, file))
    yield timed("autocast", file, lambda: check_autocast(model_of(arguments).encodings, file, kv_heads))
    yield timed(
        "scale at the start",
        file,
        lambda: scale.check_scale(fresh_model(name, arguments, seq_len), fresh_model("none", {}, seq_len), file),
    )
    yield timed("exact resume", file, lambda: check_resume(model_of, arguments, file))


def timed(name: str, file: Path, run: Callable[[], None]) -> Part:
    """Runs one part, always with the same random numbers."""
    began, wrong = time.perf_counter(), ""
    with _fixed_seed():
        try:
            run()
        except Exception as error:  # of the user's own code
            wrong = str(failure(error, file))
    return Part(name, wrong, time.perf_counter() - began)


@contextmanager
def _fixed_seed() -> Iterator[None]:
    """Seeds torch, and restores its generator afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield
