"""Several models at once: their folders, and what is refused before anything is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.runs.run import Run


def test_every_seed_and_learning_rate_has_its_folder(cli: Callable, tiny: list[str], tmp_path: Path) -> None:
    flags = ["train", "--pe", "expe", *tiny, "--seeds", "0,2", "--lrs", "1e-3,3e-3", "--out", "many"]
    outcome = cli(*flags).succeeded()
    assert "evaluate them with: extrapolate eval-lengths many" in outcome.err
    runs = {path.name: Run.open(path) for path in (tmp_path / "many").iterdir()}
    assert set(runs) == {f"expe-L16-s{seed}-lr{lr}" for seed in (0, 2) for lr in ("0.001", "0.003")}
    for name, run in runs.items():
        training = run.trained.training
        assert run.finished
        assert name == f"expe-L16-s{training.seed}-lr{training.lr:g}"
    before = {name: run.checkpoints("last")[0].sha256 for name, run in runs.items()}
    assert "already holds a run" in cli(*flags).error()
    assert "all 4 runs are already finished" in cli(*flags, "--resume").succeeded().err
    assert before == {name: Run.open(run.path).checkpoints("last")[0].sha256 for name, run in runs.items()}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "0,x"], "--seeds 0,x: give numbers with commas between them, such as 1,2,3"),
        (["--seeds", ""], "--seeds : give numbers"),
        (["--lrs", "1e-3,1e-3"], "name at least one of --lrs, and each once"),
        (["--seeds", "0,1", "--seed", "3"], "--seeds and --lrs cannot be combined with --seed"),
        (["--lrs", "1e-3", "--from", "other"], "--seeds and --lrs cannot be combined with --from"),
        (["--seeds", "0,1", "--pe", "random"], "Random"),
        (["--seeds", "0,1", "--preset", "expe-35m"], "several models at once train without dropout"),
    ],
)
def test_what_is_refused_writes_nothing(
    cli: Callable, tiny: list[str], tmp_path: Path, flags: list[str], message: str
) -> None:
    assert message in cli("train", "--pe", "rope", *tiny, *flags, "--out", "many").error()
    assert not (tmp_path / "many").exists()


def test_several_processes_do_not_train_several_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extrapolate.api.train_many.processes", lambda: 2)
    with pytest.raises(xt.UserError, match="without torchrun"):
        xt.train_many("rope", seeds=[0, 1], seq_len=16)
