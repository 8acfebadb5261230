"""extrapolate train"""

from pathlib import Path
from shlex import quote
from typing import Any

import typer

from extrapolate.api.train import train as call
from extrapolate.cli.command_of import command_of
from extrapolate.cli.flags import CommandLine
from extrapolate.folders import RUN_FILE
from extrapolate.terminal import say


@command_of(call, panels=("Model", "Data", "Training", "The run", "Machine", "From settings or a run"))
def train(ctx: typer.Context, **given: Any) -> None:
    """Train one model. Flags win over --config, which wins over --preset."""
    if _told_otherwise(given):
        for name in ("data", "device"):
            if getattr(ctx.get_parameter_source(name), "name", "") == "ENVIRONMENT":
                del given[name]
    run = call(**given, progress=CommandLine())
    say(f"evaluate it with: extrapolate eval-lengths {quote(str(run.path))}")


def _told_otherwise(given: dict[str, Any]) -> bool:
    """Whether a file of settings or another run decides, so that the environment's defaults do not."""
    out: Path | None = given["out"]
    resumed = given["resume"] and out is not None and (out / RUN_FILE).is_file()
    return given["config"] is not None or given["start"] is not None or resumed
