"""extrapolate tokenize"""

from pathlib import Path
from typing import Annotated

import typer

from extrapolate.cli import registered
from extrapolate.cli.flags import CommandLine


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

    Some documents are held out for validation and testing. Where it is stopped or killed, the same command goes on.
    """
    from extrapolate.api.tokenize import tokenize as tokenized

    tokenized(
        source, out, vocab_size=vocab_size, tokenizer=tokenizer, min_doc_tokens=min_doc_tokens, max_tokens=max_tokens,
        min_heldout_tokens=min_heldout_tokens, text_field=text_field, dedup=dedup, workers=workers,
        progress=CommandLine(),
    )  # fmt: skip
