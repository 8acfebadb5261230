"""Progress: plain lines where stderr is not a terminal, a bar where it is."""

import os
import re
import sys

import pytest

from extrapolate.cli import progress as module
from extrapolate.cli.progress import Progress, say

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


def test_what_is_done_at_once_gets_no_line(capsys, clock):
    with Progress("tokens") as progress:
        progress.update("rope", 0, 1000)
        clock[0] += 0.5
        progress.update("rope", 1000, 1000)
    assert capsys.readouterr().err == ""


def test_a_stop_from_the_keyboard_is_said(capsys, clock):
    with pytest.raises(KeyboardInterrupt), Progress("tokens", stopped="stopped; nothing is lost"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "stopped; nothing is lost\n"


def test_plain_lines_are_rare_and_the_last_is_shown(capsys, clock):
    with Progress("tokens") as progress:
        for second in range(11):
            clock[0] = 1000.0 + second
            progress.update("rope", 100 * second, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1].rstrip("%") for line in lines] == ["50", "100"]
    assert all(line.startswith("rope: ") for line in lines)


def test_plain_lines_say_the_rate_and_the_time_left(capsys, clock):
    with Progress("tokens") as progress:
        progress.update("rope", 0, 10_000)
        clock[0] += 10
        progress.update("rope", 2000, 10_000, "loss 4.000")
    last = capsys.readouterr().err.splitlines()[-1]
    assert "20%" in last
    assert "loss 4.000" in last
    assert "200 tokens/s" in last
    assert "40 s left" in last


def test_an_unknown_total_is_counted_in_units(capsys, clock):
    with Progress("characters") as progress:
        progress.update("reading", 0)
        clock[0] += 10
        progress.update("reading", 12_345)
    assert "12,345 characters" in capsys.readouterr().err.splitlines()[-1]


def test_a_new_thing_starts_its_own_rate(capsys, clock):
    with Progress("tokens") as progress:
        progress.update("first", 0, 100)
        clock[0] += 1
        progress.update("first", 100, 100)
        clock[0] += 100
        progress.update("second", 0, 100)
        clock[0] += 10
        progress.update("second", 100, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("second: 100%")
    assert "10 tokens/s" in lines[-1]


def test_nothing_goes_to_stdout(capsys, clock):
    with Progress("tokens") as progress:
        progress.update("rope", 1, 1)
    say("done")
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.splitlines()[-1] == "done"


def test_training_writes_plain_lines_and_leaves_stdout_alone(cli, tiny, every_line):
    ended = cli("train", "--pe", "none", *tiny).succeeded()
    assert ended.out == ""
    assert not CONTROL.search(ended.err)
    shown = [line for line in ended.err.splitlines() if "step 10/10" in line]
    assert shown
    assert "100%" in shown[-1]
    assert re.search(r"loss \d\.\d{3}", shown[-1])
    assert re.search(r"val \d\.\d{3}", shown[-1])


def test_evaluating_keeps_progress_apart_from_the_tables(cli, ckpt, every_line):
    ended = cli("eval-lengths", ckpt / "rope", "--factors", "1,2", "--max-targets", "256").succeeded()
    assert not CONTROL.search(ended.err + ended.out)
    assert "100%" in ended.err
    assert "100%" not in ended.out


def test_a_terminal_gets_a_bar(start, corpus):
    main_end, program_end = os.openpty()
    try:
        # The library that draws the bar asks for the terminal's kind.
        begun = start(
            "tokenize", corpus, "--vocab-size", 300, "--min-heldout-tokens", 300, "--out", "store",
            stderr=program_end, env=os.environ | {"TERM": "xterm-256color"},
        )  # fmt: skip
        assert begun.wait(timeout=60) == 0
        os.set_blocking(main_end, False)
        drawn = os.read(main_end, 1_000_000).decode()
    finally:
        os.close(main_end)
        os.close(program_end)
    assert "\x1b[" in drawn
    assert "wrote store" in drawn


def test_the_tests_see_no_terminal():
    # What the tests above rest on.
    assert not sys.stderr.isatty()
