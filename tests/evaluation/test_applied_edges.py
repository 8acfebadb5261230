"""Which extensions an evaluation applies: all that apply, beside those that are named, and with the run's own."""

from types import SimpleNamespace

import pytest

from extrapolate.evaluation.applied import Applied, applied_to
from extrapolate.evaluation.names import ALL, OFF, PLAIN_NAME
from extrapolate.extensions.recipe import applicable, build, joins
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model

SIZES = ModelConfig(vocab_size=31, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ff_width=16)
ROPE = Model(SIZES, "rope", {}, 16)


def names(own: str | None, *extensions: str, model: Model = ROPE) -> list[str]:
    return list(applied_to(SimpleNamespace(own_extension=own and build(own)), model, extensions))


def test_the_run_as_it_was_trained_comes_first_and_then_what_is_named() -> None:
    assert names(None) == names("pi") == [PLAIN_NAME]
    assert names(None, "ntk", "pi:factor=2.0") == [PLAIN_NAME, "ntk", "pi:factor=2"]
    assert names("pi", "log-n") == [PLAIN_NAME, "log-n"]


def test_all_stands_for_every_one_that_applies_once() -> None:
    assert names(None, ALL) == [PLAIN_NAME, *applicable(ROPE)]
    rest = [name for name in applicable(ROPE) if name != "pi"]
    assert names(None, "ntk:factor=4", ALL, "pi") == [PLAIN_NAME, "ntk:factor=4", "pi", *rest]
    wall = Model(SIZES, "wall", {}, 16)
    assert names(None, ALL, model=wall) == [PLAIN_NAME, *applicable(wall)]
    assert len(applicable(wall)) < len(applicable(ROPE))


def test_all_leaves_out_what_clashes_with_the_runs_own() -> None:
    joinable = [name for name in applicable(ROPE) if joins(build("pi"), name)]
    assert names("pi", ALL) == [PLAIN_NAME, *joinable]
    assert "pi" not in joinable
    assert {"log-n", "window"} <= set(joinable)


def test_none_takes_off_the_runs_own_and_what_follows_is_still_applied() -> None:
    assert names("pi", OFF, PLAIN_NAME, "log-n") == [PLAIN_NAME, OFF, "log-n"]
    assert names(None, OFF, PLAIN_NAME, "log-n") == [PLAIN_NAME, "log-n"]
    found = applied_to(SimpleNamespace(own_extension=build("pi")), ROPE, [OFF, "log-n"])
    applied = {name: tuple(recipe and recipe.text for recipe in (one.own, one.extra)) for name, one in found.items()}
    assert applied == {PLAIN_NAME: ("pi", None), OFF: (None, None), "log-n": ("pi", "log-n")}


def test_what_clashes_or_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="PI is there twice"):
        names("pi", "pi:factor=2")
    with pytest.raises(ValueError, match="both change the positions"):
        applied_to(SimpleNamespace(own_extension=build("pi")), Model(SIZES, "learned", {}, 16), ["table-resize"])
    with pytest.raises(ValueError, match="did you mean 'yarn'"):
        names(None, "yarm")


def test_joined_is_both_either_or_none() -> None:
    pi, log_n = build("pi"), build("log-n")
    assert Applied(None, None).joined() is None
    assert Applied(pi, None).joined() == pi
    assert Applied(None, log_n).joined() == log_n
    assert Applied(pi, log_n).joined().label() == "PI + log-n"
