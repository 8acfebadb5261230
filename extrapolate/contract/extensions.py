"""The contract of an extension: plans are hashable and reproducible, a factor of 1 changes nothing, 16 L works."""

from collections.abc import Iterator
from pathlib import Path

import torch

from extrapolate import specs
from extrapolate.contract.lengths import FACTORS
from extrapolate.contract.parts import Part, timed
from extrapolate.contract.small_model import small_model, tokens
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.extensions import recipe as recipes
from extrapolate.extensions.recipe import Recipe, find
from extrapolate.model.model import Model


def of_extension(text: str, seq_len: int) -> Iterator[Part]:
    """Runs every part of the contract for an extension, on an encoding that it applies to.

    Raises UserError if there is no such extension, its arguments are wrong, or it applies to no encoding.
    """
    recipe, spec = recipes.parse(text), specs.parse(text)
    cls, user_file = find(spec.name)
    file = user_file.path if user_file else Path(spec.name)
    model = _model_for(recipe, cls.needs, seq_len)
    yield timed("frozen plans", file, lambda: _check_frozen(text, model, file))
    if "factor" in specs.parameters(cls):
        name = specs.spell(spec.name, {**spec.arguments, "factor": 1})
        yield timed("a factor of 1", file, lambda: _check_neutral(name, model, file))
    yield timed(f"1x to {FACTORS[-1]}x L", file, lambda: _check_far(recipe, model, file))


def _model_for(recipe: Recipe, needs: str, seq_len: int) -> Model:
    """A model that the extension applies to: RoPE if possible."""
    for name in ["rope", *encodings.names()]:
        model = small_model(name, {}, seq_len)
        if all(part.refusal(model.encodings) is None for part in recipe.parts):
            return model
    raise UserError(f"no encoding accepts '{needs}': see accepts in extrapolate.encodings.base for what needs may be")


def _plan(recipe: Recipe, model: Model, length: int) -> Plan:
    if recipe.to_fit is not None:  # any constant does for this
        recipe = recipe.fitted(0.5)
    return recipe.plan(model.encoding, model.seq_len, length)


def _check_frozen(text: str, model: Model, file: Path) -> None:
    for factor in FACTORS:
        one, two = (_plan(recipes.parse(text), model, factor * model.seq_len) for _ in range(2))
        try:
            hash(one)
        except TypeError as error:
            raise UserError(
                f"{file}: plan is not frozen ({error}): give it numbers, tuples and frozen dataclasses"
            ) from error
        # A user's file is loaded anew each time, so its own classes of `pairs` differ.
        if one != two and type(one.pairs) is type(two.pairs):
            raise UserError(f"{file}: plan at {factor}x L is another when it is asked again; expected an equal one")


def _check_neutral(text: str, model: Model, file: Path) -> None:
    if (plan := _plan(recipes.parse(text), model, model.seq_len)) != PLAIN:
        raise UserError(f"{file}: plan with factor=1 changes something at L: {plan}; expected Plan()")


def _check_far(recipe: Recipe, model: Model, file: Path) -> None:
    for factor in FACTORS:
        length = factor * model.seq_len
        plan = _plan(recipe, model, length)
        if not model.encoding.defined_at(length, plan):
            continue
        with torch.no_grad():
            logits_BTV = model(tokens(model, length, rows=1), plan)
        if not logits_BTV.isfinite().all():
            raise UserError(f"{file}: plan makes the logits nan or infinite at {length} tokens: {plan}")
