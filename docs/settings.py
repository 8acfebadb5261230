"""The settings of a model and its training: their table in docs/setting-up.md, and their types for editors.

docs/generate.py runs it.
"""

from pathlib import Path
from types import UnionType
from typing import Any, get_origin

from extrapolate import api
from extrapolate.cli import registered
from extrapolate.cli.command_of import flag_name
from extrapolate.model.config import ModelConfig
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs.settings import AUTO, flagged_fields

FILE = Path(api.__file__).parent / "settings.py"
SECTIONS = {"training": TrainingConfig, "model": ModelConfig}


def table() -> str:
    """A row for every setting that has a flag, and a line that names the others."""
    lines = ["| setting | flag | section | default | what it is |", "|---|---|---|---|---|"]
    others = []
    for title, section in SECTIONS.items():
        flagged = {one.name: one for one in flagged_fields(section)}
        for name, field in section.model_fields.items():
            if name not in flagged:
                others.append(f"`{title}.{name}`")
                continue
            flag = flagged[name].flag
            usual = flag.usual or (AUTO if flag.auto else None)
            default = usual or ("" if field.is_required() or field.default is None else shown(field.default))
            lines.append(
                f"| `{name}` | `{flag_name(flagged[name])}` | `{title}` | {default} | {registered.filled(flag.help)} |"
            )
    return "\n".join([*lines, "", f"These have no flag: {', '.join(others)}."])


def shown(default: Any) -> str:
    """A default as a reader writes it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def typed() -> str:
    """extrapolate/api/settings.py: what `xt.train` takes as `**settings`, for editors and type checkers."""
    lines = [
        '"""Made by `make docs` from the fields of ModelConfig and TrainingConfig, for editors and type checkers."""',
        "",
        "from typing import Literal, TypedDict",
        "",
        "",
        "class TrainingSettings(TypedDict, total=False):",
        '    """The settings of a model and its training that `xt.train` takes."""',
        "",
    ]
    for section in SECTIONS.values():
        for one in flagged_fields(section):
            lines.append(f"    {one.name}: {written(one.type)}")
    return "\n".join([*lines, ""])


def written(kind: Any) -> str:
    """A type as Python code has it, and None."""
    if get_origin(kind) is None and not isinstance(kind, UnionType):
        return f"{kind.__name__} | None"
    text = str(kind).replace("typing.", "").replace("'", '"')
    return text if text.endswith("| None") else f"{text} | None"
