"""The order of sections, and what each may write."""

from pathlib import Path

import pytest

from extrapolate import specs
from extrapolate.reports.page import Text, markdown
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections import base
from extrapolate.reports.sections.base import Part, Section
from extrapolate.reports.write import lay_out

MATERIAL = ReportData()


def section(name: str, about: str = "", written: tuple[str, ...] = (), **attributes: object) -> type[Section]:
    """Registers a section that says its name and its subjects, which are letters."""

    def part(data: ReportData, subject: str) -> Part:
        return Part([Text(f"{name} {subject}")], dict.fromkeys(written, Path.touch))

    made = {"subjects": staticmethod(lambda data: list(about)), "part": staticmethod(part), "__module__": base.__name__}
    return base.sections.register(name)(type(name, (Section,), made | attributes))


@pytest.fixture(autouse=True)
def _no_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "sections", specs.Registry("section"))


def test_chapters_stand_together_and_sections_go_by_place() -> None:
    section("late", "a", chapter="One", place=30)
    section("other", "a", chapter="Two", place=20)
    section("early", "ab", chapter="One", place=10)
    blocks, _ = lay_out(MATERIAL)
    assert markdown(blocks) == "# One\n\nearly a\n\nearly b\n\nlate a\n\n# Two\n\nother a\n"


def test_what_continues_a_section_stands_below_each_of_its_parts() -> None:
    section("under", "bc", continues="over")
    section("over", "ab", chapter="One", place=10)
    section("deepest", "b", continues="under")
    section("next", "b", chapter="One", place=20)
    said = [block.text for block in lay_out(MATERIAL)[0] if isinstance(block, Text)]
    assert said == ["over a", "over b", "under b", "deepest b", "next b"]
    assert [one.__name__ for one in base.in_order()] == ["over", "under", "deepest", "next"]


@pytest.mark.parametrize("name", ["other.png", "made./../../escaped"])
def test_a_file_that_would_be_left_behind_or_lie_outside_is_a_fault(name: str) -> None:
    section("tidy", "a", ("made.svg", "made.png"), chapter="One", place=10, files=("made.*",))
    assert list(lay_out(MATERIAL)[1]) == ["made.svg", "made.png"]
    section("untidy", "a", (name,), chapter="One", place=20, files=("made.*",))
    with pytest.raises(AssertionError, match=rf"untidy.files does not name \['{name}'\]"):
        lay_out(MATERIAL)
