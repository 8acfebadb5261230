"""Before an evaluation, what a user's code sees is checked once per plan, at the longest length."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import causality
from extrapolate.model.causality import may_leak
from extrapolate.model.llama import Decoder
from extrapolate.runs.run import Run
from extrapolate.training.gradient_step import GradientStep

BUDGET = {"seq_len": 16, "tokens": 512, "batch_tokens": 256, "width": 32, "layers": 2, "heads": 2}
HEAD = """
import torch
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
"""


@pytest.fixture
def trained(tmp_path: Path, word_store: Store) -> Callable[..., Run]:
    """Trains a run with a class of the user's that has this body, or else with RoPE."""

    def make(body: str | None = None, **asked: Any) -> Run:
        if body is not None:
            (tmp_path / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
        pe = "rope" if body is None else f"{tmp_path / 'mine.py'}:Mine"
        return xt.train(pe, data=word_store, out=tmp_path / "run", **BUDGET | asked)

    return make


def test_what_sees_later_tokens_beyond_the_training_length_is_not_evaluated(
    word_store: Store, trained: Callable[..., Run]
) -> None:
    run = trained("def embed(self, x, p): return x * p[:, None].cos() + (x.roll(-1, 1) if x.shape[1] > 16 else 0)")
    for evaluate in (
        lambda: xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64),
        lambda: xt.evaluate_probes(run, "copy", data=word_store, factors=(1, 2), trials=1),
        lambda: xt.inspect(run, data=word_store, factors=(1, 2), windows=2),
    ):
        with pytest.raises(xt.UserError, match=r"run: embed lets token .* see token .*, at 32 tokens: "):
            evaluate()
    assert not list(run.path.glob("results/**/*.parquet"))


OPENED = """
    leaks = False

    def embed(self, x, p):
        return x * p[:, None].cos() + (x.roll(-1, dims=1) if self.leaks else 0)

    def extended(self, plan):
        return super().extended(plan).copy_with(leaks=plan.position_scale == 0.5)
"""


def test_an_extension_that_opens_the_future_is_neither_evaluated_nor_trained_with(
    tmp_path: Path, word_store: Store, trained: Callable[..., Run]
) -> None:
    own = trained(OPENED.replace("== 0.5", "== 0.25"))
    with pytest.raises(xt.UserError, match=r"run with pi: embed lets token .* at 64 tokens:"):
        xt.evaluate(own, data=word_store, factors=(1, 4), max_targets=64, extend=["log-n", "pi"])
    with pytest.raises(xt.UserError, match=r"encoding.py: embed lets token .* at 64 tokens:"):
        xt.train(start=own, extend="pi", seq_len=64, tokens=512, batch_tokens=256, out=tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


def test_each_plan_is_checked_once_at_the_longest_length(
    word_store: Store, trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained("def embed(self, x, p): return x * p[:, None].cos()")
    asked: list[tuple[Plan, int]] = []

    def check(model: object, plan: Plan, length: int, *_: object, **__: object) -> None:
        asked.append((plan, length))
        if plan == PLAIN and length == 64:
            raise MemoryError

    monkeypatch.setattr(causality, "check_causal", check)
    settings = dict(data=word_store, factors=(1, 2, 4), max_targets=64, protocols="windows", extend="pi")
    xt.evaluate(run, **settings)
    assert asked == [
        (PLAIN, 64), (PLAIN, 32), (Plan(position_scale=0.25), 64), (Plan(position_scale=0.5), 32),
    ]  # fmt: skip


def test_the_packages_own_code_is_not_checked(
    word_store: Store, trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the first step, nor before the first loss."""
    passes: list[torch.Size] = []
    hidden = Decoder.hidden

    def counted(self: Decoder, tokens_BT: torch.Tensor, *given: Any, **more: Any) -> torch.Tensor:
        passes.append(tokens_BT.shape)
        return hidden(self, tokens_BT, *given, **more)

    monkeypatch.setattr(Decoder, "hidden", counted)
    gradients, before = GradientStep.gradients, []

    def started(self: GradientStep, *given: Any) -> float:
        before.append(len(passes))
        return gradients(self, *given)

    monkeypatch.setattr(GradientStep, "gradients", started)
    run = trained(compile=False)
    assert before[0] == 0
    monkeypatch.setattr(causality, "check_causal", lambda *_, **__: pytest.fail("it was checked"))
    xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64, extend="pi", protocols="windows")


MINE = """
from dataclasses import dataclass
from extrapolate.encodings.base import DISTANCES, POSITIONS
from extrapolate.encodings.plan import Branch, Pairs, Plan
from extrapolate.extensions.base import Extension

LONGEST, READ = [0], [0]
def longest(length):
    LONGEST[0] = max(LONGEST[0], length)
    return LONGEST[0]
def after_all_read(index_T):
    READ[0] += len(index_T)
    return index_T + READ[0]
@dataclass(frozen=True)
class Streamed(Pairs):
    def branches(self):
        return [Branch(after_all_read, lambda i: i, lambda i, j: j <= i)]
class Mine(Extension):
    display, source = "Mine", "this file"
    slot, needs = SLOT
    def plan(self, encoding, seq_len, length):
        return PLAN
"""
PLANS = {
    "of the text that was read so far": (
        "'pairs', DISTANCES", "Plan(pairs=Streamed())", "1x to 16x L", "mine.py:Mine: .* depend on an earlier call"
    ),
    "of the longest window so far": (
        "'positions', POSITIONS", "Plan(position_scale=seq_len / longest(length))", "frozen plans",
        "mine.py:Mine has another plan for 16 tokens when it is made again",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("slot", "plan", "part", "message"), PLANS.values(), ids=PLANS)
def test_an_extension_whose_plan_depends_on_what_was_read_is_not_applied(
    tmp_path: Path, word_store: Store, trained: Callable[..., Run], slot: str, plan: str, part: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("SLOT", slot).replace("PLAN", plan))
    run, mine = trained(), f"{tmp_path}/mine.py:Mine"
    assert xt.check(mine, seq_len=16).set_index("part").loc[part, "wrong"]
    with pytest.raises(xt.UserError, match=message):
        xt.evaluate(run, data=word_store, factors=(1, 2), extend=mine, max_targets=64)
    if part != "frozen plans":  # a training has one length
        with pytest.raises(xt.UserError, match="depend on an earlier call, at 32 tokens"):
            xt.train(start=run, extend=mine, seq_len=32, tokens=512, batch_tokens=256, out=tmp_path / "tuned")


def test_a_class_of_another_module_is_checked_as_a_users(trained: Callable[..., Run]) -> None:
    model = trained().build_model()
    assert not may_leak(model)
    encoding = model.encodings[0]
    encoding.__class__ = type("Imported", (type(encoding),), {"__module__": "mylib"})
    assert may_leak(model)
