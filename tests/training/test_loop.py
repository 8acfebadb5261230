"""Accumulation, mixtures, precision, validation and seeds: what a short training computes, in process."""

import copy
import json
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
from extrapolate.evaluation.validation import validation_loss, validation_windows
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.machine.distributed import Ranks
from extrapolate.runs import tensors
from extrapolate.runs.config import OriginConfig, TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training import loop
from extrapolate.training.data_parallel import DataParallel
from extrapolate.training.learner import VALIDATION_TARGETS, TrainingData
from extrapolate.training.loop import Training, initial_model, train


@pytest.fixture(scope="module")
def store(word_store: Store) -> Store:
    return word_store


def logged(run: Run) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl."""
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def config_of(store: Store, *, layers: int = 2, **training: object) -> TrainedConfig:
    request = TrainingRequest(
        pe="rope",
        model={"width": 32, "layers": layers, "heads": 2, "head_dim": 16, "ff_width": 48},
        training={"seq_len": 16, "tokens": 8192, "batch_tokens": 256, "precision": "fp32", **training},
    )
    return resolve(request, store)[0]


def test_accumulated_gradients_are_those_of_the_whole_batch(store: Store, tmp_path: Path) -> None:
    """Micro-batches of unequal size included."""
    gradients = []
    for micro in (256, 48):  # 16 windows at once; or five times three and one
        config = config_of(store, micro_batch_tokens=micro)
        run = Run.create(tmp_path / str(micro), config, (store.path / "tokenizer.json").read_bytes())
        training = Training(run, TrainingData(config.training, store), None, lambda row: None)
        batch = torch.from_numpy(training.data.windows.batch(0, 16))
        loss = training.learner.gradients(batch)
        gradients.append([p.grad.clone() for p in training.model.parameters() if p.grad is not None])
        assert loss == pytest.approx(math.log(store.vocab_size), abs=0.1)
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)


def test_a_run_learns_and_logs(store: Store, tmp_path: Path) -> None:
    config = config_of(store, tokens=256 * 60)
    run = train(config, store, tmp_path / "run")
    rows = logged(run)
    steps = [row for row in rows if "loss" in row]
    validations = [row for row in rows if "val_loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 61))
    assert [row["tokens"] for row in steps] == [256 * n for n in range(1, 61)]
    assert set(steps[0]) == {"step", "tokens", "loss", "lr", "grad_norm", "others", "tokens_per_s"}
    assert len(validations) == 10
    assert validations[-1]["step"] == 60
    assert validations[-1]["val_loss"] < validations[0]["val_loss"] < math.log(store.vocab_size)
    assert validations[-1]["val_loss"] < math.log(store.vocab_size) - 1
    assert pd.read_parquet(run.path / "metrics.parquet")["step"].max() == 60
    seconds = 256 * 60 / float(np.sort([row["tokens_per_s"] for row in steps])[30])
    assert run.training_seconds() == pytest.approx(seconds)


def test_the_time_beside_other_programs_is_not_known_whatever_interrupted_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that take a third of the time of the first half, which is saved; then they are gone."""
    config, seconds, others = config_of(store, tokens=256 * 8), 0.0, 0.5

    def now() -> CpuTime:
        nonlocal seconds
        seconds += 1.0
        return CpuTime(seconds, seconds * others, 0.0)

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == 4 and "val_loss" in row:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "CpuTime", SimpleNamespace(now=now))
    with pytest.raises(KeyboardInterrupt):
        train(config, store, tmp_path / "run", save_every=256, report=stop)
    others = 0.0
    run = train(config, store, tmp_path / "run", resume=True)
    shares = [row["others"] for row in logged(run) if "loss" in row]
    assert shares[0] == pytest.approx(1 / 3)
    assert shares[-1] == 0.0
    assert run.training_taken() == pytest.approx(np.mean(shares))
    assert run.training_seconds() is None
    monkeypatch.setattr(loop, "CpuTime", SimpleNamespace(now=lambda: None))
    untold = train(config, store, tmp_path / "untold")
    assert untold.training_taken() is None
    assert untold.training_seconds() is not None


def test_compiled_training_is_the_same_training(store: Store, tmp_path: Path) -> None:
    losses = []
    for compiled in (False, True):
        run = train(config_of(store, layers=1, tokens=256 * 6, compile=compiled), store, tmp_path / str(compiled))
        losses.append([row["loss"] for row in logged(run) if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


def test_parameters_that_are_kept_in_range_train_compiled_in_micro_batches(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward pass that overwrote them would spoil the gradients of the one before."""
    real = torch.compile  # as on any machine, but for the code that is made in the end: that takes most of the time
    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend="aot_eager_decomp_partition"))
    sizes = {"width": 16, "layers": 2, "heads": 1, "head_dim": 16, "ff_width": 16}
    losses = []
    for compiled in (False, True):
        training = {"seq_len": 16, "tokens": 512, "batch_tokens": 256, "micro_batch_tokens": 128, "compile": compiled}
        config, _ = resolve(TrainingRequest(pe="kerple", model=sizes, training=training), store)
        run = train(config, store, tmp_path / str(compiled))
        losses.append([row["loss"] for row in logged(run) if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


PROBES = "needle=0.3,copy=0.2,(mqar:pairs=2,queries=1)=0.2"


def test_in_a_mixture_every_window_weighs_the_same(store: Store, tmp_path: Path) -> None:
    """Against one forward pass a window, in micro-batches of several sizes."""
    gradients, losses = [], []
    for micro in (256, 48):
        config = config_of(store, micro_batch_tokens=micro, probes=PROBES)
        run = Run.create(tmp_path / str(micro), config, (store.path / "tokenizer.json").read_bytes())
        training = Training(run, TrainingData(config.training, store), None, lambda row: None)
        batch, weight = training.data.batch(0, 16)
        losses.append(training.learner.gradients(batch, weight))
        gradients.append([p.grad.clone() for p in training.model.parameters() if p.grad is not None])
    model = training.model
    model.zero_grad()
    means = []
    for tokens, weights in zip(batch, weight, strict=True):
        loss_T = torch.nn.functional.cross_entropy(model(tokens[None, :-1])[0], tokens[1:], reduction="none")
        means.append(loss_T[weights > 0].mean())  # text: of all; a probe: of its answers
    assert {int((weights > 0).sum()) for weights in weight} == {1, 3, 16}  # answers of probes, and text
    torch.stack(means).mean().backward()
    assert losses == pytest.approx([torch.stack(means).mean().item()] * 2, rel=1e-5)
    for whole, parts, slow in zip(*gradients, [p.grad for p in model.parameters()], strict=True):
        torch.testing.assert_close(whole, slow, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(parts, slow, rtol=1e-4, atol=1e-6)


def test_text_alone_goes_the_way_it_always_went(store: Store, tmp_path: Path) -> None:
    """The same batches, and but for rounding the loss and gradients of torch's cross-entropy over all targets."""
    config = config_of(store)
    run = Run.create(tmp_path, config, (store.path / "tokenizer.json").read_bytes())
    training = Training(run, TrainingData(config.training, store), None, lambda row: None)
    batch, weight = training.data.batch(32, 16)
    assert weight is None
    assert (batch.numpy() == training.data.windows.batch(32, 16)).all()
    loss = training.learner.gradients(batch, weight)
    ours = [p.grad.clone() for p in training.model.parameters()]
    training.model.zero_grad()
    logits = training.model(batch[:, :-1])
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    plain.backward()
    assert loss == pytest.approx(plain.item(), rel=1e-6)
    for mine, parameter in zip(ours, training.model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-7)


def test_a_mixture_resumes_to_the_same_bits(store: Store, tmp_path: Path) -> None:
    config = config_of(store, tokens=256 * 12, probes=PROBES)
    whole = train(config, store, tmp_path / "whole")

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 7:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        train(config, store, tmp_path / "cut", save_every=256 * 3, report=stop)
    assert tensors.record(tmp_path / "cut" / "state.safetensors")["step"] == 6
    resumed = train(config, store, tmp_path / "cut", resume=True)
    assert resumed.checkpoints("last")[0].sha256 == whole.checkpoints("last")[0].sha256
    drop = {"tokens_per_s"}
    rows = [[{k: v for k, v in row.items() if k not in drop} for row in logged(run)] for run in (whole, resumed)]
    assert rows[0] == rows[1]


def test_what_is_drawn_in_training_resumes_to_the_same_bits(store: Store, tmp_path: Path) -> None:
    """Positions, and what dropout drops: the generator's state is saved too."""
    sizes = {"width": 32, "layers": 1, "heads": 2, "head_dim": 16, "ff_width": 48, "dropout": 0.2}
    training = {"seq_len": 16, "tokens": 2048, "batch_tokens": 256, "precision": "fp32"}
    config, _ = resolve(TrainingRequest(pe="random:max=64", model=sizes, training=training), store)
    whole = train(config, store, tmp_path / "whole")

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 5:
            raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError, match="power"):
        train(config, store, tmp_path / "cut", save_every=256 * 2, report=stop)
    torch.manual_seed(9)  # what a new process has is not what the old one had
    resumed = train(config, store, tmp_path / "cut", resume=True)
    assert resumed.checkpoints("last")[0].sha256 == whole.checkpoints("last")[0].sha256


def test_a_mixture_trains_in_bf16_and_learns(store: Store, tmp_path: Path) -> None:
    config = config_of(store, tokens=256 * 100, probes="(needle:symbols=2)=1", precision="bf16", lr=1e-2)
    losses = [row["loss"] for row in logged(train(config, store, tmp_path / "run")) if "loss" in row]
    assert losses[0] == pytest.approx(math.log(store.vocab_size), abs=0.3)
    assert np.mean(losses[-10:]) < math.log(2) + 0.1  # which two symbols there are, at the least


def test_compiled_mixtures_are_the_same_training(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile  # the code that is made in the end is that of `test_compiled_training_is_the_same_training`
    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend="aot_eager_decomp_partition"))
    losses = []
    for compiled in (False, True):
        config = config_of(store, layers=1, tokens=256 * 6, compile=compiled, probes=PROBES)
        run = train(config, store, tmp_path / str(compiled))
        losses.append([row["loss"] for row in logged(run) if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_progress_of_a_compiled_run_begins_after_its_first_pass(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """Else the compiler's time would count in its rate."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    told: list[tuple[str, float]] = []
    config = config_of(store, tokens=256 * 4, micro_batch_tokens=64, compile=compiled)
    train(config, store, tmp_path / "run", progress=lambda what, inputs: told.append((what, inputs)))
    passes = [inputs for what, inputs in told if what == "training"]
    assert passes == ([64] * 16 if compiled else [0, *[64] * 16])
    assert sum(inputs for what, inputs in told if what == "validating") == 0
    assert [what for what, _ in told].count("validating") >= 8  # at the beginning of each of four, and after passes


def training_of(config: TrainedConfig, store: Store, path: Path) -> Training:
    """A training that has not begun."""
    run = Run.create(path, config, (store.path / "tokenizer.json").read_bytes())
    return Training(run, TrainingData(config.training, store), None, lambda row: None)


def test_bfloat16_training_is_training_under_autocast(store: Store, tmp_path: Path) -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        training = training_of(config_of(store, precision=precision), store, tmp_path / precision)
        batch, weight = training.data.batch(0, 16)
        losses[precision] = training.learner.gradients(batch, weight)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            expected = training.model.loss(batch[:, :-1], batch[:, 1:])
        assert losses[precision] == pytest.approx(expected.item(), rel=1e-6)
    assert losses["fp32"] != losses["bf16"]


def test_held_out_text_is_for_validation_alone_and_probes_are_made_of_training_text(store: Store) -> None:
    data = TrainingData(config_of(store, probes=PROBES).training, store)
    assert data.validation.name == "validation"
    assert data.mixed is not None
    assert {data.windows.split.name, data.mixed.split.name} == {"train"}


class TestValidation:
    """Its loss is the evaluated model's: nothing is dropped, and the run's own extension applies."""

    @pytest.mark.parametrize("extension", [None, "pi:factor=4", "log-n"])
    def test_it_is_the_evaluated_models(self, store: Store, tmp_path: Path, extension: str | None) -> None:
        config = config_of(store)
        config = config.model_copy(
            update={"model": config.model.model_copy(update={"dropout": 0.5}), "extension": extension}
        )
        if extension == "log-n":  # it counts from the L that the run's line began with
            origin = OriginConfig(run="before", weights_sha256="0", config_hash="0", label="RoPE", seq_len=4)
            config = config.model_copy(update={"origin": origin})
        plan = {None: PLAIN, "pi:factor=4": Plan(position_scale=0.25), "log-n": Plan(log_length=4)}[extension]
        training = training_of(config, store, tmp_path)
        with torch.no_grad():
            for block in training.model.blocks:  # attention far from even
                block.attention.qkv.weight.mul_(20)
        training.model.train()
        found = training._validate()["val_loss"]
        assert training.model.training
        model, split = copy.deepcopy(training.model).eval(), store.split("validation")
        windows = validation_windows(split, 16, VALIDATION_TARGETS)
        assert found == validation_loss(model, split, windows, plan)
        assert extension is None or found != validation_loss(model, split, windows, PLAIN)

    @pytest.mark.parametrize(("extension", "plan"), [("pi", Plan(position_scale=0.25)), ("log-n", Plan(log_length=4))])
    def test_the_own_extension_applies_in_training_too(
        self, store: Store, tmp_path: Path, extension: str, plan: Plan
    ) -> None:
        """Its factor follows from the 16 tokens of a window and the 4 that the run's line began with."""
        origin = OriginConfig(run="before", weights_sha256="0", config_hash="0", label="RoPE", seq_len=4)
        config = config_of(store).model_copy(update={"extension": extension, "origin": origin})
        training = training_of(config, store, tmp_path)
        with torch.no_grad():
            for block in training.model.blocks:
                block.attention.qkv.weight.mul_(20)
        batch, weight = training.data.batch(0, 16)
        with torch.no_grad():
            expected, plain = (training.model.loss(batch[:, :-1], batch[:, 1:], p).item() for p in (plan, PLAIN))
        assert training.learner.gradients(batch, weight) == pytest.approx(expected, rel=1e-6)
        assert expected != pytest.approx(plain, rel=1e-6)


def test_the_seed_decides_the_initial_weights(store: Store, tmp_path: Path) -> None:
    made = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = Run.create(tmp_path / name, config_of(store, layers=1, seed=seed), store.tokenizer_json())
        made[name] = initial_model(run).blocks[0].attention.qkv.weight
    assert torch.equal(made["a"], made["b"])
    assert not torch.equal(made["a"], made["c"])


def test_the_seed_decides_the_order_of_windows(store: Store) -> None:
    a, b, c = (TrainingData(config_of(store, layers=1, seed=seed).training, store).windows for seed in (0, 0, 1))
    first_a, first_b, first_c = (windows.batch(0, windows.count) for windows in (a, b, c))
    assert np.array_equal(first_a, first_b)
    assert not np.array_equal(first_a, first_c)
    assert sorted(map(bytes, first_a)) == sorted(map(bytes, first_c))  # the same windows


def test_a_bf16_run_is_validated_in_float32(store: Store, tmp_path: Path) -> None:
    config = config_of(store, layers=1, tokens=1024, precision="bf16")
    run, data = train(config, store, tmp_path / "run"), TrainingData(config.training, store)
    said = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["val_loss"]
    exact, rounded = (
        validation_loss(
            run.model, data.validation, data.validation_windows, precision=precision,
            batch_tokens=config.training.micro_batch_tokens,
        )
        for precision in ("fp32", "bf16")
    )  # fmt: skip
    assert said == exact
    assert said != rounded


def test_processes_draw_other_numbers_at_every_step_and_the_same_again(store: Store) -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        learner = object.__new__(DataParallel)  # no other process is needed for its seeds
        learner.training, learner.ranks = config_of(store, layers=1, seed=seed).training, Ranks(rank, 2)
        learner.begin_step(step)
        return float(torch.rand(()))

    with torch.random.fork_rng(devices=[]):
        cases = [(seed, step, rank) for seed in (0, 1) for step in (0, 1, 2) for rank in (0, 1)]
        numbers = [drawn(*case) for case in cases]
        assert len(set(numbers)) == len(cases)
        assert [drawn(*case) for case in cases] == pytest.approx(numbers, abs=0.0)
