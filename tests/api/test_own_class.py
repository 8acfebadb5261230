"""Encodings and extensions given as classes: of the package, of a module, of a script and of a notebook."""

import hashlib
import importlib
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.encodings.rope import RoPE
from extrapolate.runs.run import Run

SMALL = dict(seq_len=16, tokens=512, batch_tokens=512, layers=1, precision="fp32", device="cpu", compile=False)
CLASS = """
class Mine(RoPE):
    display = "Mine"
    source = "this test"

    def __init__(self, dims, *, theta: float = BASE):
        super().__init__(dims, theta=doubled(theta) / 2)
        self.theta = theta

    def positions(self, index_T: Tensor) -> Tensor:
        table = index_T * np.float32(1.0)
        return table
"""
NEEDS = """
import math
import numpy as np
from torch import Tensor
import extrapolate as xt
from extrapolate.encodings.rope import RoPE

BASE = 300.0
table = object()  # of the notebook: the class has a name of its own for something else


def doubled(x: float) -> float:
    return 2 * halved(4 * x)


def halved(x: float) -> float:
    return math.sqrt(x * x) / 4
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def script(source: str) -> None:
    """Runs a script as Python does."""
    Path("script.py").write_text(source)
    runpy.run_path("script.py", run_name="__main__")
    Path("script.py").unlink()


def test_a_class_of_the_package_is_its_name_and_one_of_a_module_its_file(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = xt.train(partial(RoPE, theta=500.0), data=store, out="rope", **SMALL)
    assert (run.config.encoding.name, run.config.encoding.arguments["theta"]) == ("rope", 500)
    assert not (run.path / "encoding.py").exists()
    (tmp_path / "my_module.py").write_text(NEEDS + CLASS)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("my_module").Mine
    by_class = xt.train(partial(mine, theta=70.0), data=store, out="a", **SMALL)
    by_name = xt.train("my_module.py:Mine:theta=70", data=store, out="b", **SMALL)
    assert by_class.config.config_hash() == by_name.config.config_hash()
    assert by_class.checkpoints("last")[0].sha256 == by_name.checkpoints("last")[0].sha256


def test_a_class_of_a_script_keeps_its_source_with_all_that_it_needs(store: Path, tmp_path: Path) -> None:
    call = f"xt.train(Mine, data={str(store)!r}, out='mine', resume=True, **{SMALL!r})"
    script(f"{NEEDS}{CLASS}\n{call}\n")
    run = Run.open(tmp_path / "mine")
    assert run.config.encoding.name == "Mine.py:Mine"
    assert run.model.encoding.theta == 300
    kept = (run.path / "encoding.py").read_text()
    assert "def halved" in kept
    assert "BASE = 300.0" in kept
    assert "object()" not in kept
    assert (xt.check(f"{run.path}/encoding.py:Mine")["wrong"] == "").all()
    script(f"{NEEDS}\n# Moved, but the same.\n{CLASS}\n{call}\n")


def test_a_class_of_a_notebook(store: Path, tmp_path: Path) -> None:
    """In cells, the last of which redefines the class: the newest definition counts, not what it is registered as."""
    cells = [
        f"{NEEDS}from extrapolate.encodings.base import register as known\n",
        f"@known('mine'){CLASS}",
        f"@known('mine'){CLASS}".replace("BASE", "2 * BASE"),
        f"xt.train(Mine, data={str(store)!r}, out='m', **{SMALL!r})",
    ]
    shell = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
    shell += "".join(f"shell.run_cell({cell!r}).raise_error()\n" for cell in cells)
    done = subprocess.run([sys.executable, "-c", shell], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Run.open(tmp_path / "m").model.encoding.theta == 600


EXTENSION = """
import extrapolate as xt
from extrapolate.encodings.base import POSITIONS
from extrapolate.encodings.plan import Plan
from extrapolate.extensions.base import register

SCALE = 0.5


@register("shrink")
class Shrink(xt.Extension):
    display = "Shrink"
    source = "this test"
    slot = "positions"
    needs = POSITIONS

    def __init__(self, *, further: float = 1.0):
        self.further = further

    def plan(self, encoding, seq_len, length):
        return Plan(position_scale=SCALE * self.further)
"""


def test_an_extension_of_a_script_keeps_its_source(store: Path, tmp_path: Path) -> None:
    """Rows of a class that was edited since do not stand beside those of the new one."""
    run = xt.train(RoPE, data=store, out="rope", **SMALL)
    how = "factors=(1,), protocols=['fixed-target'], max_targets=64, precisions='fp32'"
    evaluate = (
        f"xt.evaluate('rope', extend=['pi', Shrink, __import__('functools').partial(Shrink, further=0.5)], {how})"
    )
    for scale in (0.5, 0.25):
        script(f"{EXTENSION.replace('0.5', str(scale), 1)}\n{evaluate}\n")
        rows = xt.rows(run).set_index("extension")
        assert set(rows.index) == {"Shrink.py:Shrink", "Shrink.py:Shrink:further=0.5", "as-trained", "pi"}
        assert len(rows) == 4
        kept = rows["extension_sha256"]["Shrink.py:Shrink"]
        assert hashlib.sha256((run.path / "extensions" / f"{kept}.py").read_bytes()).hexdigest() == kept
    code = f"{EXTENSION}\nassert (xt.check(Shrink)['wrong'] == '').all()\nxt.evaluate('rope', extend='shrink')"
    with pytest.raises(xt.UserError, match="'shrink' is your own extension: give the class itself, Shrink"):
        script(code)
    tuned = "xt.train(start='rope', extend=Shrink, out='tuned', **SMALL)"
    script(f"{EXTENSION}\nSMALL = {SMALL!r}\n{tuned}".replace("'layers': 1, ", ""))
    assert Run.open(tmp_path / "tuned").config.extension == "Shrink.py:Shrink"


MINE = """
import extrapolate as xt
import torch
from extrapolate.api.own_class import spec_of
from extrapolate.encodings.plan import Plan

FAR, S, STEPS = float("-inf"), 1.0, 2

class Mine(xt.Encoding):
    display = "Mine"
    source = "this test"
    scale = 1.0

    def __init__(self, dims, *, strength: float = S):
        super().__init__(dims)
        self.strength = strength
        self.gate = torch.nn.Parameter(torch.zeros(()))

    @property
    def steps(self):
        return sum(1 for _ in range(STEPS))

    def bias(self, pos_T, pos_S):
        return (max(FAR, self.gate * self.scale) * self.strength * (pos_T[:, None] - pos_S[None, :]) / self.steps)[None]

class Half(xt.Extension):
    display = "Half"
    slot = "positions"
    needs = "positions"
    far = 1.0

    def plan(self, encoding, seq_len, length):
        return Plan(position_scale=min(1.0, seq_len * self.far / length))
"""
MADE = """
def make(strength):
    class Inner(Mine):
        def bias(self, pos_T, pos_S):
            return strength * super().bias(pos_T, pos_S)
    return Inner
"""
DERIVED = """
class Derived(Base):
    def embed(self, x_BTD, pos_T):
        return x_BTD
"""
EDIT = "from pathlib import Path; file = Path({!r}); file.write_text(file.read_text().replace('/ self.steps', '* 7'))"
CHANGES = {
    "an attribute, behind a gate that begins at zero": "Mine.scale = 4.0\nspec_of(Mine)",
    "a method": "Mine.mix = lambda self, q, k, v, state: v\nspec_of(Mine)",
    "a base class": f"{MINE.replace('class Mine', 'class Base')}\n{DERIVED}\nBase.scale = 3.0\nspec_of(Derived)",
    "an enclosed variable": f"{MADE}\nstrength = 1.0\nspec_of(make(2.0))",
    "the file, while it runs": f"{EDIT.format('script.py')}\nspec_of(Mine)",
    "an extension": "Half.far = 2.0\nspec_of(Half)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_class_that_computes_something_else_than_its_source_is_refused(change: str) -> None:
    script(f"{MINE}\nspec_of(Mine), spec_of(Half)\n")
    with pytest.raises(xt.UserError, match=r"computes something else than its source.*Put it into a file"):
        script(f"{MINE}\n{change}\n")


def test_a_file_that_was_edited_after_the_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edited_module.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    use = "import edited_module\nfrom extrapolate.api.own_class import spec_of\n{}\nspec_of(edited_module.Mine)\n"
    script(use.format("edited_module.S = 0.5"))  # changes nothing that it computes
    with pytest.raises(xt.UserError, match="Mine computes something else than its source"):
        script(use.format(EDIT.format("edited_module.py")))


def test_what_cannot_be_kept_is_refused_with_the_reason(store: Path) -> None:
    with pytest.raises(xt.UserError, match="is no encoding: give a spec"):
        xt.train(int, data=store, **SMALL)
    with pytest.raises(xt.UserError, match="arguments of RoPE by name"):
        xt.train(partial(RoPE, 500.0), data=store, **SMALL)

    class Inside(RoPE):
        pass

    with pytest.raises(xt.UserError, match="has no Encoding called 'Inside'"):
        xt.train(Inside, data=store, **SMALL)
    code = f"{NEEDS}{CLASS}\nxt.train(Mine, data={str(store)!r}, **{SMALL!r})"
    with pytest.raises(
        xt.UserError, match=r"Mine, which Mine needs, cannot be kept with its source: .*my_file.py:Mine"
    ):
        script(f"exec({code!r})")
    with pytest.raises(xt.UserError, match="BASE, which Mine needs, cannot be kept with its source: make it an arg"):
        script(code.replace("BASE = 300.0", "BASE = np.float64(300.0)"))
    assert not Path("ckpt").exists()
