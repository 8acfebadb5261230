"""The log of a training: what a resumed training keeps of it, and that it is the one that the state knows."""

import json
from pathlib import Path

import pytest

from extrapolate.errors import UserError
from extrapolate.training.log import Log, rows_in

ROWS = [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, int, str]:
    """A log, and its length and hash after two rows: the third was not saved."""
    log = Log(tmp_path / "metrics.jsonl")
    with log:
        for row in ROWS[:2]:
            log.add(row)
        log.sync()
        saved = log.bytes, log.sha256
        log.add(ROWS[2])
    return log.path, *saved


def test_a_damaged_line_is_no_fault_of_the_program(stopped: tuple[Path, int, str]) -> None:
    stopped[0].write_text(stopped[0].read_text() + "secret\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: .*; restore it, or train again"):
        rows_in(stopped[0])


def test_what_was_saved_is_kept_and_the_rest_is_logged_again(stopped: tuple[Path, int, str]) -> None:
    path, length, sha256 = stopped
    path.write_text(path.read_text() + '{"step": 4, "lo')  # as a kill leaves it
    log = Log(path)
    log.continue_at(length, sha256)
    with log:
        log.add(ROWS[2] | {"loss": 0.25})
    assert rows_in(path) == [*ROWS[:2], {"step": 3, "loss": 0.25}]
    assert log.bytes == path.stat().st_size


@pytest.mark.parametrize(
    "damage",
    [lambda text: "null\n" + text, lambda text: text.replace("0.5", "0.4"), lambda _: ""],
    ids=["null", "another", "empty"],
)
def test_a_log_that_was_changed_is_refused_and_stays(stopped: tuple[Path, int, str], damage) -> None:
    path, length, sha256 = stopped
    path.write_text(changed := damage(path.read_text()))
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged, or was changed by hand, since the state"):
        Log(path).continue_at(length, sha256)
    assert path.read_text() == changed


def test_what_another_program_writes_meanwhile_is_seen(tmp_path: Path) -> None:
    log = Log(tmp_path / "metrics.jsonl")
    with log:
        log.add(ROWS[0])
        with log.path.open("a") as other:
            other.write(json.dumps(ROWS[1]) + "\n")
        log.add(ROWS[2])
    with pytest.raises(UserError, match="was changed while the training ran"):
        log.check()


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="damaged"):
        Log(tmp_path / "metrics.jsonl").continue_at(10, "0" * 64)
