"""What a person sees in a terminal, and what goes elsewhere: lines of blocks, colours, and what to do next."""

import io
import re

import pandas as pd
import pytest

from extrapolate.cli.render import print_table, sparklines
from extrapolate.terminal import ProgressBar

COLOUR = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
LOSSES = pd.DataFrame(
    {
        "Model": ["RoPE", "ALiBi", "Learned", "Diverged"],
        "Loss (ev=1)": ["4.000", "4.000", "4.100", "4.000"],
        "Loss (ev=2)": ["5.000", "4.000", "n/a", "50.000"],
        "Loss (ev=4)": ["6.000", "4.100", "n/a", "inf"],
        "Seeds": ["3"] * 4,
    }
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Called: from then on stdout and stderr are a terminal, 80 characters wide, which is returned."""

    def begin():
        made = Terminal()
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr("sys.stdout", made)
        monkeypatch.setattr("sys.stderr", made)
        return made

    return begin


def test_losses_by_length_are_drawn_in_a_terminal_on_one_scale(terminal):
    screen = terminal()
    print_table(LOSSES, "windows")
    shown = STYLE.sub("", screen.getvalue())
    rows = [line.split() for line in shown.splitlines()]
    lines = {row[0]: row[1] for row in rows if row and row[0] in set(LOSSES["Model"])}
    assert lines == {"RoPE": "▁▅█", "ALiBi": "▁▁▁", "Learned": "▁··", "Diverged": "▁██"}  # 6 nats is 2 above the least


def test_elsewhere_nothing_is_drawn_and_no_code_is_sent(capsys, terminal, monkeypatch):
    print_table(LOSSES, "windows")
    with ProgressBar("tokens") as progress:
        progress.update("training", 2, 2)
    written = capsys.readouterr()
    assert not set("▁▄█·\x1b") & set(written.out + written.err)
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    screen = terminal()
    print_table(LOSSES, "windows")
    assert not set("▁▄█·") & set(screen.getvalue())


def test_only_losses_at_several_lengths_are_drawn():
    for table in (
        {"Model": ["a"], "Loss (ev=1)": ["4.0"]},  # one length has no shape
        {"Model": ["a"], "ev=1": ["0.01"], "ev=2": ["0.02"]},  # a spread over seeds
        {"Model": ["a"], "Accuracy (ev=1)": ["0.1"], "Accuracy (ev=2)": ["0.2"]},
        {"Model": ["a"], "Loss (ev=1)": ["n/a"], "Loss (ev=2)": ["n/a"]},
    ):
        assert sparklines(pd.DataFrame(table)) is None
    small = {"run": ["a", "b"], "ev=1": ["4.000", "4.010"], "ev=2": ["4.010", "4.100"], "control": ["4.0"] * 2}
    assert sparklines(pd.DataFrame(small)) == ["▁▂", "▂█"]


@pytest.mark.parametrize("no_color", [True, False])
def test_nothing_is_coloured_where_the_user_wants_no_colour(terminal, monkeypatch, no_color):
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal()
    print_table(LOSSES, "windows")
    with ProgressBar("tokens") as progress:
        progress.update("training", 1, 2)
    written = screen.getvalue()
    assert "training" in written
    assert bool(COLOUR.search(written)) != no_color


def test_a_command_says_what_to_do_next(cli, ckpt, tiny):
    few = ["--factors", "1", "--max-targets", "256", "--protocol", "windows"]
    ended = cli("eval-lengths", ckpt / "rope", ckpt / "none", *few, "--json").succeeded()
    assert ended.err.splitlines()[-1] == f"make a report with: extrapolate report {ckpt}/rope {ckpt}/none"
    ended = cli("train", "--pe", "none", *tiny, "--tokens", 512, "--out", "a run").succeeded()
    assert ended.err.splitlines()[-1] == "evaluate it with: extrapolate eval-lengths 'a run'"
