"""Letters that matplotlib's own font lacks, such as Chinese ones, are drawn with fonts of this machine."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
NO_FONT = "no font of this machine has"  # the beginning of a warning
GLYPH = re.compile(r"Glyph (\d+) .*missing from")
_LATER = re.compile("bold|black|heavy|light|thin|italic|oblique|mono|serif|ming|song", re.IGNORECASE)


@contextmanager
def collected(pattern: str | re.Pattern[str]) -> Iterator[list[re.Match[str]]]:
    """Collects Python warnings that match from their beginning, in a list that is complete at the end; shows others."""
    found: list[re.Match[str]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=pattern if isinstance(pattern, str) else pattern.pattern)
        yield found
    for one in caught:
        if match := re.match(pattern, str(one.message)):
            found.append(match)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def with_all_letters(draw: Callable[[], T]) -> T:
    """Calls `draw`, and again with more fonts if letters are missing. Warns if no font of this machine has them."""
    import matplotlib as mpl

    with collected(GLYPH) as lacking:
        drawn = draw()
    if letters := frozenset(int(one[1]) for one in lacking):
        families, letters = _fonts_with(letters)
        if families:
            with mpl.rc_context({"font.family": [*mpl.rcParams["font.family"], *families]}), collected(GLYPH):
                drawn = draw()
    if letters:
        some = "".join(map(chr, sorted(letters)))[:10]
        warnings.warn(
            f"{NO_FONT} {some}, so names in pictures have boxes in their place: install one, such as Noto Sans CJK "
            "(fonts-noto-cjk in Debian and Ubuntu)",
            stacklevel=2,
        )
    return drawn


@cache
def _fonts_with(letters: frozenset[int]) -> tuple[tuple[str, ...], frozenset[int]]:
    """The families of fonts that have some of these letters, and the letters that none has."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    families: list[str] = []
    # Those that were installed since matplotlib last looked count too. Upright ones of medium weight come first.
    for path in sorted(font_manager.findSystemFonts(), key=lambda path: (bool(_LATER.search(Path(path).stem)), path)):
        if not letters:
            break
        try:
            font = FT2Font(path)
        except (OSError, RuntimeError):  # damaged, or of a kind that is not read
            continue
        if there := letters & font.get_charmap().keys():
            font_manager.fontManager.addfont(path)
            families.append(font.family_name)
            letters -= there
    return tuple(families), letters
