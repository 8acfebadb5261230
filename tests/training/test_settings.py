"""What the settings of a training reach: the seed the weights, the order and each step's dropout; precision no loss
of the validation."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from extrapolate.data.store import Store
from extrapolate.evaluation.validation import validation_loss
from extrapolate.machine.distributed import Ranks
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training.data_parallel import DataParallel
from extrapolate.training.learner import TrainingData
from extrapolate.training.loop import initial_model, train


def config_of(store: Store, **training: object) -> TrainedConfig:
    request = TrainingRequest(
        pe="rope",
        model={"width": 32, "layers": 1, "heads": 2, "head_dim": 16, "ff_width": 48},
        training={"seq_len": 16, "tokens": 1024, "batch_tokens": 256, "precision": "fp32", **training},
    )
    return resolve(request, store)[0]


def test_the_seed_decides_the_initial_weights(word_store: Store, tmp_path: Path) -> None:
    made = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = Run.create(tmp_path / name, config_of(word_store, seed=seed), word_store.tokenizer_json())
        made[name] = initial_model(run).blocks[0].attention.qkv.weight
    assert torch.equal(made["a"], made["b"])
    assert not torch.equal(made["a"], made["c"])


def test_the_seed_decides_the_order_of_windows(word_store: Store) -> None:
    a, b, c = (TrainingData(config_of(word_store, seed=seed).training, word_store).windows for seed in (0, 0, 1))
    first_a, first_b, first_c = (windows.batch(0, windows.count) for windows in (a, b, c))
    assert np.array_equal(first_a, first_b)
    assert not np.array_equal(first_a, first_c)
    assert sorted(map(bytes, first_a)) == sorted(map(bytes, first_c))  # the same windows


def test_a_bf16_run_is_validated_in_float32(word_store: Store, tmp_path: Path) -> None:
    config = config_of(word_store, precision="bf16")
    run, data = train(config, word_store, tmp_path / "run"), TrainingData(config.training, word_store)
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


def test_processes_draw_other_numbers_at_every_step_and_the_same_again(word_store: Store) -> None:
    def drawn(seed: int, step: int, rank: int) -> float:
        learner = object.__new__(DataParallel)  # no other process is needed for its seeds
        learner.training, learner.ranks = config_of(word_store, seed=seed).training, Ranks(rank, 2)
        learner.begin_step(step)
        return float(torch.rand(()))

    with torch.random.fork_rng(devices=[]):
        cases = [(seed, step, rank) for seed in (0, 1) for step in (0, 1, 2) for rank in (0, 1)]
        numbers = [drawn(*case) for case in cases]
        assert len(set(numbers)) == len(cases)
        assert [drawn(*case) for case in cases] == pytest.approx(numbers, abs=0.0)
