"""Several models at once: the same training as one model after another."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from extrapolate import specs
from extrapolate.data.store import Store
from extrapolate.encodings.base import encodings
from extrapolate.errors import UserError
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN
from extrapolate.runs import tensors
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training import stacked
from extrapolate.training.config import TrainingConfig
from extrapolate.training.learner import Learner
from extrapolate.training.loop import NotFinite, train
from extrapolate.training.many import Planned, train_many
from extrapolate.training.optimizer import optimizer_of
from extrapolate.training.stacked import Stacked
from extrapolate.training.stopping import Interrupted

L, V = 16, 61
SIZES = ModelConfig(
    vocab_size=V, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff_width=48, qk_norm=True, ssmax=True
)
REFUSED = {"random": "random operation"}  # and what the reason names
VARIANTS = ["fire:shared=true", "dape:base=fire", "expe:value_input=true", "fox:form=cable"]


def make(text: str, seed: int = 0, sizes: ModelConfig = SIZES) -> Model:
    spec = specs.parse(text)
    torch.manual_seed(seed)
    return Model(sizes, spec.name, spec.arguments, L)


def learner(text: str, seed: int, training: TrainingConfig, sizes: ModelConfig = SIZES) -> Learner:
    model = make(text, seed, sizes)
    return Learner(model, optimizer_of(model, training), PLAIN, training)


def training_config(**values: Any) -> TrainingConfig:
    sizes = {"seq_len": L, "tokens": 4 * L * 10, "batch_tokens": 4 * L, "micro_batch_tokens": 4 * L}
    return TrainingConfig(**sizes | values)


def step(one: Learner, lr: float) -> None:
    for group in one.optimizer.param_groups:
        group["lr"] = lr
    one.clip()
    one.optimizer.step()
    one.model.constrain()
    one.optimizer.zero_grad(set_to_none=True)


def losses_both_ways(
    text: str, training: TrainingConfig, steps: int, weights: bool = False, sizes: ModelConfig = SIZES
) -> tuple[list[list[float]], list[list[float]]]:
    """Of three models, a list each: trained at once, and one after another."""
    # Small: AdamW makes what is rounding in a gradient near 0 a step, and large steps make that a difference in losses.
    rates, windows = (1e-4, 3e-4, 1e-3), training.batch_size
    tokens = torch.randint(V, (steps, 3, windows, L + 1), generator=torch.Generator().manual_seed(1))
    weight = torch.rand(windows, L, generator=torch.Generator().manual_seed(2)).softmax(-1) if weights else None
    together = [learner(text, seed, training, sizes) for seed in range(3)]
    stack, at_once = Stacked(together), []
    for now in tokens:
        at_once.append(stack.gradients([(one, weight) for one in now]))
        for one, lr in zip(together, rates, strict=True):
            step(one, lr)
    alone = []
    for seed, lr in enumerate(rates):
        one, losses = learner(text, seed, training, sizes), []
        for now in tokens:
            losses.append(one.gradients(now[seed], weight))
            step(one, lr)
        alone.append(losses)
    return [list(each) for each in zip(*at_once, strict=True)], alone


@pytest.mark.parametrize("text", [*(name for name in encodings.names() if name not in REFUSED), *VARIANTS])
def test_models_at_once_learn_as_each_alone(text: str) -> None:
    stacked.check(make(text))
    at_once, alone = losses_both_ways(text, training_config(), 5)
    for ours, theirs in zip(at_once, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert len({round(losses[0], 6) for losses in alone}) == 3  # three different trainings
    assert all(losses[0] != losses[-1] for losses in alone)


@pytest.mark.parametrize("text", ["rope", "expe:value_input=true"])
def test_biases_gelu_and_norms_after_are_learned_at_once_too(text: str) -> None:
    sizes = SIZES.model_copy(update={"qkv_bias": True, "activation": "gelu_tanh", "post_norms": True})
    at_once, alone = losses_both_ways(text, training_config(), 5, sizes=sizes)
    for ours, theirs in zip(at_once, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("weights", [False, True])
def test_micro_batches_and_weights_count_as_for_one_model(weights: bool) -> None:
    """Five windows of each of three models, two of each in a pass: the last has one."""
    training = training_config(batch_tokens=5 * L, micro_batch_tokens=6 * L)
    at_once, alone = losses_both_ways("rope", training, 3, weights)
    for ours, theirs in zip(at_once, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(("micro", "passes"), [(4 * L, [2, 2]), (8 * L, [4]), (6 * L, [3, 1])])
def test_a_pass_has_no_more_tokens_than_that_of_one_model(micro: int, passes: list[int]) -> None:
    """Of two models with batches of four windows: micro-batches may be larger than one model's batch."""
    told: list[int] = []
    training = training_config(micro_batch_tokens=micro)
    learners = [learner("rope", seed, training) for seed in range(2)]
    learners[1].tell = told.append
    Stacked(learners).gradients([(torch.zeros(4, L + 1, dtype=torch.int64), None)] * 2)
    assert told == [L * windows for windows in passes]


def test_models_at_once_learn_in_bf16() -> None:
    at_once, alone = losses_both_ways("rope", training_config(precision="bf16"), 3)
    for ours, theirs in zip(at_once, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-2)


def test_windows_longer_than_the_explicit_product_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extrapolate.model.attention.EXPLICIT_UP_TO", 4)
    at_once, alone = losses_both_ways("alibi", training_config(), 2)
    for ours, theirs in zip(at_once, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_cannot_be_computed_as_one_is_refused_by_name(name: str, reason: str) -> None:
    model = make(name)
    with pytest.raises(UserError, match=reason) as refused:
        stacked.check(model)
    assert model.label() in str(refused.value)


def test_dropout_is_refused() -> None:
    with pytest.raises(UserError, match="dropout"):
        stacked.check(make("rope", sizes=SIZES.model_copy(update={"dropout": 0.1})))


def config_of(store: Store, seed: int, lr: float = 3e-3) -> TrainedConfig:
    request = TrainingRequest(
        pe="rope",
        model={"width": 32, "layers": 1, "heads": 2, "head_dim": 16, "ff_width": 48},
        training={
            "seq_len": 16, "tokens": 256 * 6, "batch_tokens": 256, "precision": "fp32", "compile": False,
            "seed": seed, "lr": lr,
        },
    )  # fmt: skip
    return resolve(request, store)[0]


def rows_of(run: Run) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "tokens_per_s"} for row in rows]


@pytest.fixture(scope="module")
def alone(word_store: Store, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three runs, trained one after another."""
    folder = tmp_path_factory.mktemp("alone")
    settings = [(0, 3e-3), (1, 3e-3), (1, 1e-2)]
    return [train(config_of(word_store, *each), word_store, folder / str(n)) for n, each in enumerate(settings)]


def assert_same(run: Run, other: Run) -> None:
    """Another run of the same configuration, but for rounding."""
    assert run.finished
    assert run.config == other.config
    assert {path.name for path in run.path.iterdir()} == {path.name for path in other.path.iterdir()}
    for row, theirs in zip(rows_of(run), rows_of(other), strict=True):
        assert row == pytest.approx(theirs, rel=1e-4)
    for (name, ours), theirs in zip(run.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5, msg=name)


def plans(alone: list[Run], folder: Path, report: Callable[[dict[str, Any]], None] = lambda row: None) -> list[Planned]:
    return [Planned(run.trained, folder / str(n), report=report) for n, run in enumerate(alone)]


def test_runs_trained_at_once_are_ordinary_runs(word_store: Store, alone: list[Run], tmp_path: Path) -> None:
    told: list[float] = []
    runs = train_many(plans(alone, tmp_path), word_store, progress=lambda what, inputs: told.append(inputs))
    for run, other in zip(runs, alone, strict=True):
        assert_same(run, other)
    assert sum(told) == 3 * 256 * 6
    before = [run.checkpoints("last")[0].sha256 for run in runs]
    again = train_many(plans(alone, tmp_path), word_store, resume=True)
    assert [run.checkpoints("last")[0].sha256 for run in again] == before
    with pytest.raises(UserError, match="already holds a run"):
        train_many(plans(alone, tmp_path), word_store)


def test_runs_go_on_at_once_from_wherever_each_stands(word_store: Store, alone: list[Run], tmp_path: Path) -> None:
    """One was stopped, alone, after two steps, one after four, one has not begun; the third to the last end alone."""

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == last:
            raise RuntimeError("the power is gone")

    for number, last in ((0, 3), (1, 5)):
        with pytest.raises(RuntimeError, match="power"):
            train(alone[number].trained, word_store, tmp_path / str(number), save_every=256 * 2, report=stop)
        assert tensors.record(tmp_path / str(number) / "state.safetensors")["step"] == last - 1
    runs = train_many(plans(alone, tmp_path), word_store, resume=True)
    for run, other in zip(runs, alone, strict=True):
        assert_same(run, other)


def test_a_stop_saves_every_run_and_each_goes_on_alone(
    word_store: Store, alone: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    asked: list[float] = []

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == 3 and "loss" in row and not asked:  # amid a round: the first run has logged its step
            asked.append(row["step"])
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="each of 3 runs"):
        train_many(plans(alone, tmp_path, stop), word_store)
    steps = [tensors.record(tmp_path / str(n) / "state.safetensors")["step"] for n in range(3)]
    assert len(set(steps)) == 1
    assert steps[0] in (3, 4)
    for number, other in enumerate(alone):
        assert_same(train(other.trained, word_store, tmp_path / str(number), resume=True), other)


def test_a_run_that_diverges_ends_alone(
    word_store: Store, alone: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Stacked.gradients, []

    def third_is_lost(self: Stacked, batches: list[Any]) -> list[float]:
        losses = real(self, batches)
        calls.append(len(losses))
        return [math.nan if len(calls) == 3 and n == 1 else loss for n, loss in enumerate(losses)]

    monkeypatch.setattr(Stacked, "gradients", third_is_lost)
    with pytest.raises(NotFinite, match="step 3"):
        train_many(plans(alone, tmp_path), word_store)
    assert calls == [3, 3, 3, 2, 2, 2]
    assert_same(Run.open(tmp_path / "0"), alone[0])
    assert_same(Run.open(tmp_path / "2"), alone[2])
    assert not Run.open(tmp_path / "1").finished


def test_a_model_with_the_weights_of_another_computes_no_more() -> None:
    """ExPE's queries and keys read another input than its values: each part of the product is computed once."""
    model, tokens_BT = make("expe"), torch.zeros(1, L, dtype=torch.int64)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with FlopCounterMode(display=False) as alone:
        model(tokens_BT)
    with FlopCounterMode(display=False) as with_others:
        functional_call(model, weights, (tokens_BT,))
    assert with_others.get_total_flops() == alone.get_total_flops()
