"""Letters that matplotlib's own font lacks, with a font made here and with none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

import extrapolate as xt
from extrapolate.progress import Quiet
from extrapolate.reports import fonts, plots
from extrapolate.reports.chart import Axis, Chart, Panel, Series


def write_font(path: Path, letters: str) -> str:
    """A font of squares."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square, names = pen.glyph(), [".notdef", *(f"g{ord(letter)}" for letter in letters)]
    made = FontBuilder(1000)
    made.setupGlyphOrder(names)
    made.setupCharacterMap({ord(letter): f"g{ord(letter)}" for letter in letters})
    made.setupGlyf(dict.fromkeys(names, square))
    made.setupHorizontalMetrics(dict.fromkeys(names, (800, 0)))
    made.setupHorizontalHeader(ascent=800, descent=-200)
    made.setupNameTable({"familyName": path.stem, "styleName": "Regular", "psName": path.stem})
    made.setupOS2()
    made.setupPost()
    made.save(path)
    return str(path)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], None]]:
    """Called with paths: from then on the machine has these fonts and no others."""
    before = list(font_manager.fontManager.ttflist)

    def install(paths: list[str]) -> None:
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: paths)
        fonts._fonts_with.cache_clear()

    yield install
    font_manager.fontManager.ttflist[:] = before
    fonts._fonts_with.cache_clear()


def draw(name: str, path: Path) -> str:
    with plots.own_settings():
        plots.draw(
            Chart("text", path.name, [Panel([Series(name, [1, 2], [4.0, 4.1], {"color": "k"})], Axis("x"))]), path
        )
    return path.read_text()


@pytest.mark.filterwarnings("error")
def test_a_font_of_the_machine_draws_what_matplotlibs_lacks(tmp_path: Path, installed) -> None:
    damaged = tmp_path / "A.ttf"
    damaged.write_bytes(b"none")
    many, bold = (write_font(tmp_path / f"{name}.ttf", "中文") for name in ("Many", "Bold"))
    installed([bold, str(damaged), write_font(tmp_path / "Korean.ttf", "한"), many])
    drawn = draw("RoPE 中文 한", tmp_path / "made.svg")
    assert [drawn.count(f'href="#{font}-') for font in ("Many", "Korean", "Bold")] == [2, 1, 0]


def test_without_one_boxes_are_drawn_aloud(tmp_path: Path, installed) -> None:
    installed([write_font(tmp_path / "Few.ttf", "中")])
    with pytest.warns(UserWarning, match="no font of this machine has 文한, so .* boxes .*: install one") as said:
        drawn = draw("中文한", tmp_path / "made.svg")
    assert len(said) == 1
    assert drawn.count('href="#Few-') == 1


class Said(Quiet):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


@pytest.mark.filterwarnings("error")
def test_a_report_says_it_once(evaluated: Path, tmp_path: Path, installed, monkeypatch) -> None:
    installed([])
    monkeypatch.setattr(plots, "label", "{}中".format)
    said = Said()
    xt.report(evaluated, out=tmp_path / "report", progress=said)
    assert [line for line in said.lines if "no font" in line] == [line for line in said.lines if "中" in line]
    assert len([line for line in said.lines if line.startswith("no font of this machine has 中")]) == 1
