"""A class whose source would give another class is refused: the source is what a run keeps, and uses."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import extrapolate as xt

MINE = """
import extrapolate as xt
from extrapolate.api.own_class import spec_of

class Mine(xt.Encoding):
    display = "Mine"
    source = "this test"
    scale = 1.0

    def bias(self, pos_T, pos_S):
        return -self.scale * (pos_T[:, None] - pos_S[None, :])[None]
"""
DERIVED = """
class Derived(Mine):
    def __init__(self, dims, *, scale: float = S):
        super().__init__(dims)
        self.scale = scale
"""
ENCLOSED = """
def make(strength):
    class Inner(Mine):
        def bias(self, pos_T, pos_S):
            return strength * super().bias(pos_T, pos_S)
    return Inner
"""
DECORATED = """
from functools import wraps

def scaled(by):
    def decorate(function):
        @wraps(function)
        def wrapped(*arguments):
            return by * function(*arguments)
        return wrapped
    return decorate

class Decorated(Mine):
    @scaled(S)
    def bias(self, pos_T, pos_S):
        return super().bias(pos_T, pos_S)
"""
RICH = """
import functools, logging, re, threading
from dataclasses import dataclass, field
import numpy as np
import torch
import extrapolate as xt
from extrapolate.encodings.plan import Pairs

TABLE, WEIGHTS, LOCK = np.arange(4.0), torch.ones(2), threading.Lock()
NAMES, MOST, PATTERN = {"a": [1, (2.0, float("nan"))]}, float("inf"), re.compile("x+")
log, wave = logging.getLogger(__name__), np.cos

@dataclass(frozen=True)
class Sizes:
    width: int = 3
    heads: list = field(default_factory=list)

class Plain:
    __slots__ = ("a",)
    def __init__(self):
        self.a = 1

SIZES, PLAIN = Sizes(heads=[1]), Plain()

@functools.cache
def table(size):
    log.debug("%d", size)
    return wave(0.0) + np.abs(TABLE[:size]).sum() + WEIGHTS.sum() + len(NAMES) + SIZES.width + PLAIN.a

class Mine(xt.Encoding):
    display = "Mine"
    source = "this test"
    sizes = SIZES

    def __init__(self, dims, *, scale: float = min(MOST, 2.0)):
        super().__init__(dims)
        self.scale = scale

    @property
    def strength(self):
        with LOCK:
            return self.scale * float(table(2)) if PATTERN.match("x") else 0.0

    @staticmethod
    def apart(pos_T, pos_S):
        return next(t[:, None] - s[None, :] for t, s in [(pos_T, pos_S)] if len(t))

    def bias(self, pos_T, pos_S):
        return (lambda x: -self.strength * x)(self.apart(pos_T, pos_S))[None]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def script(source: str) -> None:
    Path("script.py").write_text(source)
    runpy.run_path("script.py", run_name="__main__")


LATER = "lambda self, v, *_: v.flip(2)"
SHADOWED = """
def unlike(x):
    return 2 * x

class Other(Mine):
    def bias(self, pos_T, pos_S):
        return abs(super().bias(pos_T, pos_S))

abs = unlike
spec_of(Other)
"""
EDITED = """
from pathlib import Path
file = Path("script.py")
file.write_text(file.read_text().replace("-self", "-7 * self"))
spec_of(Mine)
"""
CHANGED = {
    "an attribute": ("Mine.scale = 4.0\nspec_of(Mine)", "Mine.scale"),
    "a method": (f"Mine.mix = {LATER}\nspec_of(Mine)", "Mine.mix"),
    "a default that was computed": (f"S = 1.0\n{DERIVED}\nS = 2.0\nspec_of(Derived)", "Derived.__init__"),
    "a base": (f"S = 1.0\n{DERIVED}\n{MINE.replace('scale = 1.0', 'scale = 2.0')}\nspec_of(Derived)", "Mine.scale"),
    "an enclosed variable": (f"{ENCLOSED}\nstrength = 1.0\nspec_of(make(2.0))", "Inner.bias"),
    "a decorator's argument": (f"S = 1.0\n{DECORATED}\nS = 2.0\nspec_of(Decorated)", "by"),
    "a helper with the name of a builtin": (SHADOWED, "abs"),
    "the file, while it runs": (EDITED, "Mine.bias"),
}


@pytest.mark.parametrize(("change", "place"), CHANGED.values(), ids=CHANGED)
def test_a_class_that_differs_from_its_source_is_refused(change: str, place: str) -> None:
    with pytest.raises(xt.UserError, match=rf"gives another class: {place} was set or changed elsewhere"):
        script(f"{MINE}\n{change}\n")


USE = """
import my_own
from extrapolate.api.own_class import spec_of
{change}
spec_of(my_own.Mine)
"""
AFTER_IMPORT = {
    "TABLE[1]": 2.0,
    "WEIGHTS[0]": 3.0,
    "NAMES['a'][0]": 2,
    "PLAIN.a": 2,
    "table": "len",
    "LOCK": "log",
    "wave": "np.sin",
    "np": "torch",
}


@pytest.fixture
def my_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_own.py").write_text(RICH)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("my_own", None)


@pytest.mark.parametrize("change", ["", "my_own.MOST = 1.0  # which was only used while the class was made"])
@pytest.mark.usefixtures("my_own")
def test_a_module_gives_its_own_class(change: str) -> None:
    script(USE.format(change=change))


@pytest.mark.parametrize(("name", "value"), AFTER_IMPORT.items(), ids=AFTER_IMPORT)
@pytest.mark.usefixtures("my_own")
def test_a_module_that_was_changed_since_it_was_imported_is_refused(name: str, value: object) -> None:
    value = f"my_own.{value}" if value in ("log", "np.sin", "torch") else value
    with pytest.raises(xt.UserError, match=rf"gives another class: {re.split(r'[.[]', name)[0]} was set"):
        script(USE.format(change=f"my_own.{name} = {value}"))


@pytest.mark.usefixtures("my_own")
def test_a_file_that_was_edited_since_it_was_imported_is_refused() -> None:
    edit = "from pathlib import Path; p = Path('my_own.py'); p.write_text(p.read_text().replace('MOST, 2', 'MOST, 4'))"
    with pytest.raises(xt.UserError, match=r"gives another class: Mine.__init__ was set"):
        script(USE.format(change=edit))


def test_a_script_gives_its_own_class() -> None:
    """With an infinite constant, nested functions, a property and a default that was computed."""
    plain = re.sub(r"(?s)^TABLE.*?(?=^class Mine)", "MOST = float('inf')\n\n", RICH, flags=re.MULTILINE)
    plain = (
        plain.replace("    sizes = SIZES\n", "").replace("with LOCK", "if True").replace("PATTERN.match", "MOST.__eq__")
    )
    script(f"{plain.replace('table(2)', '2')}\nfrom extrapolate.api.own_class import spec_of\nspec_of(Mine)\n")
