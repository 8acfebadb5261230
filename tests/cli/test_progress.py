"""What commands tell of their progress: plain lines where stderr is not a terminal, a bar where it is."""

import os
import re

import pytest

from extrapolate import terminal

CONTROL = re.compile(r"[\r\x1b\x08]")


@pytest.fixture
def every_line(monkeypatch):
    """No update is too soon for a line."""
    monkeypatch.setattr(terminal, "PLAIN_EVERY_S", 0.0)
    monkeypatch.setattr(terminal, "PLAIN_LAST_S", 0.0)


def test_training_tells_of_every_forward_pass_and_of_validation(cli, tiny, every_line, tmp_path):
    (tmp_path / "small.toml").write_text("[training]\nmicro_batch_tokens = 512\n")
    flags = [*tiny, "--config", "small.toml", "--batch-tokens", "5120"]  # one step of ten passes
    ended = cli("train", "--pe", "rope", *flags).succeeded()
    assert ended.out == ""
    assert not CONTROL.search(ended.err)
    lines = ended.err.splitlines()
    shares = [int(line.split("%")[0].split()[-1]) for line in lines if "%" in line]
    assert shares == sorted(shares)
    assert set(range(0, 101, 10)) <= set(shares)
    within = [line for line in lines if "%" in line and "step" not in line]
    assert len(within) >= 10
    assert all("tokens/s" in line and " left" in line for line in within[1:])
    assert any(", validating: 100%" in line for line in lines)
    assert re.search(r"100%  step 1/1  loss \d\.\d{3}  val \d\.\d{3}", ended.err)


def test_a_resumed_training_begins_where_it_stopped(cli, tiny, every_line, state_of_half):
    lines = cli("train", "--resume", "--out", "half").succeeded().err.splitlines()
    assert lines[0].startswith("training half on cpu in ")
    assert lines[1].startswith("half: 40%")


def test_evaluating_shows_the_share_of_the_whole_command(cli, ckpt, every_line):
    flags = ["--factors", "1,2", "--max-targets", "256", "--extend", "temperature", "--precision", "fp32,bf16"]
    ended = cli("eval-lengths", ckpt / "rope", ckpt / "learned", *flags, "--probes", "needle", "--probe-trials", 2)
    assert not CONTROL.search(ended.err + ended.out)
    assert "100%" not in ended.out
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
        drawn = os.read(main_end, 1_000_000).decode(errors="ignore")  # a character can be cut in two
    finally:
        os.close(main_end)
        os.close(program_end)
    assert "\x1b[" in drawn
    assert "\x1b]" not in drawn
    assert "wrote store[bold]\\x1b]0;x" in drawn
