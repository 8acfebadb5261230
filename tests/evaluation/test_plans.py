"""Which extensions an evaluation applies: all that apply, beside those that are named, and with the run's own."""

from types import SimpleNamespace

import pytest

from extrapolate.evaluation.plans import AppliedExtensions, extensions_to_evaluate
from extrapolate.extensions.stack import applicable, joins, parse
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.names import ALL, AS_TRAINED, WITHOUT_OWN

SIZES = ModelConfig(vocab_size=31, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ff_width=16)
ROPE = Model(SIZES, "rope", {}, 16)


def names(own: str | None, *extensions: str, model: Model = ROPE) -> list[str]:
    return list(extensions_to_evaluate(SimpleNamespace(own_extension=own and parse(own)), model, extensions))


def test_the_run_as_it_was_trained_comes_first_and_then_what_is_named() -> None:
    assert names(None) == names("pi") == [AS_TRAINED]
    assert names(None, "ntk", "pi:factor=2.0") == [AS_TRAINED, "ntk", "pi:factor=2"]
    assert names("pi", "log-n") == [AS_TRAINED, "log-n"]


def test_all_stands_for_every_one_that_applies_once() -> None:
    assert names(None, ALL) == [AS_TRAINED, *applicable(ROPE)]
    rest = [name for name in applicable(ROPE) if name != "pi"]
    assert names(None, "ntk:factor=4", ALL, "pi") == [AS_TRAINED, "ntk:factor=4", "pi", *rest]
    wall = Model(SIZES, "wall", {}, 16)
    assert names(None, ALL, model=wall) == [AS_TRAINED, *applicable(wall)]
    assert len(applicable(wall)) < len(applicable(ROPE))


def test_all_leaves_out_what_clashes_with_the_runs_own() -> None:
    joinable = [name for name in applicable(ROPE) if joins(parse("pi"), name)]
    assert names("pi", ALL) == [AS_TRAINED, *joinable]
    assert "pi" not in joinable
    assert {"log-n", "window"} <= set(joinable)


def test_none_takes_off_the_runs_own_and_what_follows_is_still_applied() -> None:
    assert names("pi", WITHOUT_OWN, AS_TRAINED, "log-n") == [AS_TRAINED, WITHOUT_OWN, "log-n"]
    assert names(None, WITHOUT_OWN, AS_TRAINED, "log-n") == [AS_TRAINED, "log-n"]
    found = extensions_to_evaluate(SimpleNamespace(own_extension=parse("pi")), ROPE, [WITHOUT_OWN, "log-n"])
    applied = {name: tuple(stack and stack.text for stack in (one.own, one.extra)) for name, one in found.items()}
    assert applied == {AS_TRAINED: ("pi", None), WITHOUT_OWN: (None, None), "log-n": ("pi", "log-n")}


def test_what_clashes_or_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="PI is there twice"):
        names("pi", "pi:factor=2")
    with pytest.raises(ValueError, match="both change the positions"):
        extensions_to_evaluate(
            SimpleNamespace(own_extension=parse("pi")), Model(SIZES, "learned", {}, 16), ["table-resize"]
        )
    with pytest.raises(ValueError, match="did you mean 'yarn'"):
        names(None, "yarm")


def test_joined_is_both_either_or_none() -> None:
    pi, log_n = parse("pi"), parse("log-n")
    assert AppliedExtensions(None, None).joined() is None
    assert AppliedExtensions(pi, None).joined() == pi
    assert AppliedExtensions(None, log_n).joined() == log_n
    assert AppliedExtensions(pi, log_n).joined().label() == "PI + log-n"
