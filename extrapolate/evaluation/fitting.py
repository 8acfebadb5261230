"""Fits constants of extensions to held-out text."""

import math
from collections.abc import Callable

from extrapolate.data.store import Split
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.losses import OnBatch, ignored, validation_loss, validation_windows
from extrapolate.extensions.base import Searched
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.model.language_model import LanguageModel

FIT_TARGETS = 8_192
LOW, HIGH = -0.5, 1.0
STEPS = 10  # of a golden-section search, which finds the constant to about 0.01


def fitted(
    stack: ExtensionStack,
    plan_of: Callable[[ExtensionStack], Plan],
    model: LanguageModel,
    split: Split,
    seq_len: int,
    length: int,
    precision: str,
    progress: OnBatch = ignored,
) -> ExtensionStack:
    """The stack with the constant that gives the lowest loss on the validation split at this length.

    plan_of: the whole plan for a fitted stack. seq_len: the training length; nothing is fitted up to it, since
    nothing depends on the constant there. `progress` is called after every batch. Raises UserError if no
    document of the split holds a window of `length` tokens.
    """
    if length <= seq_len:
        return stack.fitted(0.0)
    windows = validation_windows(split, length, FIT_TARGETS)
    seen = 0

    def advance(inputs: int, loss: float) -> None:
        nonlocal seen
        seen += inputs
        progress(inputs, loss)

    def loss_of(candidate: ExtensionStack) -> float:
        return validation_loss(model, split, windows, plan_of(candidate), precision, progress=advance)

    if isinstance(part := stack.to_fit, Searched):
        layers = part.for_layers

        def with_part(candidate: Searched) -> ExtensionStack:
            return stack.with_part(candidate.with_layers(layers))

        found = part.found(model.encoding, seq_len, length, lambda candidate: loss_of(with_part(candidate)))
        progress(inputs_of_fit(stack, model, split, length) - seen, math.nan)  # those that the search did not need
        return with_part(found)

    low = max(LOW, -0.9 / math.log(length / seq_len))  # 1 + c ln(N/L) stays positive
    return stack.fitted(round(lowest(lambda value: loss_of(stack.fitted(value)), low, HIGH, STEPS), 3))


def inputs_of_fit(stack: ExtensionStack, model: LanguageModel, split: Split, length: int) -> int:
    """How many inputs `fitted` computes at a length beyond the training length (an upper bound for a search)."""
    windows = validation_windows(split, length, FIT_TARGETS)
    tries = STEPS + 2
    if isinstance(part := stack.to_fit, Searched):
        spectrum = model.encoding.spectrum()
        tries = part.most_tries(0 if spectrum is None else spectrum.count)
    return tries * sum(len(group.start_W) * group.length for group in windows)


def lowest(function: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """The minimum of a function with one valley in low..high, by golden-section search."""
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
