"""kill -9 and Ctrl-C, for real: what was done is kept, and the end is as if nothing had happened.

test_kill_anywhere kills the same commands at any system call.
"""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from extrapolate import results
from extrapolate.cli import main

STEPS = 100
DROPOUT = """
[model]
width = 64
layers = 1
heads = 2
head_dim = 32
ff_width = 64
dropout = 0.2
"""
# Kills itself at the n-th flush to disk, where a file is written under its temporary name and not yet renamed.
KILLED_AT_FLUSH = """
import os, signal, sys
from extrapolate.cli import main
flush, left = os.fsync, [int(sys.argv.pop(1))]
def fsync(descriptor):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(descriptor)
os.fsync = fsync
main()
"""


def wait_until(reached: Callable[[], bool], process, seconds: float = 60.0) -> None:
    """Polls a running process's files."""
    end = time.monotonic() + seconds
    while not reached():
        assert process.poll() is None, f"the process ended before it was killed: {process.communicate()}"
        assert time.monotonic() < end
        time.sleep(0.002)


def run_to_the_end(*arguments: object) -> None:
    """Runs a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert not ended.value.code


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(process) -> None:
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL


def stop(process) -> None:
    """Ctrl-C."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def check_metrics(run: Path) -> None:
    """Each step once, in order, and the same losses as a run that nothing disturbed would have logged."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, STEPS + 1))
    assert [row["step"] for row in rows if "val_loss" in row] == list(range(STEPS // 10, STEPS + 1, STEPS // 10))
    table = pd.read_parquet(run / "metrics.parquet")
    assert table["step"].tolist() == [row["step"] for row in rows]


def losses(run: Path) -> list[tuple[int, float | None, float | None]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row.get("loss"), row.get("val_loss")) for row in rows]


@pytest.fixture(scope="module")
def longer(tiny) -> list[str]:
    """Flags of a run long enough to be killed on its way, a second or so."""
    return [*tiny, "--tokens", str(512 * STEPS), "--keep-every", "25600"]


@pytest.fixture(scope="module")
def undisturbed(longer, tmp_path_factory) -> Path:
    """Runs of `longer` that nobody killed: plain, and with dropout."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "dropout.toml").write_text(DROPOUT)
    for name, more in (("plain", []), ("dropout", ["--config", folder / "dropout.toml"])):
        run_to_the_end("train", "--pe", "rope", *longer, *more, "--out", folder / name)
    return folder


class TestTrain:
    def test_killed_twice_and_resumed_it_ends_with_the_same_bits(
        self, start, cli, longer, undisturbed, leftovers, tmp_path
    ):
        run, name = tmp_path / "run", "dropout"
        flags = ["--config", str(undisturbed / "dropout.toml")]
        # Not a divisor of the steps: a kill loses some, which must be taken again.
        arguments = ["train", "--pe", "rope", *longer, *flags, "--save-every", 512 * 7, "--out", "run"]
        process = start(*arguments)
        wait_until(lambda: (run / "state.safetensors").exists(), process)
        kill(process)
        assert not (run / "model.safetensors").exists()
        first = lines_in(run / "metrics.jsonl")
        with (run / "metrics.jsonl").open("ab") as file:  # what a kill while writing leaves
            file.write(b'{"step": 99, "tok')
        process = start(*arguments, "--resume")
        wait_until(lambda: lines_in(run / "metrics.jsonl") > max(first, 60), process)
        kill(process)
        assert not (run / "model.safetensors").exists()
        cli(*arguments, "--resume").succeeded()
        assert weights(run) == weights(undisturbed / name)
        kept = sorted(path.name for path in (undisturbed / name / "checkpoints").iterdir())
        assert sorted(path.name for path in (run / "checkpoints").iterdir()) == kept
        for file in kept:
            assert (run / "checkpoints" / file).read_bytes() == (undisturbed / name / "checkpoints" / file).read_bytes()
        check_metrics(run)
        assert losses(run) == losses(undisturbed / name)
        assert not (run / "state.safetensors").exists()
        assert not leftovers(run)

    def test_dropout_draws_from_the_saved_generator(self, undisturbed):
        """Else the test above would pass without it."""
        assert losses(undisturbed / "dropout") != losses(undisturbed / "plain")

    def test_a_stop_request_saves_and_says_so(self, start, cli, longer, undisturbed, leftovers, tmp_path):
        run = tmp_path / "run"
        arguments = ["train", "--pe", "rope", *longer, "--out", "run"]
        process = start(*arguments)
        wait_until(lambda: lines_in(run / "metrics.jsonl") > 20, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        last = err.splitlines()[-1]
        assert last.startswith("Error: stopped after step ")
        assert "--resume" in last
        step = int(last.split("step ")[1].split()[0])
        assert step >= 20
        assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == step
        assert not leftovers(run)
        cli(*arguments, "--resume").succeeded()
        assert weights(run) == weights(undisturbed / "plain")
        check_metrics(run)


@pytest.fixture(scope="module")
def flags(make_corpus, tmp_path_factory) -> list[object]:
    """Arguments of `tokenize` for enough text that it takes a while."""
    larger = make_corpus(tmp_path_factory.mktemp("larger") / "larger", documents=60, words_each=10_000, seed=1)
    return ["tokenize", larger, "--vocab-size", 400, "--min-heldout-tokens", 300, "--out"]


@pytest.fixture(scope="module")
def whole_store(flags, tmp_path_factory) -> Path:
    """What they make without disturbance."""
    out = tmp_path_factory.mktemp("whole") / "new"
    run_to_the_end(*flags, out)
    return out


class TestTokenize:
    def test_killed_midway_the_next_call_makes_the_same_store(
        self, start, cli, flags, whole_store, contents, leftovers, tmp_path
    ):
        process = start(*flags, "new")
        wait_until(lambda: (tmp_path / ".new.partial/train-00000.arrow").exists(), process)
        kill(process)
        assert not (tmp_path / "new").exists()
        assert leftovers(tmp_path)
        cli(*flags, "new").succeeded()
        assert contents(tmp_path / "new") == contents(whole_store)
        assert {path.name for path in tmp_path.iterdir()} == {"new"}

    def test_killed_before_the_store_has_its_name(self, process, cli, flags, whole_store, contents, tmp_path):
        ended = process(1, *flags, "new", program=[sys.executable, "-c", KILLED_AT_FLUSH])
        assert ended.code == -signal.SIGKILL
        assert {path.name for path in tmp_path.iterdir()} == {".new.partial", ".new.lock"}
        cli(*flags, "new").succeeded()
        assert contents(tmp_path / "new") == contents(whole_store)
        assert {path.name for path in tmp_path.iterdir()} == {"new"}

    def test_stopped_while_it_learns_the_words_it_leaves_nothing(self, start, flags, tmp_path):
        process = start(*flags, "new")
        wait_until(lambda: (tmp_path / ".new.partial").exists(), process)
        stop(process)
        assert not list(tmp_path.iterdir())

    def test_stopped_later_the_next_call_goes_on(self, start, cli, flags, whole_store, contents, tmp_path):
        process = start(*flags, "new")
        wait_until(lambda: (tmp_path / ".new.partial/progress.json").exists(), process)
        stop(process)
        assert {path.name for path in tmp_path.iterdir()} == {".new.partial"}
        cli(*flags, "new").succeeded()
        assert contents(tmp_path / "new") == contents(whole_store)


EVALUATION = ("--factors", "1,2,4", "--extend", "pi", "--max-targets", "512", "--checkpoint", "all")


@pytest.fixture(scope="module")
def whole_run(trained, tmp_path_factory) -> Path:
    """A run, evaluated without disturbance."""
    run = tmp_path_factory.mktemp("whole") / "rope"
    shutil.copytree(trained / "rope", run)
    run_to_the_end("eval-lengths", run, *EVALUATION)
    return run


def rows_of(run: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables in the order of their keys, without what a clock decides."""
    evals = pd.DataFrame(results.read(run / "evals.parquet", results.EVALS)).drop(
        columns=["tokens_per_s", "peak_mib", "evaluated_at"]
    )
    documents = pd.DataFrame(results.read(run / "eval_documents.parquet", results.EVAL_DOCUMENTS))
    place = [*results.EVAL_DOCUMENTS.key, "document", "block", "position"]
    frames = evals.sort_values(list(results.EVALS.key)), documents.sort_values(place)
    return frames[0].reset_index(drop=True), frames[1].reset_index(drop=True)


class TestEvalLengths:
    @staticmethod
    def check_same(run: Path, whole: Path) -> None:
        for ours, theirs in zip(rows_of(run), rows_of(whole), strict=True):
            pd.testing.assert_frame_equal(ours, theirs, check_exact=True)

    def test_killed_midway_the_next_call_gives_the_same_rows(self, start, cli, ckpt, whole_run, leftovers):
        process = start("eval-lengths", ckpt / "rope", *EVALUATION)
        wait_until((ckpt / "rope/eval_documents.parquet").exists, process)
        kill(process)
        written = pd.DataFrame(results.read(ckpt / "rope/eval_documents.parquet", results.EVAL_DOCUMENTS))
        assert len(written) < len(rows_of(whole_run)[1])
        cli("eval-lengths", ckpt / "rope", *EVALUATION).succeeded()
        self.check_same(ckpt / "rope", whole_run)
        assert not leftovers(ckpt)

    def test_stopped_by_the_user(self, start, ckpt, leftovers):
        process = start("eval-lengths", ckpt / "rope", *EVALUATION)
        wait_until((ckpt / "rope/evals.parquet").exists, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert not leftovers(ckpt)
