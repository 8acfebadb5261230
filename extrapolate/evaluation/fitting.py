"""Constants that an extension leaves to be fitted to held-out text."""

import math
from collections.abc import Callable

from extrapolate.data.store import Split
from extrapolate.encodings.base import Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.validation import validation_loss, validation_windows
from extrapolate.extensions.base import Searched
from extrapolate.extensions.recipe import Recipe
from extrapolate.model.language_model import LanguageModel

FIT_TARGETS = 8_192
LOW, HIGH = -0.5, 1.0
STEPS = 10  # of a golden section: the constant is known to about 0.01


def fitted(
    recipe: Recipe,
    plan_of: Callable[[Recipe], Plan],
    model: LanguageModel,
    split: Split,
    seq_len: int,
    length: int,
    precision: str,
    progress: Callable[[int], None] = lambda inputs: None,
) -> Recipe:
    """The recipe with the constant that gives the lowest loss on the validation split at this length.

    `plan_of` gives the plan of a fitted recipe, with whatever else applies; seq_len is the training length, up to which
    nothing depends on the constant, and nothing is tried. `progress` is called with the inputs of every batch. Raises
    UserError if no document of the split holds a window of `length` tokens.
    """
    if length <= seq_len:
        return recipe.fitted(0.0)
    windows = validation_windows(split, length, FIT_TARGETS)
    seen = 0

    def advance(inputs: int) -> None:
        nonlocal seen
        seen += inputs
        progress(inputs)

    def loss_of(candidate: Recipe) -> float:
        return validation_loss(model, split, windows, plan_of(candidate), precision, progress=advance)

    if isinstance(part := recipe.to_fit, Searched):
        found = searched(recipe, part, model.encoding, seq_len, length, loss_of)
        progress(inputs_of_fit(recipe, model, split, length) - seen)  # what the search could do without
        return found

    def loss(value: float) -> float:
        return loss_of(recipe.fitted(value))

    low = max(LOW, -0.9 / math.log(length / seq_len))  # 1 + c ln(N/L) stays positive
    return recipe.fitted(round(lowest(loss, low, HIGH, STEPS), 3))


def searched(
    recipe: Recipe, part: Searched, encoding: Encoding, seq_len: int, length: int, loss: Callable[[Recipe], float]
) -> Recipe:
    """The recipe whose part has the constants of the lowest loss."""

    def with_part(candidate: Searched) -> Recipe:
        return recipe.with_part(candidate.with_layers(part.for_layers))

    return with_part(part.found(encoding, seq_len, length, lambda candidate: loss(with_part(candidate))))


def inputs_of_fit(recipe: Recipe, model: LanguageModel, split: Split, length: int) -> int:
    """How many inputs `fitted` computes at a length beyond the training length; of a search, at most."""
    windows = validation_windows(split, length, FIT_TARGETS)
    part = recipe.to_fit
    tries = part.most_tries(_frequencies(model)) if isinstance(part, Searched) else STEPS + 2
    return tries * sum(len(group.start_W) * group.length for group in windows)


def _frequencies(model: LanguageModel) -> int:
    spectrum = model.encoding.spectrum()
    return 0 if spectrum is None else spectrum.count


def lowest(function: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """Where a function with one valley in low..high is lowest, by a golden section."""
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
