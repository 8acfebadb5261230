"""docs/python-api.md has every public call, and the quickstart runs."""

import ast
import importlib
import inspect
import re
import runpy
from contextlib import nullcontext
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.cli.commands import app

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_public_name_is_on_the_page_with_an_example() -> None:
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    for name in xt.__all__:
        assert any(re.search(rf"`xt\.{name}\b", heading) for heading in headings), name
        assert any(f"xt.{name}" in example for example in EXAMPLES), name


def test_the_examples_call_what_there_is() -> None:
    checked = 0
    for example in EXAMPLES:
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom):
                assert all(hasattr(importlib.import_module(node.module or ""), name.name) for name in node.names)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "xt":
                assert node.attr in xt.__all__
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "xt"):
                    continue
                keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
                inspect.signature(getattr(xt, node.func.attr)).bind(*node.args, **keywords)
                checked += 1
    assert checked >= 8


def test_every_command_has_its_call_or_is_said_to_have_none() -> None:
    listed = re.findall(r"^\| `xt\.\w+` \| `extrapolate ([\w-]+)", PAGE, re.MULTILINE)
    without = re.findall(r"`extrapolate (\w+)`", PAGE.partition("## ")[0].partition("have no call:")[2])
    assert {*listed, *without} == {command.name for command in app.registered_commands}
    assert not {*listed} & {*without}


def test_every_call_is_in_the_table() -> None:
    listed = re.findall(r"^\| `xt\.(\w+)`", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(set(xt.__all__) - {"__version__"})


@pytest.mark.parametrize("name", ["evaluate", "attention", "generate"])
def test_the_example_runs(ckpt: Path, name: str) -> None:
    """With a run that takes YaRN, and one that does not."""
    (example,) = re.findall(rf"^## `xt\.{name}`\n[^#]*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    known = {"xt": xt, "run": xt.load(ckpt / "rope"), "other": xt.load(ckpt / "expe")}
    warned = pytest.warns(UserWarning, match="yarn is left out for") if name == "evaluate" else nullcontext()
    with warned:
        exec(example, known)


@pytest.mark.usefixtures("without_pictures")
def test_the_quickstart_runs(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for name, value in {"TEXT": str(corpus), "TOKENS": "8192", "TARGETS": "512"}.items():
        monkeypatch.setenv(f"QUICKSTART_{name}", value)
    made = runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    assert set(made["table"].index) == {"RoPE", "ALiBi"}
    assert set(made["pairs"]["factor"]) == {1, 2, 4, 8}
    assert (tmp_path / "quickstart" / "loss.png").stat().st_size
    assert (tmp_path / "quickstart" / "report" / "report.md").exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [(1.5, "at most 0.999, not 1.5"), (float("nan"), "at least 0.5, not nan"), ("x", "'x' is not a number")],
)
def test_bounds_of_flags_hold_in_python_too(value: object, said: str) -> None:
    with pytest.raises(xt.UserError, match=f"`confidence`.*{said}"):
        xt.compare("ckpt", confidence=value)
