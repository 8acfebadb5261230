"""The flags of commands: made from the parameters of public calls, and named in messages instead of these.

A command's function has the parameters of the Python call, so its options say which flag belongs to which.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from extrapolate.cli import registered
from extrapolate.errors import UserError
from extrapolate.names import ALL, LEFT_OUT
from extrapolate.specs import split_outside_parentheses, unwrapped
from extrapolate.specs.settings import AUTO, Flagged, flags_of
from extrapolate.terminal import Terminal

Command = Callable[..., None]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON lines: docs/results.md has their keys")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="evaluate nothing: show what would be read, and the time and memory it takes")
]
LAST = ("dry_run", "as_json")  # of a command's own parameters, after the flags of its call
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
    if isinstance(given, tuple):
        return ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in given)
    return ",".join(f"{key}={one}" for key, one in given.items()) if isinstance(given, dict) else str(given)


class CommandLine(Terminal):
    """Progress of a command, on stderr, with flags in place of parameters."""

    def say(self, message: str) -> None:
        """Prints a line."""
        super().say(in_flags(message))


def command_of(call: Callable[..., Any], panels: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Gives a command the flags of a public call in place of its `**given`, in the order of panels.

    The command gets the values as the call takes them: a list for `--factors 1,2,4`.
    """
    flags = sorted(flags_of(call), key=lambda one: panels.index(one.flag.panel))
    names = {one.name: flag_name(one) for one in flags}

    def decorate(command: Command) -> Command:
        own = [one for one in inspect.signature(command).parameters.values() if one.kind != Parameter.VAR_KEYWORD]
        last = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.name in LAST]

        @wraps(command)
        def reading(**given: Any) -> None:
            command(**given | {one.name: _read(one, given[one.name]) for one in flags if one.name in given})

        reading.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*(one for one in own if one.name not in LAST), *(_parameter(one, names) for one in flags), *last]
        )
        return reading

    return decorate


def flag_name(flagged: Flagged) -> str:
    """`--seq-len` of `seq_len`, or the name that the flag was given."""
    return flagged.flag.name or f"--{flagged.name.replace('_', '-')}"


def usual_of(flagged: Flagged) -> str | None:
    """The default in words, if the flag has that or takes a list."""
    usual = flagged.flag.usual
    if usual is None and _is_list(flagged) and flagged.default:
        usual = ",".join(f"{one:g}" if isinstance(one, float | int) else one for one in flagged.default)
    return usual and registered.filled(usual)


def _parameter(flagged: Flagged, names: Mapping[str, str]) -> Parameter:
    """The option for Typer. names: the flags of parameters, for the help."""
    flag, name, kind, usual = flagged.flag, flag_name(flagged), _kind(flagged), usual_of(flagged)
    help = re.sub(r"`(\w+)`", lambda found: names[found[1]], registered.filled(flag.help))
    default = AUTO if flag.auto else None if _is_list(flagged) else flagged.default
    option = typer.Option(
        f"{name}/--no-{name[2:]}" if flag.off else name,
        help=f"{help}  [default: {usual}]" if usual else help,
        rich_help_panel=flag.panel,
        envvar=flag.envvar,
        min=flag.least,
        max=flag.most,
    )
    kind = kind | None if default is None else kind
    return Parameter(flagged.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _is_list(flagged: Flagged) -> bool:
    return any(get_origin(kind) in (tuple, Sequence) or str(kind).startswith("Sequence[") for kind in flagged.kinds())


def _is_numbers(flagged: Flagged) -> bool:
    return _is_list(flagged) and float in get_args(flagged.kinds()[0])


def _kind(flagged: Flagged) -> Any:
    """The type on the command line, without types such as classes and runs that only Python can give."""
    kinds = flagged.kinds()
    if _is_list(flagged):
        return str if _is_numbers(flagged) else list[str]  # a flag for texts may be repeated
    if any(isinstance(kind, str) for kind in kinds):
        return Path if "Path" in kinds else str
    return Path if Path in kinds else str if len(kinds) > 1 else kinds[0]


def _read(flagged: Flagged, given: Any) -> Any:
    """A value from the command line as the call takes it; None if none was given."""
    if isinstance(given, str) and any(get_origin(kind) is Mapping for kind in flagged.kinds()):
        return _numbers_by_name(given, flag_name(flagged))
    if not _is_list(flagged):
        return given
    if given is None:
        return flagged.default
    given = [given] if isinstance(given, str) else given
    texts = given if flagged.flag.whole else [part for text in given for part in split_list(text)]
    texts = list(dict.fromkeys(text.strip() for text in texts))
    if flagged.flag.none and LEFT_OUT in texts:
        if len(texts) > 1:
            raise UserError(f"{flag_name(flagged)} {LEFT_OUT} leaves out all: give it alone, or leave it out")
        return ()
    if not _is_numbers(flagged):
        return texts
    try:
        return [float(text) for text in texts]
    except ValueError:
        said = ",".join(given)
        raise UserError(
            f"{flag_name(flagged)} '{said}' is not a list of numbers: expected something like 1,2,4,8,16"
        ) from None


def split_list(text: str) -> list[str]:
    """Splits a text at commas outside parentheses, which keep a spec with several arguments together."""
    return [unwrapped(part.strip()) for part in split_outside_parentheses(text, ",") if part.strip()]


def _numbers_by_name(text: str, flag: str) -> dict[str, int]:
    """`4096,windows=8192` -> {all: 4096, windows: 8192}. A number without a name is for all."""
    found: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not (number.isdecimal() and len(number) < 20) or int(number) < 1 or (equals and not name):
            raise UserError(
                f"{flag} '{text}': '{part}' is not a number of tokens; write 4096, or "
                "windows=500000,fixed-target=16384, or both: 4096,windows=8192"
            )
        if (key := name or ALL) in found:
            raise UserError(f"{flag} '{text}' has two numbers for {name or 'all protocols'}: give one")
        found[key] = int(number)
    return found
