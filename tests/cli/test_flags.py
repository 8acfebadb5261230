"""Messages of the library name parameters of the Python calls; the command line's name its flags."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import extrapolate as xt
from extrapolate.cli.commands import app
from extrapolate.cli.flags import CommandLine, flags, in_flags
from extrapolate.model.hooks import HOOKS
from extrapolate.terminal import Terminal

ROOT = Path(xt.__file__).parent
CALLS = [getattr(xt, name) for name in xt.__all__ if inspect.isfunction(getattr(xt, name))]
# Their texts are pages, which are about the commands too.
PAGES = (
    "catalogue/", "inspection/measurements/", "results/", "reports/published.py",
    "reports/sections/", "reports/tables.py",
)  # fmt: skip
PARAMETER = re.compile(r"`(\w+)(?:=[^`]*)?`")
COMMAND = re.compile("extrapolate |hf download |zstd ")
FLAG = re.compile(r"(?<![\w-])(?<!style=\")--[a-z]")  # a variable of CSS is none


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text that a module makes, `{}` for what is filled in; not its docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            node.values = [part for part in node.values if not isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from texts(node)


def messages() -> list[tuple[str, str]]:
    """Modules of the library, and the texts in them that are not pages."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    assert all((ROOT / name).exists() for name in PAGES)
    library = {name: path for name, path in paths.items() if not name.startswith(("cli/", *PAGES))}
    return [(name, text) for name, path in library.items() for text in texts(ast.parse(path.read_text()))]


def test_every_parameter_that_a_message_names_is_one_of_a_call_and_has_a_flag() -> None:
    public = {name for call in CALLS for name in inspect.signature(call).parameters}
    named = {(module, name) for module, text in messages() for name in PARAMETER.findall(text)}
    assert len({name for _, name in named}) > 15
    hooks = {(module, name) for module, name in named if name in HOOKS}  # of a user's own encoding
    assert {(module, name) for module, name in named - hooks if name not in public} == set()
    commands = {(module, name) for module, name in named - hooks if module != "api/run.py"}  # no command generates
    commands -= {("interop/foreign.py", "max_length")}  # a user's own file says it
    assert {(module, name) for module, name in commands if name not in flags()} == set()


def test_no_message_of_the_library_names_a_flag_outside_a_command_to_type() -> None:
    """`extrapolate train --out X --resume` is a command, and so is `hf download X --repo-type dataset`.

    A text that is a flag and nothing else is for a program.
    """
    found = [(module, text) for module, text in messages() if FLAG.search(COMMAND.split(text)[0])]
    assert [(module, text) for module, text in found if not re.fullmatch(r"--[\w=-]+", text)] == []


def test_one_parameter_has_one_flag() -> None:
    group = typer.main.get_group(app)
    options = [option for command in group.commands.values() for option in command.params if option.name in flags()]
    named = {(option.name, option.opts[0]) for option in options if option.param_type_name == "option"}
    assert dict(named) == flags()
    assert len(named) == len(flags())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("name the length: `seq_len=512`", "name the length: --seq-len 512"),
        ("`encoding='rope'` (a list)", "--pe rope (a list)"),
        ("continue with `resume=True`, or not", "continue with --resume, or not"),
        ("or give `dedup=False`", "or give --no-dedup"),
        ("write `max_targets={'windows': 4096, 'sliding': 512}`", "write --max-targets windows=4096,sliding=512"),
        ("the hook `rotate`, `x=3`", "the hook `rotate`, `x=3`"),
        ("`seq_len=of a user's own`", "--seq-len of a user's own"),
    ],
)
def test_parameters_become_flags(message: str, expected: str) -> None:
    assert in_flags(message) == expected


def test_progress_in_a_notebook_keeps_the_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().say("no `data` is given")
    CommandLine().say("no `data` is given")
    assert capsys.readouterr().err == "no `data` is given\nno --data is given\n"
