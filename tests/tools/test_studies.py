"""tools/studies.py puts chapters of reports on a page."""

from collections.abc import Callable
from types import ModuleType

import pytest

from extrapolate.studies.study import read_study

REPORT = """\
# Loss by evaluation length

words

# Published tables

## ExPE

**The paper orders 2 pairs.**

![picture](picture.png)

| a | b |
|---|---|
| 1 | 2 |

# Along the training

more
"""


@pytest.fixture
def studies(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("studies")


def test_a_section_has_the_chapters_asked_for_one_level_lower(studies) -> None:
    shown = studies.Shown("table", "A table", ("Published tables",), ("loss.png",))
    assert studies.section(shown, REPORT, " It took 3 minutes.") == (
        "## A table\n\n`extrapolate sweep examples/studies/table.toml --scale tiny`. It took 3 minutes.\n\n"
        "### ExPE\n\n**The paper orders 2 pairs.**\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "![A table: loss](studies/table-loss.png)\n"
    )


def test_every_study_of_a_published_table_is_shown(studies) -> None:
    files = [path for path in studies.STUDIES.glob("*.toml") if read_study(path).published]
    assert {path.stem for path in files} == {shown.file for shown in studies.SHOWN}
