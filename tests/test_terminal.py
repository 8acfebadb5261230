"""Progress: plain lines where stderr is not a terminal, a bar where it is."""

import os
import re
import sys

import pytest

from extrapolate import terminal as module
from extrapolate.terminal import Progress, duration, say

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


def test_a_stop_from_the_keyboard_carries_what_is_said(clock):
    with pytest.raises(KeyboardInterrupt) as stop, Progress("tokens", stopped="stopped; nothing is lost"):
        raise KeyboardInterrupt
    assert stop.value.__notes__ == ["stopped; nothing is lost"]


def test_what_is_told_moves_no_cursor(capsys, clock, every_line):
    name = "\x1b[2J[red]x\r\n\ud800"
    with Progress(name) as progress:
        progress.update(name, 0, 10)
    say(name)
    assert not CONTROL.search(capsys.readouterr().err)
    say(name)
    assert capsys.readouterr().err == "\\x1b[2J[red]x\\r\\n\\ud800\n"


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


def test_a_part_without_a_total_starts_its_own_rate(capsys, clock):
    with Progress("characters") as progress:
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
    with Progress("tokens") as progress:
        progress.update("first", 0, 10_000)
        clock[0] += 10
        progress.update("first", 1000, 10_000)
        progress.update("second", 1000, 10_000)
        clock[0] += 10
        progress.update("second", 2000, 10_000)
    lines = [line for line in capsys.readouterr().err.splitlines() if "%" in line]
    assert lines == ["first: 10%  100 tokens/s  90 s left", "second: 20%  100 tokens/s  80 s left"]


def test_a_slow_start_is_not_taken_for_the_rate(capsys, clock):
    """Processes that take seconds to start, and then do thousands in a second."""
    with Progress("MB") as progress:
        progress.update("text", 0, 30_000)
        for second, done in ((4, 10), (5, 15_000), (6, 30_000)):
            clock[0] = 1000.0 + second
            progress.update("text", done, 30_000)
    assert "this takes about" not in capsys.readouterr().err


def test_what_goes_very_slowly_says_how_long_it_takes(capsys, clock):
    with Progress("MB") as progress:
        for second in range(32):
            clock[0] = 1000.0 + second
            progress.update("text", second, 30_000)
    assert "this takes about 8 h 20 min" in capsys.readouterr().err


def test_how_long_the_whole_takes_is_said_once_as_soon_as_a_rate_is_known(capsys, clock):
    with Progress("tokens") as progress:
        for second in range(30):
            clock[0] = 1000.0 + second
            progress.update("rope", 10 * second, 5000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "this takes about 8 min"
    assert sum("about" in line for line in lines) == 1


def test_what_was_done_before_is_no_part_of_the_rate(capsys, clock):
    with Progress("tokens") as progress:
        progress.update("rope", 9000, 10_000)  # resumed
        clock[0] += 10
        progress.update("rope", 9100, 10_000)
    assert "91%  10 tokens/s  90 s left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (420, "7 min"), (7800, "2 h 10 min"), (273_600, "3 d 4 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


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


def test_training_tells_of_every_forward_pass_and_of_validation(cli, tiny, every_line, tmp_path):
    (tmp_path / "small.toml").write_text("[training]\nmicro_batch_tokens = 512\n")
    flags = [*tiny, "--config", "small.toml", "--batch-tokens", "5120"]  # one step of ten passes
    lines = cli("train", "--pe", "rope", *flags).succeeded().err.splitlines()
    shares = [int(line.split("%")[0].split()[-1]) for line in lines if "%" in line]
    assert shares == sorted(shares)
    assert set(range(0, 101, 10)) <= set(shares)
    within = [line for line in lines if "%" in line and "step" not in line]
    assert len(within) >= 10
    assert all("tokens/s" in line and " left" in line for line in within[1:])
    assert any(", validating: 100%" in line for line in lines)


def test_a_resumed_training_begins_where_it_stopped(cli, tiny, every_line, state_of_half):
    lines = cli("train", "--resume", "--out", "half").succeeded().err.splitlines()
    assert lines[0].startswith("half: 40%")


def test_evaluating_shows_the_share_of_the_whole_command(cli, ckpt, every_line):
    flags = ["--factors", "1,2", "--max-targets", "256", "--extend", "temperature", "--precision", "fp32,bf16"]
    ended = cli("eval-lengths", ckpt / "rope", ckpt / "learned", *flags, "--probes", "needle", "--probe-trials", 2)
    lines = [line for line in ended.succeeded().err.splitlines() if "%" in line]
    shares = [int(line.split("%")[0].split()[-1]) for line in lines]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 100
    parts = [line.partition(":")[0] for line in lines]
    for part in ("rope windows RoPE", "rope fixed-target RoPE + ", "learned windows Learned"):
        assert any(name.startswith(part) for name in parts), part
    halfway = next(name for name, share in zip(parts, shares, strict=True) if share >= 90)
    assert halfway.startswith("learned")
    assert len([share for share in shares if share == 100]) <= 2


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
            "tokenize", corpus, "--vocab-size", 300, "--min-heldout-tokens", 300, "--out", "store[bold]\x1b]0;x",
            stderr=program_end, env=os.environ | {"TERM": "xterm-256color"},
        )  # fmt: skip
        assert begun.wait(timeout=60) == 0
        os.set_blocking(main_end, False)
        drawn = os.read(main_end, 1_000_000).decode()
    finally:
        os.close(main_end)
        os.close(program_end)
    assert "\x1b[" in drawn
    assert "\x1b]" not in drawn
    assert "wrote store[bold]\\x1b]0;x" in drawn


def test_the_tests_see_no_terminal():
    # What the tests above rest on.
    assert not sys.stderr.isatty()
