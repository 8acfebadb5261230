"""Turns `seq_len=512`, as the library's messages name parameters, into --seq-len 512.

A command's function has the parameters of the Python call, so its options say which flag belongs to which.
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
    """The flags of the commands by the parameters' names: `--from` for `start`."""
    from extrapolate.cli.commands import app

    group = typer.main.get_group(app)
    commands = [group.commands[name] for name in group.list_commands(typer.Context(group))]
    options = [option for command in commands for option in command.params if option.param_type_name == "option"]
    return {option.name: option.opts[0] for option in options if option.name is not None}


def in_flags(message: str) -> str:
    """A message with flags in place of parameters: `seq_len=512` in backticks becomes --seq-len 512."""

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in flags():
            return found[0]
        if value == "False":  # Typer's name for the opposite of a flag
            return f"--no-{flags()[name].removeprefix('--')}"
        return flags()[name] if value in (None, "True") else f"{flags()[name]} {_shown(value)}"

    return _PARAMETER.sub(flag, message)


def _shown(value: str) -> str:
    """A Python value as a flag takes it: `'rope'` is rope, and `{'windows': 4096}` is windows=4096."""
    try:
        given = ast.literal_eval(value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):  # a message may quote anything
        return value
    return ",".join(f"{key}={one}" for key, one in given.items()) if isinstance(given, dict) else str(given)


class CommandLine(Terminal):
    """Progress of a command, on stderr, with flags in place of parameters."""

    def say(self, message: str) -> None:
        """Prints a line."""
        super().say(in_flags(message))
