"""What the registries hold, for the commands' help: read from the files, because importing them takes seconds."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

from extrapolate.evaluation.names import MAX_TARGETS

PACKAGE = Path(__file__).parent.parent


@cache
def registered(folder: str) -> dict[str, dict[str, Any]]:
    """The names that the files of one folder of the package register, sorted; each with the constants of its class."""
    found: dict[str, dict[str, Any]] = {}
    for file in (PACKAGE / folder).glob("*.py"):
        for cls in ast.parse(file.read_text(encoding="utf-8")).body:
            for decorator in cls.decorator_list if isinstance(cls, ast.ClassDef) else ():
                match decorator:
                    case ast.Call(func=ast.Attribute(attr="register"), args=[ast.Constant(value=str(name))]):
                        found[name] = _constants(cls)
    return dict(sorted(found.items()))


def _constants(cls: ast.AST) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for statement in ast.iter_child_nodes(cls):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value))
            ):
                found[name] = value
    return found


def protocols() -> str:
    """`fixed-target, sliding, windows`."""
    return ", ".join(registered("evaluation/protocols"))


def probes() -> str:
    """`copy, mqar, needle, passkey`."""
    return ", ".join(registered("data/probes"))


def sources() -> str:
    """`hf:NAME, stdlib, synthetic:NAME (echo, markov), a .txt file, a folder, or a glob`."""
    found = registered("data/sources")
    forms = {name: f"{name}:{values['argument']}" if "argument" in values else name for name, values in found.items()}
    forms["synthetic"] += f" ({', '.join(registered('data/synthetic'))})"
    *most, last = registered("data/sources/local")
    return ", ".join([*forms.values(), f"a {', '.join(most)} or {last} file", "a folder, or a glob"])


def most_targets() -> str:
    """The protocols' own limits: `windows 131072, the others 8192`."""
    own = {name: values.get("max_targets") for name, values in registered("evaluation/protocols").items()}
    return ", ".join([*(f"{name} {most}" for name, most in own.items() if most), f"the others {MAX_TARGETS}"])
