"""A training and an evaluation on a GPU are those of the CPU, eager and compiled; what was stopped goes on exactly."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.runs.run import Run

pytestmark = pytest.mark.gpu
STEPS, BATCH = 12, 256


def train(store: Store, out: Path, device: str, **settings: Any) -> Run:
    return xt.train(
        "rope", seq_len=16, data=store, tokens=STEPS * BATCH, batch_tokens=BATCH, layers=2, out=out, device=device,
        **({"precision": "fp32", "compile": False} | settings),
    )  # fmt: skip


def losses(run: Run) -> list[float]:
    return pd.read_parquet(run.path / "metrics.parquet")["loss"].dropna().tolist()


@pytest.fixture(scope="module")
def on_cpu(word_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(word_store, tmp_path_factory.mktemp("cpu") / "run", "cpu")


@pytest.mark.parametrize("compile", [False, True])
def test_a_training_has_the_cpus_losses(
    word_store: Store, on_cpu: Run, tmp_path: Path, device: str, compile: bool
) -> None:
    run = train(word_store, tmp_path / "run", device, compile=compile)
    assert losses(run) == pytest.approx(losses(on_cpu), abs=2e-3)
    assert losses(run)[-1] < losses(run)[0]


def test_bf16_has_about_the_same_losses(word_store: Store, on_cpu: Run, tmp_path: Path, device: str) -> None:
    run = train(word_store, tmp_path / "run", device, precision="bf16")
    assert losses(run) == pytest.approx(losses(on_cpu), abs=0.05)


def test_an_evaluation_has_the_cpus_losses(word_store: Store, on_cpu: Run, device: str) -> None:
    ours, theirs = (
        xt.evaluate(
            on_cpu, data=word_store, factors=(1, 2, 4, 8, 16), extend=["pi", "rerope"], max_targets=512, device=where
        )
        for where in ("cpu", device)
    )
    key = ["extension", "protocol", "factor"]
    both = ours.merge(theirs, on=key, suffixes=("", "_there"))
    assert len(both) == len(ours)
    assert both["loss_there"].tolist() == pytest.approx(both["loss"].tolist(), abs=1e-4)


def test_a_stopped_training_goes_on_exactly(
    word_store: Store, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(word_store, tmp_path / "whole", device)

    def stop(self: Any, what: str, inputs: float) -> None:
        if self.last.get("step") == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("extrapolate.api.training.Shown.advance", stop)
        with pytest.raises(KeyboardInterrupt):
            train(word_store, tmp_path / "stopped", device, save_every=BATCH)
    resumed = train(word_store, tmp_path / "stopped", device, resume=True)
    one, other = (load_file(run.path / "model.safetensors") for run in (whole, resumed))
    assert all(one[name].equal(other[name]) for name in one)
