"""A model that sees the future is not evaluated."""

from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import extrapolate as xt
from extrapolate.api import evaluating
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.evaluation import causality
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.model.causality import may_leak
from extrapolate.model.places import later
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training.loop import train

HEAD = """
import torch
from extrapolate.encodings.base import Encoding
from extrapolate.encodings.rope import RoPE

class Mine({base}):
    display = "Mine"
"""
SIZES = {
    "width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48, "tied_embeddings": True,
}  # fmt: skip
BUDGET = {"seq_len": 16, "tokens": 512, "batch_tokens": 256, "precision": "fp32"}


@pytest.fixture
def trained(tmp_path: Path, word_store: Store) -> Callable[..., Run]:
    """Trains a run in the folder `name`: with a class of the user's that has this body, or else with RoPE."""

    def make(body: str | None = None, name: str = "run", base: str = "Encoding", store: Store = word_store) -> Run:
        file = tmp_path / "mine.py" if body else None
        if file is not None:
            file.write_text(HEAD.format(base=base) + indent(dedent(body), "    "))
        config, _ = resolve(TrainingRequest(pe=f"{file}:Mine" if file else "rope", model=SIZES, training=BUDGET), store)
        return train(config, store, tmp_path / name, user_encoding=file)

    return make


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training does not check causality."""
    for check in ("check_causality", "check_trained"):
        monkeypatch.setattr(f"extrapolate.training.loop.{check}", lambda *_: None)


@pytest.mark.usefixtures("unchecked")
def test_a_model_that_sees_later_tokens_is_not_evaluated(word_store: Store, trained: Callable[..., Run]) -> None:
    """One that does so everywhere, and one that does so only beyond L, which training does not check."""
    for name, case in (("all", "True"), ("beyond", "x.shape[1] > 16")):
        run = trained(f"def embed(self, x, p): return x + x.roll(-1, dims=1) if {case} else x", name)
        length = 16 if name == "all" else 32
        for evaluate in (
            lambda run: xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64),
            lambda run: xt.evaluate_probes(run, "copy", data=word_store, factors=(1, 2), trials=1),
            lambda run: xt.inspect(run, data=word_store, factors=(1, 2), windows=2),
        ):
            with pytest.raises(xt.UserError, match=f"{name}: embed lets token .* at {length} tokens"):
                evaluate(run)
        assert not list(run.path.glob("eval*.parquet"))


@pytest.mark.usefixtures("unchecked")
def test_an_evaluation_that_draws_random_numbers_is_refused(word_store: Store, trained: Callable[..., Run]) -> None:
    run = trained("def embed(self, x, p): return x + 1e-9 * torch.rand(()) if x.shape[1] > 16 else x")
    with pytest.raises(xt.UserError, match="run: embed draws random numbers in evaluation, at 32 tokens"):
        xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("protocol", "length"), [("yarn:stride=4", 15), ("growing", 32)])
def test_windows_of_other_lengths_than_the_evaluations_are_asked(
    word_store: Store, trained: Callable[..., Run], protocol: str, length: int
) -> None:
    """`yarn` has N - 1 inputs and shorter ones at the end of documents, `growing` every multiple of its step."""
    run = trained("def embed(self, x, p): return x + x.roll(-1, dims=1) if x.shape[1] in (15, 32) else x")
    asked = {"data": word_store, "factors": (1, 4), "max_targets": 512}
    xt.evaluate(run, protocols="windows", **asked)
    with pytest.raises(xt.UserError, match=f"embed lets token .* at {length} tokens"):
        xt.evaluate(run, protocols=protocol, **asked)


def test_each_length_is_asked_once_and_progress_says_so(
    word_store: Store, trained: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although losses and probes are evaluated one after another."""
    run = trained()
    asked, said = [], []
    monkeypatch.setattr(causality, "check_plan", lambda run, model, plan, tokens_BT, *_: asked.append(tokens_BT.shape))
    settings = EvaluationSettings.of(
        {"factors": (1, 2), "protocols": "windows", "probes": "copy", "extend": ["pi"], "max_targets": 64, "trials": 1}
    )
    monkeypatch.setattr(evaluating.InTurn, "work", partialmethod(advancing, said))
    evaluating.evaluate_with(settings, run, data=word_store)
    assert sorted(length for _, length in asked) == [16, 32, 32], "at L, PI is the model as it was trained"
    assert [what for what, inputs in said if not inputs][:3] == [
        "run causality of as-trained at 16 tokens", "run causality of as-trained at 32 tokens",
        "run causality of pi at 32 tokens",
    ]  # fmt: skip


def advancing(turns, said, jobs, work, *_) -> None:
    for job in jobs:
        work(job, lambda what, inputs: said.append((what, inputs)))


def test_what_keeps_tokens_beyond_the_training_length_alone_is_not_evaluated(
    word_store: Store, trained: Callable[..., Run]
) -> None:
    run = trained("""
        kept = {}

        def embed(self, x, p):
            if x.shape[1] <= 32:
                return x
            return x - self.kept.setdefault(x.shape[1], x.mean(dim=0, keepdim=True))
    """)
    with pytest.raises(
        xt.UserError, match=r"run: the encoding gives other numbers after other tokens, .* at 64 tokens"
    ):
        xt.evaluate(run, data=word_store, factors=(1, 4), max_targets=64)


def test_a_table_without_the_extension_is_not_taken_for_one_with_it(
    word_store: Store, trained: Callable[..., Run]
) -> None:
    """As in a library's rotary embedding, which keeps cosines by the length of the window."""
    run = trained(
        """
        kept = {}

        def rotate(self, q, k, pos_T, pos_S, state=None):
            scale = self.frequency_scale
            if len(pos_S) > 32:
                scale = self.kept.setdefault(len(pos_S), scale)
            return RoPE.rotate(self.copy_with(frequency_scale=scale), q, k, pos_T, pos_S, state)
        """,
        base="RoPE",
    )
    xt.evaluate(run, data=word_store, factors=(1, 4), max_targets=64)
    with pytest.raises(
        xt.UserError, match=r"run: the encoding gives other numbers after other tokens, .* at 64 tokens"
    ):
        xt.evaluate(run, data=word_store, factors=(1, 4), max_targets=64, extend="ntk:factor=4")


MINE = """
import random
from extrapolate.encodings.base import POSITIONS
from extrapolate.encodings.plan import Plan
from extrapolate.extensions.base import Extension

class Mine(Extension):
    display = "Mine"
    source = "this file"
    slot, needs = "positions", POSITIONS
    longest = 0
    def plan(self, encoding, seq_len, length):
        return Plan(position_scale={scale})
LONGEST = [0]
def longest(owner, length):
    owner[:] = [max(owner[0], length)]
    return owner[0]
"""
BY_THE_LONGEST = "(setattr(self, 'longest', max(self.longest, length)), seq_len / self.longest)[1]"


@pytest.mark.parametrize(
    "scale", ["random.uniform(0.1, 1)", BY_THE_LONGEST, "seq_len / longest(LONGEST, length)"],
    ids=["drawn", "by the longest so far", "by the longest of its module"],
)  # fmt: skip
def test_an_extension_whose_plan_depends_on_other_calls_is_not_applied(
    tmp_path: Path, word_store: Store, trained: Callable[..., Run], scale: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("{scale}", scale))
    run, mine = trained(), f"{tmp_path}/mine.py:Mine"
    for factors in ((1, 2), (2,)):
        with pytest.raises(xt.UserError, match=r"has another plan for .* when it is made again"):
            xt.evaluate(run, data=word_store, factors=factors, extend=mine)
    assert "plan at" in xt.check(mine).set_index("part").loc["frozen plans", "wrong"]


@pytest.mark.parametrize("factor", [1, 2])
def test_a_model_of_another_library_is_asked_at_every_place(tmp_path: Path, word_store: Store, factor: int) -> None:
    """At L, and beyond it, where its own is evaluated."""
    longer_than = 100 * factor

    class Mine(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.clone()
            if x.shape[1] > longer_than:
                y[:, longer_than] = x[:, longer_than + 1]
            return torch.nn.functional.one_hot(y, word_store.vocab_size).float()

    made = xt.foreign(Mine(), "Mine", seq_len=128, tokenizer=word_store.path, out=tmp_path / "run")
    with pytest.raises(xt.UserError, match=f"Mine lets token {longer_than} see tokens that come after it"):
        xt.evaluate(made, data=word_store, factors=(factor,), max_targets=256)


def test_multiples_of_the_training_length_are_among_the_places_of_a_long_window() -> None:
    """An encoding that works on segments of L tokens may be one off at their ends."""
    for period, wanted in ((100, {100, 500, 900, 101, 501, 899}), (7, {7, 14})):
        asked = {int(place) for later_BT in later(torch.zeros(3, 1000), 60, period) for place in (~later_BT).sum(1)}
        assert wanted | {999, 512} <= asked
        assert len(asked) > 40


@pytest.mark.parametrize("place", [31, 101, 158])
def test_every_place_of_windows_beyond_the_training_length_is_asked(
    word_store: Store, trained: Callable[..., Run], place: int
) -> None:
    run = trained(f"def embed(self, x, p): return torch.where((p == {place}.0)[:, None], x.roll(-1, 1), x)")
    with pytest.raises(xt.UserError, match=rf"run: embed lets token {place} .* at 160 tokens"):
        xt.evaluate(run, data=word_store, factors=(10,), max_targets=256)


EXTENDED = """
    leaks = False

    def embed(self, x, p):
        return x + x.roll(-1, dims=1) if self.leaks else x

    def extended(self, plan):
        return super().extended(plan).copy_with(leaks=plan.position_scale != 1.0)
"""


def test_an_extension_that_opens_the_future_is_not_trained_with(tmp_path: Path, word_store: Store) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD.format(base="Encoding") + EXTENDED)
    own = xt.train(f"{file}:Mine", data=word_store, seq_len=16, tokens=512, batch_tokens=256, out=tmp_path / "own")
    with pytest.raises(xt.UserError, match=r"embed lets token [0-9]+ see tokens that come after it, at 32 tokens"):
        xt.train(start=own, extend="pi", seq_len=32, tokens=512, batch_tokens=256, out=tmp_path / "tuned")
    rows = xt.evaluate(own, data=word_store, factors=(1, 2), max_targets=64)
    assert rows["loss"].notna().all()
    before = (own.path / "evals.parquet").read_bytes()
    with pytest.raises(xt.UserError, match=r"own: embed lets token .* at 32 tokens with pi:"):
        xt.evaluate(own, data=word_store, factors=(1, 2), max_targets=64, extend=["log-n", "pi"])
    assert (own.path / "evals.parquet").read_bytes() == before


GROWS = """
    cached = 0

    def embed(self, x, p):
        n, L = len(p), self.dims.seq_len
        if n > self.cached or n <= L < self.cached:
            self.cached = max(n, L)
        return x + torch.sin(p / self.cached)[:, None]
"""


def test_a_table_that_grows_and_is_reset_by_short_windows_is_found(
    trained: Callable[..., Run], word_store: Store
) -> None:
    """As in dynamic NTK: 2x has the numbers of 4x straight after it, and its own after 1x."""
    run = trained(GROWS)
    xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64)
    with pytest.raises(xt.UserError, match=r"the encoding gives other numbers after other .* at 32 tokens"):
        xt.evaluate(run, data=word_store, factors=(1, 2, 4), max_targets=64)


def test_a_class_of_another_module_is_checked_as_a_users(random_run: Callable[..., Run], word_store: Store) -> None:
    model = random_run(word_store).build_model()
    assert not may_leak(model)
    encoding = model.encodings[0]
    encoding.__class__ = type("Imported", (type(encoding),), {"__module__": "mylib"})
    assert may_leak(model)


MARKS_REPETITIONS = """
    def embed(self, x, p):
        # Adds how far a token is in a repetition, as a share of all of it.
        again = torch.nn.functional.pad((x[:, 1:] == x[:, :-1]).all(-1), (1, 1))
        before = torch.zeros(x.shape[:2])
        after = torch.zeros(x.shape[:2])
        for t in range(1, x.shape[1]):
            before[:, t] = torch.where(again[:, t], before[:, t - 1] + 1, 0.0)
        for t in range(x.shape[1] - 2, -1, -1):
            after[:, t] = torch.where(again[:, t + 1], after[:, t + 1] + 1, 0.0)
        whole = before + after
        return x + torch.where(whole > 8, before / whole.clamp(min=1), 0.0)[..., None]
    """


def test_what_depends_on_the_content_is_looked_for_in_the_text(trained: Callable[..., Run], tmp_path: Path) -> None:
    """Nothing is repeated in random tokens, nor at the beginning of this text."""
    rng = np.random.default_rng(0)
    words = ["red", "green", "blue", "stone", "river", "cloud", "sings", "falls", "grows", "slowly"]

    def store(*cried: str) -> Store:
        texts = [(split, " ".join(rng.choice(words, 600))) for split in ("train", "validation", "test") * 6]
        texts += [(split, "a" * 600) for split in cried]
        documents = [Document(f"{number:02}", text, split) for number, (split, text) in enumerate(texts)]
        settings = StoreSettings(source="cries", vocab_size=280, min_heldout_tokens=200)
        return build_store(documents, settings, tmp_path / "".join(cried))

    with pytest.raises(xt.UserError, match=r"embed lets token .* at 16 tokens"):
        trained(MARKS_REPETITIONS, "early", store=store("train"))
    tested = store("test")
    run = trained(MARKS_REPETITIONS, "late", store=tested)
    with pytest.raises(xt.UserError, match=r"late: embed lets token .* at 16 tokens"):
        xt.evaluate(run, data=tested, factors=(1, 2), max_targets=64)


@pytest.mark.usefixtures("causality_unasked")
def test_windows_are_asked_wherever_they_are_scored(word_store: Store, trained: Callable[..., Run]) -> None:
    """Even if the check before an evaluation finds nothing."""
    run = trained("def embed(self, x, p): return x + x.roll(-1, dims=1)")
    for evaluate in (
        lambda: xt.evaluate(run, data=word_store, factors=(1, 2), max_targets=64),
        lambda: xt.evaluate_probes(run, "copy", data=word_store, factors=(1, 2), trials=1),
        lambda: xt.inspect(run, data=word_store, factors=(1, 2), windows=2),
    ):
        with pytest.raises(xt.UserError, match=r"Mine: embed lets token .* of what is scored"):
            evaluate()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("base", "body", "asked", "length"),
    [
        # All windows begin with the same token.
        (
            "Encoding",
            """
            def embed(self, x, p):
                alike = len(x) > 1 and (x[:, :1] == x[:1, :1]).all()
                return x + alike * x.roll(-1, 1)
            """,
            {"bos": True},
            16,
        ),
        # A plan for N on N - 1 tokens.
        (
            "RoPE",
            """
            scale, rescales = 1.0, frozenset({"embed"})
            def extended(self, plan): return super().extended(plan).copy_with(scale=plan.position_scale)
            def embed(self, x, p):
                full, own = round(self.dims.seq_len / self.scale), x.shape[1]
                return x if self.scale == 1 or own >= full else torch.eye(full)[full - own :, :own] @ x
            """,
            {"protocols": "yarn:stride=4", "extend": "pi"},
            31,
        ),
        # A plan that is fitted.
        (
            "RoPE",
            """
            several, rescales = False, frozenset({"embed"})
            def extended(self, plan):
                several = len(set(plan.frequency_scale or ())) > 1
                return super().extended(plan).copy_with(several=several)
            def embed(self, x, p): return x + self.several * x.roll(-1, 1)
            """,
            {"extend": "critical-band"},
            32,
        ),
    ],
    ids=["bos", "plan of another length", "fitted"],
)  # fmt: skip
def test_windows_are_asked_as_they_are_scored(
    word_store: Store, trained: Callable[..., Run], base: str, body: str, asked: dict[str, Any], length: int
) -> None:
    run = trained(body, base=base)
    defaults = {"factors": (1, 2), "max_targets": 512, "protocols": "windows"}
    with pytest.raises(xt.UserError, match=rf"Mine: embed .*, at {length} tokens of what is scored"):
        xt.evaluate(run, data=word_store, **defaults | asked)
    if (table := run.path / "evals.parquet").exists():  # of the plain model
        assert set(pd.read_parquet(table)["extension"]) == {"as-trained"}
