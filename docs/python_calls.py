"""The table of Python calls in docs/python-api.md, from the package's public names. docs/generate.py runs it."""

import inspect

import extrapolate as xt
from extrapolate.cli.commands import app

# What follows `extrapolate` where a call does not have its command's name.
COMMANDS = {
    "estimate_evaluation": "eval-lengths --dry-run",
    "estimate_sweep": "sweep --dry-run",
    "estimate_tasks": "eval-tasks --dry-run",
    "evaluate": "eval-lengths",
    "evaluate_probes": "eval-lengths --probes",
    "evaluate_tasks": "eval-tasks",
    "foreign": "eval-lengths FILE.py:FUNCTION",
    "plot_encodings": "encodings --plot",
}


def table() -> str:
    """Every public name with its command and the first line of its docstring, and the commands that have no call."""
    names = [str(command.name) for command in app.registered_commands]
    commands = {name: COMMANDS.get(name, name if name in names else "") for name in xt._PUBLIC}
    lines = ["| call | command | what it does |", "|---|---|---|"]
    for name in sorted(commands, key=str.lower):
        first = (inspect.getdoc(getattr(xt, name)) or "").partition("\n")[0]
        command = f"`extrapolate {commands[name]}`" if commands[name] else ""
        lines.append(f"| `xt.{name}` | {command} | {first} |")
    having = {command.partition(" ")[0] for command in commands.values()}
    missing = [f"`extrapolate {name}`" for name in names if name not in having]
    without = f"{', '.join(missing[:-1])} and {missing[-1]}" if missing[1:] else "".join(missing)
    return "\n".join([*lines, "", f"These commands have no call: {without}."])
