"""tools/studies.py fills a page with how many orders of published tables are ours too."""

import re
from collections.abc import Callable
from types import ModuleType

import pytest

from extrapolate.reports.order_agreement import Pair, Value, summary
from extrapolate.studies.study import read_study


@pytest.fixture
def studies(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("studies")


def test_the_page_has_what_reports_say_of_their_tables(studies: ModuleType) -> None:
    losses = [Value(name, "ev=1", "", "loss", 1.0, loss, None, None) for name, loss in (("a", 1.0), ("b", 2.0))]
    times = [Value(name, "time", "", "time", None, 1.0, name, ours) for name, ours in (("a", 1.0), ("b", 1.3))]
    said = summary([Pair(*losses), Pair(*reversed(losses)), Pair(*times), Pair(*reversed(times))])
    report = (
        f"# Published tables\n\n## A table (arXiv 1)\n\n**{said}**\n\nTheirs: much. Ours: little, seeds 0, 1. A note.\n"
        "\n## Another (a course)\n\n**The paper orders 5 rows by length. In ours: 3 the same way (2 \\*), 2 undecided."
        "**\n\nTheirs: more. Ours: none, seed 0.\n"
    )
    page = "<!-- agreement -->\nold\n<!-- end of agreement -->\nkept\n<!-- trained --><!-- end of trained -->"
    filled = studies.filled(page, {"study": (report, "Trained here.")})
    assert [re.split(r" ?\| ?", line)[1:-1] for line in filled.splitlines() if re.match(r"\| A", line)] == [
        ["A table", "2 pairs of rows", "", "", "", "", "2"],
        ["A table", "2 pairs of times", "1", "1", "", "", ""],
        ["Another", "5 rows by length", "3", "", "", "2", ""],
    ]
    assert "\nkept\n" in filled
    assert "old" not in filled
    assert "- **A table** (`study.toml`). Theirs: much. Ours: little, seeds 0, 1. Trained here.\n- **Ano" in filled


def test_every_study_of_a_published_table_is_on_the_page(studies: ModuleType) -> None:
    files = {path.stem: read_study(path) for path in studies.STUDIES.glob("*.toml")}
    assert {name for name, study in files.items() if study.published} == set(studies.SHOWN)
    page = studies.PAGE.read_text(encoding="utf-8")
    assert all(f"(`{name}.toml`). Theirs: " in page for name in studies.SHOWN)
    orders = re.findall(r"^\| .*? \| (\d+) [a-z ]+ \|(.*)\|$", page, re.MULTILINE)
    assert len(orders) == 12
    assert all(int(count) == sum(map(int, re.findall(r"\d+", counts))) for count, counts in orders)
