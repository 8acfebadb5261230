"""The library's messages name parameters of the Python calls, `seq_len=512`; the command line names its flags instead.

A command's function has the names of the Python call for its parameters, so its options say which flag each one is.
"""

import ast
import re
from functools import cache
from typing import Annotated

import typer

from extrapolate.terminal import Terminal

AsJson = Annotated[bool, typer.Option("--json", help="print JSON lines: docs/results.md has their keys")]


_PARAMETER = re.compile(r"`(\w+)(?:=([^`]+))?`")


@cache
def flags() -> dict[str, str]:
    """What parameters are called, and their flags in the commands: `start` is `--from`."""
    from extrapolate.cli.commands import app

    group = typer.main.get_group(app)
    commands = [group.commands[name] for name in group.list_commands(typer.Context(group))]
    options = [option for command in commands for option in command.params if option.param_type_name == "option"]
    return {option.name: option.opts[0] for option in options if option.name is not None}


def in_flags(message: str) -> str:
    """A message with flags in place of parameters: `seq_len=512` in backticks becomes --seq-len 512."""
    return _PARAMETER.sub(_in_flags, message)


def _in_flags(found: re.Match[str]) -> str:
    name, value = found.groups()
    if name not in flags():
        return found[0]
    if value == "False":  # Typer's name for the opposite of a flag
        return f"--no-{flags()[name].removeprefix('--')}"
    return flags()[name] if value in (None, "True") else f"{flags()[name]} {_shown(value)}"


def _shown(value: str) -> str:
    """A Python value as a flag takes it: `'rope'` is rope, and `{'windows': 4096}` is windows=4096."""
    try:
        given = ast.literal_eval(value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):  # what a message quotes may be anything
        return value
    return ",".join(f"{key}={one}" for key, one in given.items()) if isinstance(given, dict) else str(given)


class CommandLine(Terminal):
    """Progress of a command: on stderr, in the words of the command line."""

    def say(self, message: str) -> None:
        """One line."""
        super().say(in_flags(message))
