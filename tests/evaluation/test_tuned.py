"""A tuned run: which length its own extension, another one, a fitted constant and the controls count from.

Its line began at L = 16 and it was tuned at 64. An extension whose factor follows from a length tells the two apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pandas as pd
import pytest

from extrapolate.data.probes.base import DEPTHS, parse_probes
from extrapolate.data.store import Store
from extrapolate.encodings.base import Dims
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import lengths, probes
from extrapolate.evaluation import plans as planning
from extrapolate.evaluation.fitting import fitted
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.probes import Sequences, control_score, score
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import in_order
from extrapolate.evaluation.work import work_of
from extrapolate.extensions import stack
from extrapolate.model.model import layer_encodings
from extrapolate.names import AS_TRAINED, WITHOUT_OWN
from extrapolate.runs.config import OriginConfig, TrainedConfig
from extrapolate.runs.run import Run

L, TUNED = 16, 64
LENGTHS = (L, TUNED, 2 * TUNED)
FACTORS = tuple(length / L for length in LENGTHS)


@pytest.fixture(scope="module")
def store(word_store: Store) -> Store:
    return word_store


@pytest.fixture
def tuned(store: Store, random_run: Callable[..., Run]) -> Callable[[str | None], Run]:
    """A run that was tuned with an extension of its own, or with none."""
    origin = OriginConfig(run="rope", weights_sha256="0", config_hash="0", label="RoPE", seq_len=L)

    def make(extension: str | None) -> Run:
        def change(config: TrainedConfig) -> TrainedConfig:
            training = config.training.model_copy(update={"seq_len": TUNED})
            return config.model_copy(update={"origin": origin, "extension": extension, "training": training})

        return random_run(store, change=change)

    return make


def given(text: str) -> Plan:
    """The plan of an extension whose factor is given, for the encoding of these runs."""
    return stack.parse(text).plan(layer_encodings("rope", {}, Dims(32, 2, 16, seq_len=L))[0], L, L)


# What the run's own extension is at each of LENGTHS, where L is 16.
OWN = {
    None: (PLAIN, PLAIN, PLAIN),
    "pi": (PLAIN, Plan(position_scale=1 / 4), Plan(position_scale=1 / 8)),
    "pi:factor=4": (Plan(position_scale=1 / 4),) * 3,
    "yarn": (PLAIN, given("yarn:factor=4"), given("yarn:factor=8")),
    "dynamic-ntk": (PLAIN, given("ntk:factor=7"), given("ntk:factor=15")),  # s = 2 N/L - 1
}


def plans_of(own: str | None) -> dict[str, tuple[Plan, ...]]:
    """What applies at each of LENGTHS: log-n counts from the 64 that the run was tuned at."""
    sharper = (PLAIN, PLAIN, Plan(log_length=TUNED))
    joined = tuple(replace(plan, log_length=extra.log_length) for plan, extra in zip(OWN[own], sharper, strict=True))
    return {AS_TRAINED: OWN[own], "log-n": joined} | ({} if own is None else {WITHOUT_OWN: (PLAIN,) * 3})


@pytest.mark.parametrize("own", OWN)
def test_every_loss_and_every_control_has_its_plan(own: str | None, store: Store, tuned: Callable[..., Run]) -> None:
    run = tuned(own)
    extensions = (WITHOUT_OWN, "log-n")
    settings = EvaluationSettings(FACTORS, extensions, protocols=("windows", "fixed-target"), max_targets=256)
    rows = pd.DataFrame([row for piece, *_ in lengths.evaluate(work_of(run, store, settings)) for row in piece])
    model, split = run.load_model(run.checkpoints("last")[0]), store.split("test")

    def loss(groups: tuple, plan: Plan) -> float:
        return float(in_order(groups, [target_losses(model, split, group, plan) for group in groups]).mean())

    for protocol in settings.protocols:
        layout = settings.layout(protocol, split, L)
        control = loss(layout.control, OWN[own][0])
        for extension, plans in plans_of(own).items():
            for length, plan in zip(LENGTHS, plans, strict=True):
                here = (rows["protocol"] == protocol) & (rows["extension"] == extension) & (rows["length"] == length)
                row = rows[here].squeeze()
                assert row["loss"] == pytest.approx(loss(layout.rows[length], plan), rel=1e-5), (extension, length)
                assert row["control_loss"] == pytest.approx(control, rel=1e-5), (extension, length)


@pytest.mark.parametrize("own", ["pi", "dynamic-ntk"])
def test_so_have_the_probes(own: str, store: Store, tuned: Callable[..., Run]) -> None:
    run = tuned(own)
    (probe,) = parse_probes("needle")
    settings = EvaluationSettings(FACTORS, (WITHOUT_OWN, "log-n"), protocols=(), probes=(probe.text,), trials=4)
    rows = pd.DataFrame([row for piece in probes.evaluate(work_of(run, store, settings)) for row in piece])
    model = run.load_model(run.checkpoints("last")[0])
    for at, length in enumerate(LENGTHS):
        made = Sequences.make(probe, length, DEPTHS[2], 4, store, store.split("test"))
        control = control_score(model, made, L, OWN[own][0]).loss_WA.mean()
        for extension, plans in plans_of(own).items():
            here = (rows["extension"] == extension) & (rows["length"] == length) & (rows["depth"] == DEPTHS[2])
            row = rows[here].squeeze()
            expected = score(model, made.tokens_WN, made.answers_A, made.candidates_WC, plans[at]).loss_WA.mean()
            assert row["loss"] == pytest.approx(expected, rel=1e-4), (extension, length)
            assert row["control_loss"] == pytest.approx(control, rel=1e-4), (extension, length)


class TestFitting:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple]]:
        """The split, the length that is counted from, the length and the precision of every fit."""
        calls: list[tuple] = []

        def noted(stack, plan_of, model, split, seq_len, length, precision, *others):
            calls.append((split.name, seq_len, length, precision))
            return fitted(stack, plan_of, model, split, seq_len, length, precision, *others)

        monkeypatch.setattr(planning, "fitted", noted)
        return calls

    @pytest.mark.parametrize("split", ["test", "validation"])
    def test_a_constant_is_fitted_to_validation_text_whatever_is_evaluated(
        self, split: str, store: Store, tuned: Callable[..., Run], asked: list[tuple], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And counts from the length that the run was tuned at: up to there nothing is fitted."""
        run = tuned("pi")
        model = run.load_model(run.checkpoints("last")[0])
        opened = []
        split_of = Store.split
        monkeypatch.setattr(Store, "split", lambda self, name: opened.append(name) or split_of(self, name))
        chosen = extensions_to_evaluate(run, model, ["temperature"])["temperature"]
        plans = [chosen.fitted_plan(run, model, store, length, "fp32") for length in LENGTHS]
        assert set(opened) == {"validation"}
        assert [plan.logit_scale == 1.0 for plan in plans] == [True, True, False]
        assert [plan.position_scale for plan in plans] == [1.0, 1 / 4, 1 / 8]
        asked.clear()
        settings = EvaluationSettings(FACTORS, ("temperature",), protocols=("windows",), split=split, max_targets=256)
        said: list[str] = []
        rows = [row for piece, *_ in lengths.evaluate(work_of(run, store, settings), say=said.append) for row in piece]
        assert asked == [("validation", TUNED, length, "fp32") for length in LENGTHS]
        assert {row["split"] for row in rows} == {split}
        optimistic = f"{run.path}: temperature: fitted to the validation split, which is evaluated here too"
        assert [line.startswith(optimistic) for line in said] == ([True] if split == "validation" else [])

    def test_a_constant_is_fitted_in_the_precision_that_is_evaluated(
        self, store: Store, tuned: Callable[..., Run], asked: list[tuple]
    ) -> None:
        run = tuned(None)
        settings = EvaluationSettings(
            (8,), ("temperature",), protocols=("windows",), max_targets=128, precisions=("bf16",), probes=("needle",),
            trials=1,
        )  # fmt: skip
        for evaluate in (lengths.evaluate, probes.evaluate):
            list(evaluate(work_of(run, store, settings)))
            assert asked == [("validation", TUNED, 2 * TUNED, "bf16")]
            asked.clear()
