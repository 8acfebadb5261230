"""A command made from a public call: the flags of the call's parameters are the command's."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args

import typer

from extrapolate.cli import registered
from extrapolate.specs.settings import AUTO, Flagged, flags_of

Command = Callable[..., None]


def command_of(call: Callable[..., Any], panels: Sequence[str]) -> Callable[[Command], Command]:
    """Gives a command the flags of a public call in place of its `**given`, in the order of panels."""
    flags = sorted(flags_of(call), key=lambda one: panels.index(one.flag.panel))
    names = {one.name: flag_name(one) for one in flags}

    def decorate(command: Command) -> Command:
        own = [one for one in inspect.signature(command).parameters.values() if one.kind != Parameter.VAR_KEYWORD]
        options = [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=usual, annotation=_option(one, usual, names))
            for one in flags
            for usual in [AUTO if one.flag.auto else one.default]
        ]
        command.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        return command

    return decorate


def flag_name(flagged: Flagged) -> str:
    """`--seq-len` of `seq_len`, or the name that the flag was given."""
    return flagged.flag.name or f"--{flagged.name.replace('_', '-')}"


def _option(flagged: Flagged, usual: Any, names: Mapping[str, str]) -> Any:
    """The option's type and what Typer knows of it. names: the flags of parameters, for the help."""
    flag, name, kind = flagged.flag, flag_name(flagged), _kind(flagged)
    help = re.sub(r"`(\w+)`", lambda found: names[found[1]], registered.filled(flag.help))
    option = typer.Option(
        f"{name}/--no-{name[2:]}" if flag.off else name,
        help=f"{help}  [default: {flag.usual}]" if flag.usual else help,
        rich_help_panel=flag.panel,
        envvar=flag.envvar,
        min=flag.least,
    )
    return Annotated[kind | None if usual is None else kind, option]


def _kind(flagged: Flagged) -> Any:
    """The type as the command line has it: types of Python alone, such as a class or a run, are left out."""
    kind = flagged.type
    if isinstance(kind, UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return Path if Path in kinds else kinds[0]
    if isinstance(kind, str):
        return Path if "Path" in kind.split(" | ") else str
    return kind
