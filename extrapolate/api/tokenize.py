"""xt.tokenize"""

from pathlib import Path

from extrapolate import files
from extrapolate.data import sources
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress

DEFAULT_STORE = Path("data/stdlib")


def tokenize(
    source: str = "stdlib",
    out: str | Path = DEFAULT_STORE,
    *,
    vocab_size: int = 2048,
    tokenizer: str | None = None,
    min_doc_tokens: int = 1,
    max_tokens: int | None = None,
    min_heldout_tokens: int = 8193,
    text_field: str = "text",
    progress: Progress = QUIET,
) -> Store:
    """Turns documents into a token store, with held-out documents for validation and testing.

    source: `stdlib`, a file, a folder, a glob, `hf:NAME[:CONFIG[:SPLIT]]` or `synthetic:PROCESS`. out: the new folder;
    where it holds the same store already, that one is opened and nothing is written. vocab_size: tokens of the
    byte-level BPE that is trained, unless `tokenizer` names a `tokenizer.json` or `hf:NAME`. min_doc_tokens: shorter
    documents are left out. max_tokens: the store ends before the document that passes it (default: all).
    min_heldout_tokens: held-out documents have at least so many tokens. text_field: the column of text in `.jsonl`,
    `.parquet` and Hugging Face data.

    Raises UserError where the source cannot be read, or `out` holds something else.
    """
    settings = StoreSettings(source, text_field, vocab_size, tokenizer, min_doc_tokens, max_tokens, min_heldout_tokens)
    return store_with(settings, Path(out), progress)


def store_with(settings: StoreSettings, out: Path, progress: Progress) -> Store:
    """The store that is made with some settings: opened where it is there, else made. UserError on another store."""
    if out.exists():
        files.tidy(out)
        if not (out / "manifest.json").exists():
            raise UserError(f"{out} already exists and is not a token store; choose another `out`")
        store = Store.open(out)
        there = store.manifest["settings"]
        if there == vars(settings):
            progress.say(f"{out} is already there, made with the same settings: nothing to do")
            return store
        changed = [f"{k}: {there.get(k)} there, {v} now" for k, v in vars(settings).items() if there.get(k) != v]
        raise UserError(f"{out} is another token store ({'; '.join(changed)}); choose another `out`")
    out.parent.mkdir(parents=True, exist_ok=True)
    with progress.display("characters", stopped="stopped; nothing was written") as display:
        done: dict[str, int] = {}

        def advance(stage: str, amount: int) -> None:
            done[stage] = done.get(stage, 0) + amount
            display.update(f"{stage} {settings.source}", done[stage])

        store = build_store(sources.open_source(settings.source, settings.text_field), settings, out, advance)
    for name, split in store.manifest["splits"].items():
        progress.say(
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, "
            f"the longest {split['longest_document']:,}"
        )
    progress.say(f"wrote {out}: vocabulary {store.vocab_size}, corpus {store.corpus_hash}")
    return store


def default_store(progress: Progress) -> Store:
    """The default corpus, tokenised on first use."""
    if DEFAULT_STORE.exists():
        return Store.open(DEFAULT_STORE)
    progress.say(f"no `data` is given: tokenising this Python's standard library into {DEFAULT_STORE}")
    return store_with(StoreSettings(), DEFAULT_STORE, progress)
