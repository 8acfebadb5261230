"""The program answers at once: help needs none of the heavy libraries."""

import sys
from pathlib import Path

import pytest

import extrapolate
from extrapolate.cli.commands import app

COMMANDS = sorted(command.name for command in app.registered_commands)
HEAVY = {"torch", "pandas", "pyarrow", "numpy", "datasets", "tokenizers", "matplotlib", "safetensors"}
# Runs the program with the arguments that follow, and says at its end what it had imported.
SPY = """
import atexit, sys
from extrapolate.cli import main
atexit.register(lambda: print("IMPORTED", *sys.modules))
main()
"""


@pytest.mark.parametrize("arguments", [["--help"], ["eval-lengths", "--help"]])
def test_help_imports_no_heavy_library(process, arguments):
    ended = process(*arguments, program=[sys.executable, "-c", SPY]).succeeded()
    imported = set(ended.out.partition("IMPORTED")[2].split())
    assert "typer" in imported  # the spy works
    assert not imported & HEAVY


def test_the_list_of_encodings_waits_for_neither_torchs_compiler_nor_pandas(process):
    ended = process("encodings", program=[sys.executable, "-c", SPY]).succeeded()
    imported = set(ended.out.partition("IMPORTED")[2].split())
    assert "torch" in imported
    assert not imported & {"torch._dynamo", "sympy", "scipy", "pandas", "pyarrow"}


def test_what_reads_tables_alone_does_not_import_torch(process, evaluated):
    for command in (["report", evaluated / "none"], ["compare", evaluated]):
        ended = process(*command, program=[sys.executable, "-c", SPY]).succeeded()
        imported = set(ended.out.partition("IMPORTED")[2].split())
        assert "pandas" in imported
        assert "torch" not in imported, command


def test_modules_of_the_current_folder_are_not_imported(process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(extrapolate.__file__).parents[1]))
    for name in ("rich", "typer", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('from the current folder')")
    assert "rope" in process("encodings", program=[sys.executable, "-m", "extrapolate"]).succeeded().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_explained(cli, command):
    shown = " ".join(cli(command, "--help").succeeded().out.split())
    assert "Usage:" in shown
    callback = next(c.callback for c in app.registered_commands if c.name == command)
    described = (callback.__doc__ or "").strip()
    assert described.endswith(".")
    assert described.split()[0] in shown


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--sequence", "16"], ["train", "--seq-len", "many"]])
def test_usage_errors_exit_with_2_and_no_traceback(cli, arguments):
    ended = cli(*arguments)
    assert ended.code == 2
    assert arguments[-1] in ended.err or arguments[-2] in ended.err
    assert "Traceback" not in ended.err


def test_the_list_of_commands_says_each_in_a_whole_sentence(cli):
    assert cli().code == 2
    listed = cli("--help").succeeded().out.partition("Commands:")[2].strip().splitlines()
    assert sorted(line.split()[0] for line in listed) == COMMANDS
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
