"""Encodings and extensions given as classes: of the package, of a module, of a script and of a notebook."""

import hashlib
import importlib
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
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


def test_a_class_of_the_package_is_its_name(store: Path) -> None:
    run = xt.train(partial(RoPE, theta=500.0), data=store, out="rope", **SMALL)
    assert run.config.encoding.name == "rope"
    assert run.config.encoding.arguments["theta"] == 500
    assert not (run.path / "encoding.py").exists()


def test_a_class_of_a_module_is_its_file(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "xt.train" not in kept
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
        rows = pd.read_parquet(run.path / "evals.parquet").set_index("extension")
        assert set(rows.index) == {"Shrink.py:Shrink", "Shrink.py:Shrink:further=0.5", "as-trained", "pi"}
        assert len(rows) == 4
        kept = rows["extension_sha256"]["Shrink.py:Shrink"]
        assert hashlib.sha256((run.path / "extensions" / f"{kept}.py").read_bytes()).hexdigest() == kept
    code = f"{EXTENSION}\nassert (xt.check(Shrink)['wrong'] == '').all()\nxt.evaluate('rope', extend='shrink')"
    with pytest.raises(xt.UserError, match="'shrink' is your own extension: give the class itself, Shrink"):
        script(code)
    one = xt.attention(run, [1, 2, 3, 4], extend="pi:factor=2").weights
    script(
        f"{EXTENSION}\nseen = xt.attention('rope', [1, 2, 3, 4], extend=Shrink)\nseen.weights.numpy().tofile('seen')"
    )
    np.testing.assert_array_equal(np.fromfile("seen", np.float32), one.numpy().ravel())
    tuned = "xt.train(start='rope', extend=Shrink, out='tuned', **SMALL)"
    script(f"{EXTENSION}\nSMALL = {SMALL!r}\n{tuned}".replace("'layers': 1, ", ""))
    assert Run.open(tmp_path / "tuned").config.extension == "Shrink.py:Shrink"


def test_what_cannot_be_kept_is_refused_with_the_reason(store: Path) -> None:
    with pytest.raises(xt.UserError, match="is no encoding: give a spec"):
        xt.train(int, data=store, **SMALL)
    with pytest.raises(xt.UserError, match="arguments of RoPE by name"):
        xt.train(partial(RoPE, 500.0), data=store, **SMALL)

    class Inside(RoPE):
        pass

    with pytest.raises(xt.UserError, match="Inside must stand at the top of its file"):
        xt.train(Inside, data=store, **SMALL)
    code = f"{NEEDS}{CLASS}\nxt.train(Mine, data={str(store)!r}, **{SMALL!r})"
    with pytest.raises(xt.UserError, match="the source of Mine cannot be found"):
        script(f"exec({code!r})")
    with pytest.raises(xt.UserError, match="Mine uses BASE, a float64, which cannot be kept"):
        script(code.replace("BASE = 300.0", "BASE = np.float64(300.0)"))
    assert not Path("ckpt").exists()
