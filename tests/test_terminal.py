"""Progress: plain lines where stderr is not a terminal, a bar where it is."""

import re

import pytest

from extrapolate import terminal as module
from extrapolate.terminal import ProgressBar, duration, say

CONTROL = re.compile(r"[\r\x1b\x08]")


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when told to."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def every_line(monkeypatch):
    """No update is too soon for a line."""
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.0)
    monkeypatch.setattr(module, "PLAIN_LAST_S", 0.0)


def test_a_stop_from_the_keyboard_carries_what_is_said(clock):
    with pytest.raises(KeyboardInterrupt) as stop, ProgressBar("tokens", stopped="stopped; nothing is lost"):
        raise KeyboardInterrupt
    assert stop.value.__notes__ == ["stopped; nothing is lost"]


def test_what_is_told_moves_no_cursor(capsys, clock, every_line):
    name = "\x1b[2J[red]x\r\n\ud800"
    with ProgressBar(name) as progress:
        progress.update(name, 0, 10)
    say(name)
    assert not CONTROL.search(capsys.readouterr().err)
    say(name)
    assert capsys.readouterr().err == "\\x1b[2J[red]x\\r\\n\\ud800\n"


def test_plain_lines_are_rare_and_the_last_is_shown(capsys, clock):
    """None is of what is done at once; nothing goes to stdout."""
    with ProgressBar("tokens") as progress:
        progress.update("rope", 0, 1000)
        clock[0] += 0.5
        progress.update("rope", 1000, 1000)
    assert capsys.readouterr().err == ""
    clock[0] = 1000.0
    with ProgressBar("tokens") as progress:
        for second in range(11):
            clock[0] = 1000.0 + second
            progress.update("rope", 100 * second, 1000)
    written = capsys.readouterr()
    assert [line.split()[1].rstrip("%") for line in written.err.splitlines()] == ["50", "100"]
    assert all(line.startswith("rope: ") for line in written.err.splitlines())
    assert written.out == ""


def test_a_part_without_a_total_starts_its_own_rate(capsys, clock):
    with ProgressBar("characters") as progress:
        progress.update("first", 0)
        clock[0] += 1
        progress.update("first", 100)
        clock[0] += 100
        progress.update("second", 0)
        clock[0] += 10
        progress.update("second", 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("second: 100 characters")
    assert "10 characters/s" in lines[-1]


def test_share_and_time_left_are_of_the_whole_and_the_part_is_named(capsys, clock):
    with ProgressBar("tokens") as progress:
        progress.update("first", 5000, 10_000)  # resumed: what was done before is no part of the rate
        clock[0] += 10
        progress.update("first", 6000, 10_000, "loss 4.000")
        progress.update("second", 6000, 10_000)
        clock[0] += 10
        progress.update("second", 7000, 10_000)
    lines = [line for line in capsys.readouterr().err.splitlines() if "%" in line]
    assert lines == ["first: 60%  loss 4.000  100 tokens/s  40 s left", "second: 70%  100 tokens/s  30 s left"]


@pytest.mark.parametrize(
    ("total", "updates", "said"),
    [
        (5000, [(second, 10 * second) for second in range(30)], ["this takes about 8 min"]),
        (30_000, [(second, second) for second in range(32)], ["this takes about 8 h 20 min"]),  # very slowly
        # Processes that take seconds to start, and then do thousands in a second.
        (30_000, [(0, 0), (4, 10), (5, 15_000), (6, 30_000)], []),
    ],
)
def test_how_long_the_whole_takes_is_said_once_as_soon_as_a_rate_is_known(capsys, clock, total, updates, said):
    with ProgressBar("tokens") as progress:
        for second, done in updates:
            clock[0] = 1000.0 + second
            progress.update("rope", done, total)
    assert [line for line in capsys.readouterr().err.splitlines() if "about" in line] == said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (420, "7 min"), (7800, "2 h 10 min"), (273_600, "3 d 4 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
