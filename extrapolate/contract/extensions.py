"""What an extension must do: plans that are frozen and equal, a factor of 1 that changes nothing, 1 L to 16 L."""

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
    """Every part for one extension, beside an encoding that it applies to.

    Raises UserError if there is none, its arguments are wrong, or it applies to no encoding.
    """
    recipe, spec = recipes.parse(text), specs.parse(text)
    cls, user_file = find(spec.name)
    file = user_file.path if user_file else Path(spec.name)
    model = _applied_to(recipe, cls.needs, seq_len)
    yield timed("frozen plans", file, lambda: _check_frozen(text, model, file))
    if "factor" in specs.parameters(cls):
        name = specs.spell(spec.name, {**spec.arguments, "factor": 1})
        yield timed("a factor of 1", file, lambda: _check_neutral(name, model, file))
    yield timed(f"1x to {FACTORS[-1]}x L", file, lambda: _check_far(recipe, model, file))


def _applied_to(recipe: Recipe, needs: str, seq_len: int) -> Model:
    """A model for which the extension means something: RoPE, where it does."""
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
        # A user's file is read anew for each: classes of its own that are pairs are then not the same.
        if one != two and type(one.pairs) is type(two.pairs):
            raise UserError(f"{file}: plan at {factor}x L is another when it is asked again; expected an equal one")


def _check_neutral(text: str, model: Model, file: Path) -> None:
    if (plan := _plan(recipes.parse(text), model, model.seq_len)) != PLAIN:
        raise UserError(f"{file}: plan with factor=1 changes something at L: {plan}; expected Plan()")


def _check_far(recipe: Recipe, model: Model, file: Path) -> None:
    for factor in FACTORS:
        length = factor * model.seq_len
        plan = _plan(recipe, model, length)
        with torch.no_grad():
            if (
                model.encoding.defined_at(length, plan)
                and not model(tokens(model, length, rows=1), plan).isfinite().all()
            ):
                raise UserError(f"{file}: plan makes the logits nan or infinite at {length} tokens: {plan}")
