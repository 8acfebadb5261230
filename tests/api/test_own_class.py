"""Encodings given as classes: of the package, of a module, of a script and of a notebook."""

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
