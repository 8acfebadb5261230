"""kill -9 and full disks: the same command then ends as if nothing was."""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt

KILLS = int(os.environ.get("EXTRAPOLATE_KILLS", "2"))
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


def wait_until(reached: Callable[[], bool], process, seconds: float = 60.0) -> None:
    """Polls a running process's files."""
    end = time.monotonic() + seconds
    while not reached():
        assert process.poll() is None, f"the process ended before it was killed: {process.communicate()}"
        assert time.monotonic() < end
        time.sleep(0.002)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(process) -> None:
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL


def weights(run: Path) -> dict[str, bytes]:
    """The final ones, and those that were kept along the way."""
    return {path.name: path.read_bytes() for path in [run / "model.safetensors", *(run / "checkpoints").iterdir()]}


def metrics(run: Path) -> list[tuple[int, float | None, float | None]]:
    """The steps, in order, with their losses."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, STEPS + 1))
    assert pd.read_parquet(run / "metrics.parquet")["step"].tolist() == [row["step"] for row in rows]
    return [(row["step"], row.get("loss"), row.get("val_loss")) for row in rows]


def test_a_training_with_dropout_that_is_killed_twice_ends_with_the_same_bits(start, cli, tiny, leftovers, tmp_path):
    (tmp_path / "dropout.toml").write_text(DROPOUT)
    longer = ["train", "--pe", "rope", *tiny, "--tokens", str(512 * STEPS), "--keep-every", "25600"]
    longer += ["--config", "dropout.toml"]
    cli(*longer, "--out", "whole").succeeded()
    whole, run = tmp_path / "whole", tmp_path / "run"
    # Not a divisor of the steps: a kill loses some, which must be taken again.
    arguments = [*longer, "--save-every", 512 * 7, "--out", "run"]
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
    assert weights(run) == weights(whole)
    assert metrics(run) == metrics(whole)
    assert not (run / "state.safetensors").exists()
    assert not leftovers(run)


def test_a_tokenisation_that_is_killed_goes_on_to_the_same_store(start, cli, make_corpus, contents, tmp_path):
    larger = make_corpus(tmp_path / "larger", documents=60, words_each=10_000, seed=1)
    flags = ["tokenize", larger, "--vocab-size", 400, "--min-heldout-tokens", 300, "--out"]
    for reached in (".new.partial", ".new.partial/progress.json"):  # while it learns the words, and later
        process = start(*flags, "new")
        wait_until((tmp_path / reached).exists, process)
        kill(process)
        assert not (tmp_path / "new").exists()
    for out in ("new", "whole"):
        cli(*flags, out).succeeded()
    assert contents(tmp_path / "new") == contents(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"larger", "new", "whole"}


def test_an_evaluation_that_is_killed_leaves_whole_files_and_goes_on(start, cli, trained, leftovers, tmp_path):
    for name in ("whole", "killed"):
        shutil.copytree(trained / "rope", tmp_path / name)
    flags = ["--factors", "1,2,4", "--max-targets", "2048", "--extend", "pi", "--extend", "yarn", "--checkpoint", "all"]
    flags += ["--probes", "copy", "--probe-trials", "4"]
    cli("eval-lengths", "whole", *flags).succeeded()
    rng = random.Random(0)

    def files(run: str = "killed") -> list[Path]:
        return [*(tmp_path / run).glob("results/**/[!.]*.parquet")]

    for _ in range(KILLS):
        before = len(files())
        process = start("eval-lengths", "killed", *flags)
        wait_until(lambda before=before: len(files()) > before, process)
        time.sleep(rng.uniform(0, 0.1))
        kill(process)
        for path in files():
            assert len(pd.read_parquet(path))
    assert len(files()) < len(files("whole")), "it was killed before its end"
    cli("eval-lengths", "killed", *flags).succeeded()
    assert not leftovers(tmp_path / "killed")
    for table in ("losses", "documents", "probes"):
        one, other = (xt.rows(tmp_path / name, table) for name in ("whole", "killed"))
        measured = [name for name in ("run", "tokens_per_s", "peak_mib", "evaluated_at") if name in one]
        pd.testing.assert_frame_equal(one.drop(columns=measured), other.drop(columns=measured), check_exact=True)


@pytest.mark.parametrize("command", ["train", "tokenize"])
def test_a_full_disk_is_one_line_and_the_next_call_goes_on(command, start, cli, tiny, corpus, contents, tmp_path):
    """The system lets no file grow beyond a limit, which is what a full disk does to the largest."""
    arguments, limit = {
        "train": (["train", "--pe", "rope", *tiny, "--save-every", 512 * 3, "--resume"], 300_000),
        "tokenize": (["tokenize", corpus, "--vocab-size", 400, "--min-heldout-tokens", 300], 20_000),
    }[command]
    process = start(
        *arguments, "--out", "new", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("Error: File too large (")
    for out in ("new", "whole"):
        cli(*arguments, "--out", out).succeeded()
    varying = ("metrics.jsonl", "metrics.parquet", "config.json", ".source")  # the time of each step, and of the run
    new, whole = (
        {name: content for name, content in contents(tmp_path / out).items() if name not in varying}
        for out in ("new", "whole")
    )
    assert new == whole
