"""Names from tables, which a stranger may have made, are only names, in Markdown."""

import html
import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from extrapolate.reports import escaping
from extrapolate.reports.chart import Chart
from extrapolate.reports.page import Block, Heading, Table, Text, markdown
from extrapolate.reports.svg import Plot

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a | b", "two\nlines\n\n# and a heading", "`code`",
    "**bold** _and_ __so__ ~~on~~", "[here](javascript:alert(1))", "![x](http://x.y/z.png)", "[a]: http://x.y",
    "[a][b]", "&lt;b&gt; &#60;", "\\", "a\\|b", "$\\frac{$", "<!-- ", "]]>", "- item", "1. item", "12) item",
    "# heading", "---", "===", "+ x", "heading #", "https://x.y www.x.y <http://x.y>", "\x1b[31mred\x07",
    "x\u202ey\u2028z", "_", "[1](http://x.y)", "[1]: x", "*", "***", "a" * 10_000,
]  # fmt: skip
ORDINARY = [
    "RoPE", "YaRN(8)", "expe:size=16", "ev=0.5", "ExPE(size=32)", "RoPE + PI(2)", "my_file.py:MyEncoding", "a__b",
    "-0.100 [-0.110, -0.090]", "+0.021 too few", "n/a", "rope (ssmax), 2 of 3", "p-RoPE(0.75)", "#1", "95 % interval",
    "evaluated on Intel(R) Xeon(R) Processor, 2 cores, 2026-11-22.", "4.677", "s1/expe", "é 中文", "fixed-target 16x",
]  # fmt: skip
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
PIECES = [
    *"ab1 \n<>&|`*_~[]()!#-+=.:/\\$\x1b", "](", "![", "]:", "**", "__", "~~", "<b>", "<!--", "http://", "&lt;", " a ",
]  # fmt: skip
SPECIAL = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)


def page(name: str) -> list[Block]:
    frame = pd.DataFrame({"Model": [name, "x"], name + " ": ["1", name]})
    return [
        Heading(1, f"a {name}"), Text(name), Text(f"It is {name}", strong=True), Table(frame),
        Plot(Chart(name, "a.png", [])), Text("the end"),
    ]  # fmt: skip


def rendered(name: str) -> tuple[list[str], str]:
    """The tags of the page in HTML, and its text."""
    made = PARSER.render(markdown(page(name)))
    images = re.findall(r'alt="([^"]*)"', made)
    return re.findall(r"</?(?!img)\w+|<img", made), html.unescape(re.sub(r"<[^>]*>", "", made) + "".join(images))


def check(name: str) -> None:
    shown = re.sub(" +", " ", escaping.one_line(name))
    tags, text = rendered(name)
    assert tags == rendered("x")[0]
    assert re.sub(r"\s+", " ", text).count(shown) >= (7 if shown else 0)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_shows_a_hostile_name_and_reads_nothing_in_it(name: str) -> None:
    check(name)


@settings(max_examples=50, deadline=None)
@given(SPECIAL.filter(lambda name: escaping.one_line(name) != ""))
def test_a_page_shows_any_name_and_reads_nothing_in_it(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_name_stays_readable(name: str) -> None:
    assert escaping.markdown(name) == name


def test_what_cannot_be_printed_is_left_out() -> None:
    assert escaping.one_line("a\x00\x1b[31m\ud800b\n\tc\u202ed\xa0e\n") == "a[31mb  cd e"


def test_numbers_in_names_are_in_order() -> None:
    assert sorted(["RoPE, 12 layers", "ExPE", "RoPE, 2 layers", "RoPE"], key=escaping.in_order) == [
        "ExPE", "RoPE", "RoPE, 2 layers", "RoPE, 12 layers",
    ]  # fmt: skip
    assert escaping.in_order("7" * 5000)[0] == ("", 777_777_777_777_777)  # of any length: names can come from elsewhere
