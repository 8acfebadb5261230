"""Tables fit the terminal: every word of a wide one is in a narrow one, whole, and no line is too long."""

import re
from collections import Counter

import pandas as pd
import pytest
from rich.cells import cell_len

from extrapolate.cli.render import PIPE_WIDTH, Column, Kind, fold, print_columns, print_line, print_table, print_text

WIDTHS = (44, 100)  # the narrowest that holds a family and the longest name
WIDE = 400


def words_of(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split() if set(word) != {"─"})


@pytest.mark.parametrize("command", ["encodings", "encodings rope", "compare --extensions"])
def test_tables_fit_and_every_word_is_whole(cli, monkeypatch, evaluated, command):
    def at_width(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        more = [evaluated] if "compare" in command else []
        return cli(*command.split(), *more).succeeded().out.splitlines()

    wide = words_of(at_width(WIDE))
    for width in WIDTHS:
        lines = at_width(width)
        assert max(map(cell_len, lines)) <= width
        found = words_of(lines)
        assert set(found) == set(wide), width
        assert not wide - found, width  # a part of a table that was split repeats names; nothing is missing


def test_into_a_pipe_a_table_is_as_wide_as_columns_says(cli, monkeypatch):
    for columns, width in (("", PIPE_WIDTH), ("70", 70), ("0", PIPE_WIDTH), ("wide", PIPE_WIDTH)):
        monkeypatch.setenv("COLUMNS", columns)
        lines = cli("extensions").succeeded().out.splitlines()
        assert width - 30 < max(map(len, lines)) <= width
        assert any("ntk-by-parts" in line.split() for line in lines)  # a name is on one line


def blocks_of(text: str) -> list[list[str]]:
    """The lines of every part of a table, its header first."""
    return [part.splitlines() for part in re.split(r"\n\s*\n", text.rstrip()) if "─" in part]


def test_a_table_whose_numbers_do_not_fit_is_split_and_repeats_the_names(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    cells = {f"Loss (ev={2**n})": ["4.256 [+0.1]", "n/a"] for n in range(5)}
    print_table(pd.DataFrame({"Model": ["RoPE + PI", "ALiBi"], "tuned": ["yes", "no"]} | cells), "losses")
    blocks = blocks_of(capsys.readouterr().out)
    assert len(blocks) > 1
    for block in blocks:
        assert block[0].split()[:2] == ["Model", "tuned"]
        assert any(line.split()[:4] == ["RoPE", "+", "PI", "yes"] for line in block)
        assert any(line.split()[:2] == ["ALiBi", "no"] for line in block)
    monkeypatch.setenv("COLUMNS", "20")
    name = "a-run-with-a-very-long-name-of-its-own"
    print_table(pd.DataFrame({"run": [name], "ev=1": ["4.256"]}), "losses")
    out = capsys.readouterr().out
    assert name in out
    assert "4.256" in out


def test_a_name_is_only_a_name(capsys):
    """Neither a terminal's codes nor Rich's markup or emoji in it are read."""
    name = "\x1b[31m[red]:cat:\\\\[/]\x9b\u202ex\ny\\"
    shown = "\\x1b[31m[red]:cat:\\\\[/]\\x9b\\u202ex\\ny\\"
    print_table(pd.DataFrame({name: [name], "ev=1": ["4.2"]}), name)
    print_text(name.replace("\n", " "))
    print_line(name)
    out = capsys.readouterr().out
    assert not re.search(r"[\x1b\x9b\u202e]", out)
    assert out.count(shown) == 4
    assert out.count(shown.replace("\\n", " ")) == 1


def test_numbers_are_to_the_right_and_words_to_the_left(capsys):
    table = {"Model": ["RoPE", "a longer one"], "ev=1": ["4.2", "10.25"], "mode": ["eager", "on"], "ev=4": ["n/a"] * 2}
    print_table(pd.DataFrame(table), "losses")
    (_, _, first, second), *_ = blocks_of(capsys.readouterr().out)
    assert re.fullmatch(r"  RoPE +   4\.2   eager    n/a *", first)
    assert re.fullmatch(r"  a longer one   10\.25   on       n/a *", second)


def test_long_texts_give_way_first(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = "one two three four five six seven eight nine ten eleven twelve"
    columns = [
        Column("name", ["rope"], Kind.NAME), Column("what", [text]), Column("loss", ["4.256 [+0.1]"], Kind.NUMBER)
    ]  # fmt: skip
    print_columns(columns, "all")
    blocks = blocks_of(capsys.readouterr().out)
    assert len(blocks) == 1
    assert "4.256 [+0.1]" in "\n".join(blocks[0])
    assert len(blocks[0]) == 4  # header, rule, and the text in two lines


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("theta=10000.0, pairing=half", 15, ["theta=10000.0,", "pairing=half"]),
        ("(expe:size=16),max=2048", 16, ["(expe:size=16),", "max=2048"]),
        ("unbreakable", 4, ["unbreakable"]),
        ("x_i + E[i]", 40, ["x_i + E[i]"]),
    ],
)
def test_folding(text, width, lines):
    assert fold(text, width).split("\n") == lines
