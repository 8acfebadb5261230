"""Small trainings on the words of `word_store`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extrapolate.data.store import Store
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.training.gradient_step import TrainingData
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import Training

SIZES = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 48}
BUDGET = {"seq_len": 16, "tokens": 8192, "batch_tokens": 256, "precision": "fp32"}


@pytest.fixture(scope="session")
def store(word_store: Store) -> Store:
    return word_store


@pytest.fixture(scope="session")
def config_of(store: Store) -> Callable[..., TrainedConfig]:
    """Makes the configuration of a run: an encoding, sizes, and settings of the training, where they are others."""

    def make(pe: str = "rope", sizes: dict[str, Any] | None = None, **training: Any) -> TrainedConfig:
        request = TrainingRequest(pe=pe, model=SIZES | (sizes or {}), training=BUDGET | training)
        return resolve(request, store)[0]

    return make


@pytest.fixture
def training_of(store: Store, tmp_path: Path) -> Callable[[TrainedConfig], Training]:
    """A training that has not begun, of a run in the folder `run`."""

    def make(config: TrainedConfig) -> Training:
        run = Run.create(tmp_path / "run", config, store.tokenizer_json())
        data = TrainingData(config.training, store)
        return Training(run, data, TrainingJob(config, store, run.path), lambda row: None)

    return make


@pytest.fixture(scope="session")
def logged() -> Callable[..., list[dict[str, Any]]]:
    """The rows of a run's metrics.jsonl that have a value of some kind, or all of them."""

    def rows(run: Run, kind: str = "step") -> list[dict[str, Any]]:
        found = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        return [row for row in found if kind in row]

    return rows
