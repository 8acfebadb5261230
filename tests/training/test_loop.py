"""Accumulation, mixtures, precision, validation and seeds: what a short training computes, in process."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation.losses import validation_loss, validation_windows
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.machine.distributed import Ranks
from extrapolate.model.model import Model
from extrapolate.runs import tensors
from extrapolate.runs.config import OriginConfig
from extrapolate.runs.run import Run
from extrapolate.training import loop
from extrapolate.training.data_parallel import DataParallel
from extrapolate.training.gradient_step import VALIDATION_TARGETS, TrainingData
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import initial_model, train

PROBES = "needle=0.3,copy=0.2,(mqar:pairs=2,queries=1)=0.2"


@pytest.mark.parametrize("micro", [256, 48], ids=["at once", "in micro-batches of unequal size"])
@pytest.mark.parametrize("probes", [None, PROBES], ids=["text", "mixture"])
def test_every_window_weighs_the_same(store: Store, config_of, training_of, probes: str | None, micro: int) -> None:
    """Against torch's cross-entropy, one forward pass a window."""
    training = training_of(config_of(micro_batch_tokens=micro, probes=probes))
    model, (batch, weight) = training.model, training.data.batch(0, 16)
    loss = training.gradient_step.gradients(batch, weight)
    ours = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    if weight is None:
        assert (batch.numpy() == training.data.windows.batch(0, 16)).all()
        assert loss == pytest.approx(math.log(store.vocab_size), abs=0.1)
        weight = torch.ones(16, 16)
    else:
        assert {int((weights > 0).sum()) for weights in weight} == {1, 3, 16}  # answers of probes, and text
    means = []
    for tokens, weights in zip(batch, weight, strict=True):
        loss_T = torch.nn.functional.cross_entropy(model(tokens[None, :-1])[0], tokens[1:], reduction="none")
        means.append(loss_T[weights > 0].mean())
    torch.stack(means).mean().backward()
    assert loss == pytest.approx(torch.stack(means).mean().item(), rel=1e-5)
    for mine, parameter in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_run_learns_and_logs(store: Store, tmp_path: Path, config_of, logged) -> None:
    run = train(TrainingJob(config_of(tokens=256 * 60), store, tmp_path / "run"))
    steps, validations = logged(run, "loss"), logged(run, "val_loss")
    assert [row["step"] for row in steps] == list(range(1, 61))
    assert [row["tokens"] for row in steps] == [256 * n for n in range(1, 61)]
    assert set(steps[0]) == {"step", "tokens", "loss", "lr", "grad_norm", "cpu_taken_share", "tokens_per_s"}
    assert len(validations) == 10
    assert validations[-1]["step"] == 60
    assert validations[-1]["val_loss"] < validations[0]["val_loss"] < math.log(store.vocab_size)
    assert validations[-1]["val_loss"] < math.log(store.vocab_size) - 1
    assert pd.read_parquet(run.path / "metrics.parquet")["step"].max() == 60
    seconds = 256 * 60 / float(np.sort([row["tokens_per_s"] for row in steps])[30])
    assert run.training_seconds() == pytest.approx(seconds)


def test_the_time_beside_other_programs_is_not_known_whatever_interrupted_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_of, logged
) -> None:
    """Programs that take a third of the time of the first half, which is saved; then they are gone."""
    config, seconds, others = config_of(tokens=256 * 8), 0.0, 0.5

    def now() -> CpuTime:
        nonlocal seconds
        seconds += 1.0
        return CpuTime(seconds, seconds * others, 0.0)

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == 4 and "val_loss" in row:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "CpuTime", SimpleNamespace(now=now))
    with pytest.raises(KeyboardInterrupt):
        train(TrainingJob(config, store, tmp_path / "run", save_every=256), report=stop)
    others = 0.0
    run = train(TrainingJob(config, store, tmp_path / "run"), resume=True)
    shares = [row["cpu_taken_share"] for row in logged(run, "loss")]
    assert shares[0] == pytest.approx(1 / 3)
    assert shares[-1] == 0.0
    assert run.training_taken() == pytest.approx(np.mean(shares))
    assert run.training_seconds() is None
    monkeypatch.setattr(loop, "CpuTime", SimpleNamespace(now=lambda: None))
    untold = train(TrainingJob(config, store, tmp_path / "untold"))
    assert untold.training_taken() is None
    assert untold.training_seconds() is not None


# Settings of the model that have code of their own.
COMBINED = dict.fromkeys(("sinks", "output_gate", "differential", "canon"), True)
AOT = "aot_eager_decomp_partition"  # the code that is made in the end takes most of the time: once is enough


@pytest.mark.parametrize(
    ("pe", "sizes", "training", "backend"),
    [
        ("rope", {"layers": 1}, {}, "inductor"),
        ("rope", {"layers": 1}, {"probes": PROBES}, AOT),
        # A forward pass that overwrote them would spoil the gradients of the one before.
        ("kerple", {"layers": 2}, {"micro_batch_tokens": 128}, AOT),
        ("rope", {"layers": 1, **COMBINED}, {}, AOT),
    ],
    ids=["text", "mixture", "parameters that are kept in range, in micro-batches", "all that combines"],
)
def test_compiled_training_is_the_same_training(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_of, logged,
    pe: str, sizes: dict[str, Any], training: dict[str, Any], backend: str,
) -> None:  # fmt: skip
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend=backend))
    losses = []
    for compiled in (False, True):
        config = config_of(pe, sizes, tokens=256 * 4, compile=compiled, **training)
        run = train(TrainingJob(config, store, tmp_path / str(compiled)))
        losses.append([row["loss"] for row in logged(run, "loss")])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize(
    ("pe", "sizes", "training"),
    [
        ("rope", {}, {"probes": PROBES}),
        ("random:max=64,curriculum=0.8", {"dropout": 0.2}, {}),
        ("fox", COMBINED, {}),
    ],
    ids=["a mixture", "drawn positions, and dropout", "all that combines"],
)
def test_a_killed_run_resumes_to_the_same_bits(
    store: Store, tmp_path: Path, config_of, logged, pe: str, sizes: dict[str, Any], training: dict[str, Any]
) -> None:
    config = config_of(pe, sizes, tokens=256 * 8, **training)
    whole = train(TrainingJob(config, store, tmp_path / "whole"))

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 5:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        train(TrainingJob(config, store, tmp_path / "cut", save_every=256 * 2), report=stop)
    assert tensors.record(tmp_path / "cut" / "state.safetensors")["step"] == 4
    torch.manual_seed(9)  # what a new process has is not what the old one had
    resumed = train(TrainingJob(config, store, tmp_path / "cut"), resume=True)
    assert resumed.checkpoints("last")[0].sha256 == whole.checkpoints("last")[0].sha256
    rows = [[row | {"tokens_per_s": None} for row in logged(run)] for run in (whole, resumed)]
    assert rows[0] == rows[1]


def test_a_training_says_how_far_it_is_before_every_step_also_after_a_resume(
    store: Store, tmp_path: Path, config_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    begin = Model.begin_step
    monkeypatch.setattr(Model, "begin_step", lambda self, done: (told.append(done), begin(self, done))[0])
    config = config_of("pose:curriculum=0.5", {"layers": 1}, tokens=256 * 8)

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 5:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        train(TrainingJob(config, store, tmp_path / "run", save_every=256 * 2), report=stop)
    assert told == [step / 8 for step in range(5)]
    told.clear()
    train(TrainingJob(config, store, tmp_path / "run"), resume=True)
    assert told == [step / 8 for step in range(4, 8)]


def test_a_mixture_trains_in_bf16_and_learns(store: Store, tmp_path: Path, config_of, logged) -> None:
    config = config_of(tokens=256 * 100, probes="(needle:symbols=2)=1", precision="bf16", lr=1e-2)
    losses = [row["loss"] for row in logged(train(TrainingJob(config, store, tmp_path / "run")), "loss")]
    assert losses[0] == pytest.approx(math.log(store.vocab_size), abs=0.3)
    assert np.mean(losses[-10:]) < math.log(2) + 0.1  # which two symbols there are, at the least


@pytest.mark.parametrize("compiled", [False, True])
def test_progress_of_a_compiled_run_begins_after_its_first_pass(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_of, compiled: bool
) -> None:
    """Else the compiler's time would count in its rate."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    told: list[tuple[str, float]] = []
    config = config_of(tokens=256 * 4, micro_batch_tokens=64, compile=compiled)
    train(TrainingJob(config, store, tmp_path / "run"), progress=lambda what, inputs: told.append((what, inputs)))
    passes = [inputs for what, inputs in told if what == "training"]
    assert passes == ([64] * 16 if compiled else [0, *[64] * 16])
    assert sum(inputs for what, inputs in told if what == "validating") == 0
    assert [what for what, _ in told].count("validating") >= 8  # at the beginning of each of four, and after passes


def test_bfloat16_training_is_training_under_autocast(tmp_path: Path, config_of, training_of) -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        training = training_of(config_of(precision=precision))
        batch, weight = training.data.batch(0, 16)
        losses[precision] = training.gradient_step.gradients(batch, weight)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            expected = training.model.loss(batch[:, :-1], batch[:, 1:])
        assert losses[precision] == pytest.approx(expected.item(), rel=1e-6)
    assert losses["fp32"] != losses["bf16"]


def test_a_bf16_run_is_validated_in_float32(store: Store, tmp_path: Path, config_of, logged) -> None:
    config = config_of(sizes={"layers": 1}, tokens=1024, precision="bf16")
    run, data = train(TrainingJob(config, store, tmp_path / "run")), TrainingData(config.training, store)
    exact, rounded = (
        validation_loss(
            run.model, data.validation, data.validation_windows, precision=precision,
            batch_tokens=config.training.micro_batch_tokens,
        )
        for precision in ("fp32", "bf16")
    )  # fmt: skip
    said = logged(run, "val_loss")[-1]["val_loss"]
    assert said == exact
    assert said != rounded


def test_held_out_text_is_for_validation_alone_and_probes_are_made_of_training_text(store: Store, config_of) -> None:
    data = TrainingData(config_of(probes=PROBES).training, store)
    assert data.validation.name == "validation"
    assert data.mixed is not None
    assert {data.windows.split.name, data.mixed.split.name} == {"train"}


@pytest.mark.parametrize(
    ("extension", "plan"), [(None, PLAIN), ("pi", Plan(position_scale=0.25)), ("log-n", Plan(log_length=4))]
)
def test_the_own_extension_applies_in_training_and_in_validation_where_nothing_is_dropped(
    store: Store, config_of, training_of, extension: str | None, plan: Plan
) -> None:
    """Its factor follows from the 16 tokens of a window and the 4 that the run's line began with."""
    origin = OriginConfig(run="before", weights_sha256="0", config_hash="0", label="RoPE", seq_len=4)
    config = config_of(sizes={"dropout": 0.5}).model_copy(update={"extension": extension, "origin": origin})
    training = training_of(config)
    model, split = training.model.train(), store.split("validation")
    with torch.no_grad():
        for block in model.blocks:  # attention far from even
            block.attention.qkv.weight.mul_(20)
    batch, weight = training.data.batch(0, 16)
    losses = []
    for each in (plan, PLAIN):
        torch.manual_seed(1)
        losses.append(model.loss(batch[:, :-1], batch[:, 1:], each).item())
    torch.manual_seed(1)
    assert training.gradient_step.gradients(batch, weight) == pytest.approx(losses[0], rel=1e-6)
    found = training._validate()["val_loss"]
    assert model.training
    evaluated, windows = copy.deepcopy(model).eval(), validation_windows(split, 16, VALIDATION_TARGETS)
    assert found == validation_loss(evaluated, split, windows, plan)
    if extension is not None:
        assert losses[0] != pytest.approx(losses[1], rel=1e-6)
        assert found != validation_loss(evaluated, split, windows, PLAIN)


def test_the_seed_decides_the_initial_weights_and_the_order_of_windows(store: Store, tmp_path: Path, config_of) -> None:
    weights, windows = [], []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = config_of(sizes={"layers": 1}, seed=seed)
        run = Run.create(tmp_path / name, config, store.tokenizer_json())
        weights.append(initial_model(run).blocks[0].attention.qkv.weight)
        of_run = TrainingData(config.training, store).windows
        windows.append(of_run.batch(0, of_run.count))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert np.array_equal(windows[0], windows[1])
    assert not np.array_equal(windows[0], windows[2])
    assert sorted(map(bytes, windows[0])) == sorted(map(bytes, windows[2]))  # the same windows


def test_processes_draw_other_numbers_at_every_step_and_the_same_again(config_of) -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        gradient_step = object.__new__(DataParallel)  # no other process is needed for its seeds
        gradient_step.training, gradient_step.ranks = config_of(seed=seed).training, Ranks(rank, 2)
        gradient_step.begin_step(step)
        return float(torch.rand(()))

    with torch.random.fork_rng(devices=[]):
        cases = [(seed, step, rank) for seed in (0, 1) for step in (0, 1, 2) for rank in (0, 1)]
        numbers = [drawn(*case) for case in cases]
        assert len(set(numbers)) == len(cases)
        assert [drawn(*case) for case in cases] == pytest.approx(numbers, abs=0.0)
