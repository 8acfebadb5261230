"""The settings of training and evaluation: their table in docs/setting-up.md, and their types for editors.

docs/generate.py runs it.
"""

import re
from pathlib import Path
from typing import Any, get_args, get_origin

from extrapolate import api
from extrapolate.api.rows import WhichRows
from extrapolate.cli import registered
from extrapolate.cli.flags import flag_name, usual_of
from extrapolate.evaluation.settings import EvaluationSettings, OpenedRuns, RunsOnText, SharedSettings, TextSettings
from extrapolate.inspection.settings import InspectionSettings
from extrapolate.model.config import ModelConfig
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs.settings import AUTO, Flagged, Section, flagged_fields

FILE = Path(api.__file__).parent / "settings.py"
SECTIONS = {"training": TrainingConfig, "model": ModelConfig, "evaluate": EvaluationSettings}
CLASSES = {"extend": "ExtensionClass"}  # what may be given in place of a text, by the setting
# What each call takes by name, beside the parameters that it lists itself.
CALLS = {
    "TrainingArguments": ("train", (TrainingConfig, ModelConfig)),
    "TextArguments": ("evaluate", (TextSettings, RunsOnText)),
    "ProbeArguments": ("evaluate_probes", (SharedSettings, RunsOnText)),
    "InspectionArguments": ("inspect", (InspectionSettings, RunsOnText)),
    "RowArguments": ("report", (WhichRows,)),
    "OpeningArguments": ("evaluate_tasks", (OpenedRuns,)),
}


def table() -> str:
    """A row for every setting that has a flag, and a line that names the others."""
    lines = ["| setting | flag | section | default | what it is |", "|---|---|---|---|---|"]
    others = []
    for title, section in SECTIONS.items():
        flagged = flagged_fields(section)
        fields = section.model_fields if issubclass(section, Section) else {}
        others += [f"`{title}.{name}`" for name in fields if name not in {one.name for one in flagged}]
        for one in flagged:
            field = fields.get(one.name)
            default = one.default if field is None or field.is_required() else field.default
            usual = usual_of(one) or (AUTO if one.flag.auto else "" if default in (None, ()) else shown(default))
            help = registered.filled(one.flag.help)
            lines.append(f"| `{one.name}` | `{flag_name(one)}` | `{title}` | {usual} | {help} |")
    return "\n".join([*lines, "", f"These have no flag: {', '.join(others)}."])


def shown(default: Any) -> str:
    """A default as a reader writes it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def typed() -> str:
    """extrapolate/api/settings.py: what the calls take as `**settings`, for editors and type checkers."""
    lines = [
        '"""Made by `make docs` from the fields of settings, for editors and type checkers: what calls take."""',
        "",
        "from collections.abc import Mapping, Sequence",
        "from pathlib import Path",
        "from typing import TYPE_CHECKING, Literal, TypedDict",
        "",
        "if TYPE_CHECKING:",
        "    from extrapolate.api.own_class import ExtensionClass",
        "    from extrapolate.data.store import Store",
    ]
    for name, (call, sections) in CALLS.items():
        lines += ["", "", f"class {name}(TypedDict, total=False):", f'    """Of `xt.{call}`."""', ""]
        lines += [f"    {one.name}: {written(one)}" for section in sections for one in flagged_fields(section)]
    return "\n".join([*lines, ""])


def written(flagged: Flagged) -> str:
    """A type as Python code has it, and None if that is the default; a list may be given as one value."""
    kinds = [_code(kind) for kind in flagged.kinds()] + (["None"] if flagged.default is None else [])
    text = " | ".join(kinds)
    if own := CLASSES.get(flagged.name):
        text = re.sub(r"\bstr\b", f"str | {own}", text)
    return f'"{text}"' if "Store" in kinds or own else text


def _code(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    if get_origin(kind) is tuple:
        element = get_args(kind)[0].__name__
        return f"{element} | Sequence[{element}]"
    if get_origin(kind) is None:
        return str(kind.__name__)
    return re.sub(r"\b(typing|collections\.abc)\.", "", str(kind)).replace("'", '"')
