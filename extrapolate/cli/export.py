"""extrapolate export"""

from pathlib import Path
from typing import Annotated

import typer

from extrapolate.cli.flags import AsJson


def export(
    run: Annotated[Path, typer.Argument(help="a trained run")],
    out: Annotated[Path, typer.Option(help="the new folder to write")],
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="run Python files that came with the run; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run as a folder that transformers loads.

    With its tokenizer and a model card. Where transformers has no class for the encoding, the folder holds the code of
    the model.
    """
    from extrapolate.api.export import export as exported
    from extrapolate.cli.render import print_json
    from extrapolate.terminal import say

    made = exported(run, out, trust_code=trust_code)
    if as_json:
        print_json([made.row()])
        return
    own = "the code is in the folder: load it with trust_remote_code=True" if made.remote_code else "of transformers"
    say(f"wrote {out}/: {made.architecture}, {own}" + ("" if made.use_cache else "; it generates without a cache"))
