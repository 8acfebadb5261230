"""extrapolate tokenize, extrapolate train and extrapolate export"""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from extrapolate.api.train import train as call
from extrapolate.cli import registered
from extrapolate.cli.flags import AsJson, CommandLine, command_of
from extrapolate.folders import RUN_FILE
from extrapolate.terminal import say


def tokenize(
    source: Annotated[
        str,
        typer.Argument(help=f"{registered.sources()}; with arguments, such as synthetic:echo:longest=512"),
    ] = "stdlib",
    out: Annotated[Path, typer.Option(help="the folder of the token store")] = Path("data/stdlib"),
    vocab_size: Annotated[int, typer.Option(help="how many tokens the new byte-level BPE has")] = 2048,
    tokenizer: Annotated[str | None, typer.Option(help="use this tokenizer.json, or hf:NAME; train none")] = None,
    min_doc_tokens: Annotated[int, typer.Option(min=1, help="leave out documents with fewer tokens")] = 1,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="stop before the document that passes this number")
    ] = None,
    min_heldout_tokens: Annotated[
        int, typer.Option(min=2, help="documents held out for testing have at least this many tokens")
    ] = 8193,
    text_field: Annotated[
        str, typer.Option(help="the column of text in .jsonl, .parquet and Hugging Face data")
    ] = "text",
    dedup: Annotated[
        bool, typer.Option(help="keep near-duplicates, such as editions of one book, in one split")
    ] = True,
    workers: Annotated[int | None, typer.Option(min=1, help="number of processes  [default: one a core]")] = None,
) -> None:
    """Turn documents into a token store.

    Some documents are held out for validation and testing. If it is stopped or killed, the same command continues it.
    """
    from extrapolate.api.tokenize import tokenize as tokenized

    tokenized(
        source, out, vocab_size=vocab_size, tokenizer=tokenizer, min_doc_tokens=min_doc_tokens, max_tokens=max_tokens,
        min_heldout_tokens=min_heldout_tokens, text_field=text_field, dedup=dedup, workers=workers,
        progress=CommandLine(),
    )  # fmt: skip


@command_of(call, panels=("Model", "Data", "Training", "The run", "Machine", "From settings or a run"))
def train(ctx: typer.Context, **given: Any) -> None:
    """Train one model. Flags win over --config, which wins over --preset."""
    out: Path | None = given["out"]
    resumed = given["resume"] and out is not None and (out / RUN_FILE).is_file()
    if given["config"] is not None or given["start"] is not None or resumed:  # these win over the environment
        for name in ("data", "device"):
            if getattr(ctx.get_parameter_source(name), "name", "") == "ENVIRONMENT":
                del given[name]
    run = call(**given, progress=CommandLine())
    say(f"evaluate it with: extrapolate eval-lengths {quote(str(run.path))}")


def export(
    run: Annotated[Path, typer.Argument(help="a trained run, or hf:NAME_OR_FOLDER")],
    out: Annotated[Path, typer.Option(help="the new folder to write")],
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="run Python files that came with the run; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a run as a folder that transformers loads.

    The folder has the tokenizer and a model card, and the model's code if transformers has no class for the encoding.
    """
    from extrapolate.api.run import export as exported
    from extrapolate.cli.render import print_json

    made = exported(run, out, trust_code=trust_code)
    if as_json:
        print_json([made.row()])
        return
    own = "the code is in the folder: load it with trust_remote_code=True" if made.remote_code else "of transformers"
    say(f"wrote {out}/: {made.architecture}, {own}" + ("" if made.use_cache else "; it generates without a cache"))
