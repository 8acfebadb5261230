"""Specs, recipes, probes and mixtures of any kind: each is built and used, or refused with one UserError, soon."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extrapolate import specs
from extrapolate.data.mixture import Mixture
from extrapolate.data.probes.base import Vocabulary, parse_probes, probes
from extrapolate.data.synthetic.base import parse_process, processes
from extrapolate.encodings.base import encodings
from extrapolate.errors import UserError
from extrapolate.extensions import recipe
from extrapolate.extensions.base import extensions
from extrapolate.model import size
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L = 8
SECONDS = 20  # of one example: most take milliseconds
SIZES = {"vocab_size": 20, "width": 16, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 8, "ff_width": 8}
FUZZING = settings.get_profile("fuzzing")

ENDS = [0, 1, -1, 2, 7, 8, 2**24, 2**31, 2**53, 2**53 + 1, 2**63, 10**24, 10**400]
WORDS = [
    "nan", "inf", "-inf", "-0", "1e308", "1e-320", "-1e308", "0.5", "1e9", "none", "None", "true", "false", "1_000",
    "0x10", "", " ", "()", "(", ")", "=", ":", ",", "+", "half", "log", "fixed", "scratch", "all", "first", "sample",
]  # fmt: skip
VALUES = (
    st.sampled_from(ENDS).map(str)
    | st.integers(-3, 40).map(str)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)


def specs_of(registry: specs.Registry[Any]) -> st.SearchStrategy[str]:
    """Specs with registered names and their own arguments, and now and then another."""

    def with_arguments(name: str) -> st.SearchStrategy[str]:
        known = list(specs.parameters(registry[name])) or ["theta"]
        value = VALUES | st.deferred(lambda: any_spec).map(lambda text: f"({text})")
        pairs = st.lists(st.tuples(st.sampled_from([*known, *known, "x"]), value), max_size=3)
        return pairs.map(lambda given: f"{name}:{','.join(f'{key}={value}' for key, value in given)}")

    any_spec = st.sampled_from(registry.names()).flatmap(with_arguments)
    return any_spec


ANYTHING = st.text(max_size=40) | st.text("()=:,+.ropy1e-", max_size=60)


def tried(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it is refused. Nothing but a UserError, which can be read, and no long wait."""
    began = time.monotonic()
    found, refusal = None, "accepted"
    try:
        found = call()
    except UserError as error:
        refusal = str(error)
    assert time.monotonic() - began < SECONDS
    assert 5 < len(refusal) < 1500, refusal
    return found


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """A machine of 100 MB: what fits into more would be made, which takes its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(size, "memory_limit", lambda device: 10**8)
        yield


@FUZZING
@given(specs_of(encodings) | ANYTHING)
@example("random:base=(random:base=(random:base=rope))")
@example("dape:base=(dape:base=(fire:width=4))")
@example("xpos:scale_base=1e-320")
def test_encodings(text: str) -> None:
    def use() -> None:
        spec = specs.parse(text)
        model = Model(ModelConfig(**SIZES), spec.name, spec.arguments, L).eval()
        assert model.label()
        again = Model(ModelConfig(**SIZES), spec.name, model.encoding.arguments(), L)
        assert again.encoding.arguments() == model.encoding.arguments()
        length = min(2 * L, model.encoding.max_length or 2 * L)
        with torch.inference_mode():
            assert model(torch.zeros(1, length, dtype=torch.int64)).shape == (1, length, 20)

    tried(use)


MODELS = {name: Model(ModelConfig(**SIZES), name, {}, L).eval() for name in ("rope", "expe", "learned", "alibi")}


@FUZZING
@given(
    st.lists(specs_of(extensions), min_size=1, max_size=3).map(" + ".join) | ANYTHING, st.sampled_from(sorted(MODELS))
)
@example("ntk:factor=1e-320", "rope")
@example("longrope:long=(1,1,1,1e-308)", "rope")
def test_extensions(text: str, name: str) -> None:
    model = MODELS[name]

    def use() -> None:
        made = recipe.parse(text)
        assert recipe.parse(made.text).text == made.text
        recipe.check_applies(made, model)
        whole = made if made.to_fit is None else made.fitted(0.1)
        assert whole.label()
        for length in (L, 4 * L):
            plan = whole.plan(model.encoding, L, length)
            assert math.isfinite(plan.position_scale)
            if model.defined_at(length, plan):
                with torch.inference_mode():
                    model.hidden(torch.zeros(1, length, dtype=torch.int64), plan)

    tried(use)


@FUZZING
@given(st.lists(specs_of(probes), min_size=1, max_size=3).map(",".join) | ANYTHING)
def test_probes(text: str) -> None:
    def use() -> None:
        for probe in parse_probes(text):
            assert parse_probes(f"({probe.text})") == (probe,)
            probe.check(64, Vocabulary(200, 0))

    tried(use)


@FUZZING
@given(st.lists(st.tuples(specs_of(probes), VALUES), min_size=1, max_size=3) | ANYTHING)
def test_mixtures(given_parts: str | list[tuple[str, str]]) -> None:
    if not isinstance(given_parts, str):
        given_parts = ",".join(f"({spec})={share}" for spec, share in given_parts)
    mixture = tried(lambda: Mixture.parse(given_parts))
    assert mixture is None or Mixture.parse(mixture.text).text == mixture.text


@FUZZING
@given(specs_of(processes) | ANYTHING)
def test_synthetic_text(text: str) -> None:
    process = tried(lambda: parse_process(text))
    if process is not None and process.documents * process.length < 10**5:
        tried(lambda: list(process))
