"""Runs the parts of the contract for an encoding or an extension, and times each."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from extrapolate import specs
from extrapolate.contract import causality
from extrapolate.contract.autocast import check_autocast
from extrapolate.contract.lengths import FACTORS, check_far
from extrapolate.contract.resume import check_resume
from extrapolate.contract.scale import check_scale
from extrapolate.contract.small_model import check_hooks, failure, fresh_model, small_model, tokens
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.extensions.stack import find as find_extension
from extrapolate.model.causality import check_causal, same_random_numbers
from extrapolate.model.model import Model, find
from extrapolate.model.whole import check_cache, check_chunks, check_extensions

FAR = 4  # times L, where an extension is checked for what tokens see


@dataclass(frozen=True)
class Part:
    """One part of the contract: what is wrong, empty if nothing is; the seconds it took; and the error, if any."""

    name: str
    wrong: str
    seconds: float
    error: UserError | None = None


def of_encoding(name: str, given: Mapping[str, Any], seq_len: int) -> Iterator[Part]:
    """Runs every part for an encoding. If a hook is wrong by itself, stops after that part.

    Raises UserError if there is no such encoding, or its arguments are wrong.
    """
    cls = find(name)
    arguments = specs.convert_arguments(cls, given, owner=name)
    file = Path(name.rpartition(":")[0] or name)
    make = partial(small_model, name, seq_len=seq_len)
    yield (first := timed("hooks, one by one", file, lambda: check_hooks(cls, arguments, seq_len, file)))
    if first.wrong:
        return
    with same_random_numbers(torch.device("cpu")):
        model = make(arguments)
    fresh = partial(fresh_model, seq_len=seq_len)
    for factor in causality.FACTORS:
        yield timed(f"causality, {factor}x L", file, partial(causality.check_causality, model, file, factor))
    yield timed("chunks of queries", file, lambda: check_chunks(model, file))
    yield timed("a cache of earlier tokens", file, lambda: check_cache(model, file))
    yield timed("what extensions change", file, lambda: check_extensions(model, file))
    yield timed(f"far positions, to {FACTORS[-1]}x L", file, lambda: check_far(model, file))
    yield timed("autocast", file, lambda: check_autocast(model, file))
    yield timed("scale at the start", file, lambda: check_scale(fresh(name, arguments), fresh("none", {}), file))
    yield timed("exact resume", file, lambda: check_resume(make, arguments, file))


def of_extension(text: str, seq_len: int) -> Iterator[Part]:
    """Runs every part of the contract for an extension, on an encoding that it applies to.

    Raises UserError if there is no such extension, its arguments are wrong, or it applies to no encoding.
    """
    stack, spec = stacks.parse(text), specs.parse(text)
    cls, user_file = find_extension(spec.name)
    file = user_file.path if user_file else Path(spec.name)
    model = _model_for(stack, cls.needs, seq_len)
    yield timed("frozen plans", file, lambda: _check_frozen(text, model, file))
    if "factor" in specs.parameters(cls):
        name = specs.spell(spec.name, {**spec.arguments, "factor": 1})
        yield timed("a factor of 1", file, lambda: _check_neutral(name, model, file))
    yield timed(f"1x to {FACTORS[-1]}x L", file, lambda: _check_far(stack, model, file))


def timed(name: str, file: Path, run: Callable[[], None]) -> Part:
    """Runs one part, always with the same random numbers."""
    began, wrong = time.perf_counter(), None
    with same_random_numbers(torch.device("cpu")):
        try:
            run()
        except Exception as error:  # of the user's own code
            wrong = failure(error, file)
    return Part(name, "" if wrong is None else str(wrong), time.perf_counter() - began, wrong)


def _model_for(stack: ExtensionStack, needs: str, seq_len: int) -> Model:
    """A model that the extension applies to: RoPE if possible."""
    for name in ["rope", *encodings.names()]:
        model = small_model(name, {}, seq_len)
        if all(part.refusal(model.encodings) is None for part in stack.parts):
            return model
    raise UserError(f"no encoding accepts '{needs}': see accepts in extrapolate.encodings.base for what needs may be")


def _plan(stack: ExtensionStack, model: Model, length: int) -> Plan:
    if stack.to_fit is not None:  # any constant does for this
        stack = stack.fitted(0.5)
    return stack.plan(model.encoding, model.seq_len, length)


def _check_frozen(text: str, model: Model, file: Path) -> None:
    stack = stacks.parse(text)
    plans = {factor: _plan(stack, model, factor * model.seq_len) for factor in FACTORS}
    for factor in reversed(FACTORS):  # another order, in case one length affects the next
        try:
            hash(plans[factor])
        except TypeError as error:
            raise UserError(
                f"{file}: plan is not frozen ({error}): give it numbers, tuples and frozen dataclasses"
            ) from error
        if _plan(stack, model, factor * model.seq_len) != plans[factor]:
            raise UserError(f"{file}: plan at {factor}x L is another when it is asked again; expected an equal one")


def _check_neutral(text: str, model: Model, file: Path) -> None:
    if (plan := _plan(stacks.parse(text), model, model.seq_len)) != PLAIN:
        raise UserError(f"{file}: plan with factor=1 changes something at L: {plan}; expected Plan()")


def _check_far(stack: ExtensionStack, model: Model, file: Path) -> None:
    for factor in FACTORS:
        length = factor * model.seq_len
        plan = _plan(stack, model, length)
        if not model.encoding.defined_at(length, plan):
            continue
        with torch.no_grad():
            logits_BTV = model(tokens(model, length, rows=1), plan)
        if not logits_BTV.isfinite().all():
            raise UserError(f"{file}: plan makes the logits nan or infinite at {length} tokens: {plan}")
        if factor == FAR:
            check_causal(model, plan, length, file, training=False)
