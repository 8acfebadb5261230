"""Two and four real processes, over gloo: they train and evaluate as one does."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import extrapolate as xt
from extrapolate.cli import main

STEPS = 6
# The rate is low: AdamW makes a whole step of what is rounding in a gradient near 0.
# Seven windows a step, which neither two nor four processes can share evenly, in passes of two.
CONFIG = """
[model]
width = 16
layers = 2
heads = 2
head_dim = 8
ff_width = 24
qkv_bias = true
dropout = {dropout}
[training]
seq_len = 16
batch_tokens = 112
micro_batch_tokens = 32
tokens = 672
lr = 2e-3
precision = "fp32"
device = "cpu"
compile = false
"""
DRAWN = "pose:base=fire,curriculum=0.9"
EVALUATION = ["--factors", "1,2", "--max-targets", "1024", "--extend", "pi", "--probes", "mqar", "--probe-trials", "8"]


@dataclass
class Together:
    """How commands ended in several processes: exit codes by process and command, and the errors of each command."""

    codes: list[list[int]]
    errors: list[list[str]]


def run_together(count: int, commands: list[dict[str, Any]], folder: Path, cwd: Path) -> Together:
    """Runs commands one after the other, each in so many processes."""
    folder.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("together.py")), str(count), str(folder)]
    ended = subprocess.run(
        program, input=json.dumps(commands), capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )
    said = [(folder / f"err-{n}").read_text() if (folder / f"err-{n}").exists() else "" for n in range(len(commands))]
    assert ended.returncode == 0, ended.stderr + "\n".join(said)
    assert not any("Traceback" in text or "Warning" in text for text in said), said
    return Together(
        json.loads(ended.stdout.splitlines()[-1]),
        [[line for line in text.splitlines() if line.startswith("Error")] for text in said],
    )


def alone(*arguments: object) -> None:
    """Runs a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert not ended.value.code, arguments


@pytest.fixture(scope="module")
def work(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: `one` of one process; then those of two processes, and of four."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, dropout in (("plain", 0.0), ("dropout", 0.3)):
        (folder / f"{name}.toml").write_text(CONFIG.format(dropout=dropout))
    alone("train", "--pe", "fire", "--data", store, "--config", folder / "plain.toml", "--out", folder / "one")
    return folder


def training(store: Path, out: str, *more: str, config: str = "plain", pe: str = "fire") -> list[str]:
    return ["train", "--pe", pe, "--data", str(store), "--config", f"{config}.toml", "--out", out, *more]


@pytest.fixture(scope="module")
def two(work: Path, store: Path) -> Together:
    """What two processes did."""
    shutil.copytree(work / "one", work / "evaluated-by-two")
    commands: list[dict[str, Any]] = [
        {"argv": training(store, "ddp-2")},
        {"argv": training(store, "ddp-stopped"), "stop_at": 3},
        {"argv": training(store, "dropout", config="dropout", pe=DRAWN)},
        {"argv": training(store, "dropout-stopped", config="dropout", pe=DRAWN), "stop_at": 3},
        {"argv": training(store, "dropout-stopped", "--resume", config="dropout", pe=DRAWN)},
        {"argv": ["eval-lengths", "evaluated-by-two", *EVALUATION]},
        {"argv": training(store, "one")},
    ]
    done = run_together(2, commands, work / "two", work)
    shutil.copytree(work / "ddp-stopped", work / "ddp-stopped-to-resume")
    return done


@pytest.fixture(scope="module")
def four(work: Path, store: Path, two: Together) -> Together:
    """What four processes did, after those two."""
    commands: list[dict[str, Any]] = [
        {"argv": training(store, "ddp-4")},
        {"argv": training(store, "ddp-stopped", "--resume")},
    ]
    return run_together(4, commands, work / "four", work)


def rows(run: Path, kind: str) -> list[dict[str, float]]:
    """Those rows of metrics.jsonl that have a loss, or a val_loss."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in found if kind in row]


def check_same_training(run: Path, one: Path) -> None:
    """The same curves and weights, but for rounding."""
    assert [row["step"] for row in rows(run, "loss")] == list(range(1, STEPS + 1))
    for kind in ("loss", "val_loss"):
        assert [row[kind] for row in rows(run, kind)] == pytest.approx([row[kind] for row in rows(one, kind)], abs=1e-5)
    norms = [[row["grad_norm"] for row in rows(path, "loss")] for path in (run, one)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    ours, expected = (load_file(path / "model.safetensors") for path in (run, one))
    assert set(ours) == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("two", "four")
@pytest.mark.parametrize("name", ["ddp-2", "ddp-4", "ddp-stopped"])
def test_several_processes_train_as_one(work: Path, name: str) -> None:
    """Two, four, and four that continue what two began."""
    check_same_training(work / name, work / "one")
    assert {path.name for path in (work / name).iterdir()} == {path.name for path in (work / "one").iterdir()}


def test_the_commands_end_as_they_should(two: Together, four: Together) -> None:
    """Where one process is asked to stop, all stop after the same step; what is wrong is said once."""
    assert two.codes == [[0, 130, 0, 130, 0, 0, 2]] * 2
    assert four.codes == [[0] * 2] * 4
    for command, message in (
        *((number, f"stopped after step 3 of {STEPS}") for number in (1, 3)),
        (6, "one already holds a run; continue it with --resume"),
    ):
        assert len(two.errors[command]) == 1
        assert message in two.errors[command][0]


def test_the_configuration_is_that_of_one_process(work: Path, two: Together) -> None:
    one, ours = (json.loads((work / name / "config.json").read_text()) for name in ("one", "ddp-2"))
    assert one["config"] == ours["config"]
    assert ("processes" in one["provenance"], ours["provenance"]["processes"]) == (False, 2)


def test_one_process_continues_what_two_began(work: Path, two: Together) -> None:
    run = work / "ddp-stopped-to-resume"
    alone("train", "--out", run, "--resume")
    check_same_training(run, work / "one")


def test_as_many_processes_continue_to_the_same_bits_with_dropout_and_drawn_positions(
    work: Path, two: Together
) -> None:
    whole, resumed = ((work / name / "model.safetensors").read_bytes() for name in ("dropout", "dropout-stopped"))
    assert whole == resumed
    losses = [[row["loss"] for row in rows(work / name, "loss")] for name in ("dropout", "one")]
    assert losses[0] != pytest.approx(losses[1], abs=1e-3)


def test_two_processes_evaluate_as_one(work: Path, two: Together, tmp_path: Path) -> None:
    """The same tables, bit for bit."""
    one = shutil.copytree(work / "one", tmp_path / "one")
    alone("eval-lengths", one, *EVALUATION)
    for table in ("losses", "documents", "probes"):
        expected, found = (xt.rows(path, table) for path in (one, work / "evaluated-by-two"))
        measured = [name for name in ("run", "tokens_per_s", "peak_mib", "evaluated_at") if name in found]
        assert len(found) > 3
        pd.testing.assert_frame_equal(found.drop(columns=measured), expected.drop(columns=measured), check_exact=True)
