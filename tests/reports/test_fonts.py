"""Letters that matplotlib's own font lacks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matplotlib import font_manager

from extrapolate.reports import fonts, plots
from extrapolate.reports.chart import Axis, Chart, Panel, Series


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


def test_where_no_font_has_a_letter_boxes_are_drawn_aloud(tmp_path: Path, installed) -> None:
    installed([])
    with pytest.warns(UserWarning, match="no font of this machine has 中文, so .* boxes .*: install one") as said:
        draw("中文", tmp_path / "made.svg")
    assert len(said) == 1
