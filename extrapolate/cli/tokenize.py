"""extrapolate tokenize"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from extrapolate.data.store import StoreSettings


def tokenize(
    source: Annotated[
        str,
        typer.Argument(
            help="stdlib, a .txt .md .jsonl or .parquet file, a folder, a glob, hf:NAME[:CONFIG[:SPLIT]], or text "
            "with a known optimum: synthetic:markov, synthetic:echo:longest=512"
        ),
    ] = "stdlib",
    out: Annotated[Path, typer.Option(help="the new token store")] = Path("data/stdlib"),
    vocab_size: Annotated[int, typer.Option(help="tokens of the byte-level BPE that is trained")] = 2048,
    tokenizer: Annotated[str | None, typer.Option(help="use this tokenizer.json, or hf:NAME, instead")] = None,
    min_doc_tokens: Annotated[int, typer.Option(min=1, help="leave out shorter documents")] = 1,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="stop before the document that passes this")] = None,
    min_heldout_tokens: Annotated[
        int, typer.Option(min=2, help="documents held out for testing have at least this many tokens")
    ] = 8193,
    text_field: Annotated[
        str, typer.Option(help="the column of text in .jsonl, .parquet and Hugging Face data")
    ] = "text",
    workers: Annotated[int | None, typer.Option(min=1, help="threads  \\[default: one a core]")] = None,
) -> None:
    """Turn documents into a token store, with held-out documents for validation and testing."""
    if workers is not None:
        os.environ["RAYON_NUM_THREADS"] = str(workers)
    from extrapolate.cli.progress import say
    from extrapolate.data.store import StoreSettings

    settings = StoreSettings(source, text_field, vocab_size, tokenizer, min_doc_tokens, max_tokens, min_heldout_tokens)
    fresh = make_store(settings, out)
    if not fresh:
        say(f"{out} is already there, made with the same settings: nothing to do")


def make_store(settings: "StoreSettings", out: Path) -> bool:
    """Tokenises into `out` unless the same store is there already; says whether it did. ValueError on another store."""
    from extrapolate.cli.progress import Progress, say
    from extrapolate.data import sources
    from extrapolate.data.store import Store, build

    if out.exists():
        if not (out / "manifest.json").exists():
            raise ValueError(f"{out} already exists and is not a token store; choose another --out")
        existing = Store.open(out).manifest["settings"]
        if existing == vars(settings):
            return False
        changed = [f"{k}: {existing.get(k)} there, {v} now" for k, v in vars(settings).items() if existing.get(k) != v]
        raise ValueError(f"{out} is another token store ({'; '.join(changed)}); choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with Progress("characters", stopped="stopped; nothing was written") as progress:
        done: dict[str, int] = {}

        def advance(stage: str, amount: int) -> None:
            done[stage] = done.get(stage, 0) + amount
            progress.update(f"{stage} {settings.source}", done[stage])

        store = build(sources.open_source(settings.source, settings.text_field), settings, out, advance)
    for name, split in store.manifest["splits"].items():
        say(
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, "
            f"the longest {split['longest_document']:,}"
        )
    say(f"wrote {out}: vocabulary {store.vocab_size}, corpus {store.corpus_hash}")
    return True
