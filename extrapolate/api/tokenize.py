"""xt.tokenize"""

from contextlib import ExitStack
from pathlib import Path

from extrapolate.data import sources
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.build import ENCODING, SEEN, StoreSettings, build_store
from extrapolate.data.documents import Files, Lasting, Source
from extrapolate.data.sources.synthetic import PREFIX as SYNTHETIC
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import TRAINING_CHARACTERS
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress, warn
from extrapolate.specs import arguments
from extrapolate.statistics.reach import too_short

DEFAULT_STORE = Path("data/stdlib")
OTHER_TEXT = "{} holds other text than the store was made from"
STOPPED = "stopped; run the same command again to go on"


def tokenize(
    source: str | Path = "stdlib",
    out: str | Path = DEFAULT_STORE,
    *,
    vocab_size: int = 2048,
    tokenizer: str | Path | None = None,
    min_doc_tokens: int = 1,
    max_tokens: int | None = None,
    min_heldout_tokens: int = 8193,
    text_field: str = "text",
    dedup: bool = True,
    workers: int | None = None,
    progress: Progress = QUIET,
) -> Store:
    """Turns documents into a token store, with held-out documents for validation and testing.

    source: `stdlib`, a file, a folder, a glob, `hf:NAME[:CONFIG[:SPLIT]]` or `synthetic:PROCESS`. out: the new folder;
    if it already holds a store made with the same settings, text and tokenizer, that store is opened and nothing is
    written. vocab_size: the size of the byte-level BPE to train, unless `tokenizer` names a `tokenizer.json` or
    `hf:NAME`. min_doc_tokens: shorter documents are left out. max_tokens: the store ends before the first document that
    would exceed it (default: no limit). min_heldout_tokens: the minimum length of a held-out document. text_field: the
    column with the text in `.jsonl`, `.parquet` and Hugging Face data. dedup: keep near-duplicates, such as editions of
    one book, in one split. workers: the number of encoding processes (default: one per core).

    Memory use does not grow with the source. After Ctrl-C or a kill, the same call continues from the last finished
    file of the store, unless the source has changed.

    Raises UserError if the source cannot be read, or if `out` holds something else, including a store made with the
    same settings from files that have changed since. Changes of a dataset on the Hub cannot be detected.
    """
    arguments.check("source", source, ((str, Path), "a source"))
    if tokenizer is not None:
        arguments.check("tokenizer", tokenizer, arguments.PATH)
        tokenizer = str(tokenizer)
    settings = StoreSettings(
        str(source), text_field, vocab_size, tokenizer, min_doc_tokens, max_tokens, min_heldout_tokens, dedup
    )
    return store_with(settings, arguments.path("out", out), progress, workers)


def store_with(settings: StoreSettings, out: Path, progress: Progress, workers: int | None = None) -> Store:
    """Opens the store in `out`, or makes it with these settings if there is none.

    Raises UserError if `out` holds a store with other settings or of other text.
    """
    if out.exists():
        return store_there(settings, out, progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    source = sources.open_source(settings.source, settings.text_field)
    if isinstance(source, Files) and source.skipped:
        progress.say(f"not read in {settings.source}: {source.skipped}")
    for note in tokenizers.load(settings.tokenizer)[1].notes if settings.tokenizer is not None else ():
        progress.say(note)
    with _Stages(progress, settings.source, source) as stages:
        store = build_store(source, settings, out, stages.advance, workers)
    for name, split in store.manifest["splits"].items():
        progress.say(
            f"{name}: {split['documents']:,} documents, {split['tokens']:,} tokens, "
            f"the longest {split['longest_document']:,}"
        )
    if without := store.manifest["without_text"]:
        progress.say(f"left out {without:,} documents without text: null or empty")
    if (column := store.manifest["split_column"]) == "used":
        progress.say(f"the splits are those that the column 'split' of {settings.source} names")
    elif column == "not used":
        progress.say(
            "the column 'split' was not used, for it does not name the split of every document, or not all of train, "
            "validation and test: held-out documents were drawn by hash"
        )
    if (near := store.manifest["near_duplicates"]) is not None:
        kept = f", each kept in one split, of which {near['apart']:,} would be apart" if near["pairs"] else ""
        if column == "used":
            kept = f", of which {near['apart']:,} stand in two of these splits"
        progress.say(f"near-duplicates: {near['pairs']:,} pairs{kept}")
    tested_D = store.split("test").lengths
    reached = (too_short(tested_D, [length], length) for length in (2**power for power in range(10, 25)))  # N is 16 L
    progress.say(f"test: {next(filter(None, reached))}")
    if not store.lossless:
        found = store.manifest["round_trip"]
        warn(
            progress,
            f"warning: the tokenizer is lossy: decoding gives another text for {found['changed']:,} of "
            f"{found['documents']:,} held-out documents; bits per byte will be n/a",
        )
    progress.say(f"wrote {out}: vocabulary {store.vocab_size}, corpus {store.corpus_hash}")
    return store


def store_there(settings: StoreSettings, out: Path, progress: Progress) -> Store:
    """Opens the store in the folder `out` and writes nothing. Raises UserError as `store_with` does."""
    if not (out / "manifest.json").exists():
        raise UserError(f"{out} already exists and is not a token store; choose another `out`")
    store = Store.open(out)
    if (there := store.manifest["settings"]) != vars(settings):
        changed = [f"{k}: {there.get(k)} there, {v} now" for k, v in vars(settings).items() if there.get(k) != v]
        raise UserError(f"{out} is another token store ({'; '.join(changed)}); choose another `out`")
    unknown = []
    for same, what, other in (
        (
            _same_text(store, settings),
            f"{settings.source} still holds the same text",
            OTHER_TEXT.format(settings.source),
        ),
        (
            _same_tokenizer(store, settings),
            f"{settings.tokenizer} is still the same tokenizer",
            f"{settings.tokenizer} holds another tokenizer than the store was made with",
        ),
    ):
        if same is None:
            unknown.append(what)
        elif not same:
            raise UserError(f"{out} was made with the same settings, but {other}; choose another `out`, or delete it")
    doubt = f" (whether {' and '.join(unknown)} is not known)" if unknown else ""
    progress.say(f"{out} is already there, made with the same settings: nothing to do{doubt}")
    return store


def _same_tokenizer(store: Store, settings: StoreSettings) -> bool | None:
    """Whether the file that a store's tokenizer was read from still holds it; None if it is gone, or on the Hub."""
    if settings.tokenizer is None:
        return True  # it was trained on the text
    if tokenizers.on_hub(settings.tokenizer):
        return None
    try:
        now, special = tokenizers.load(settings.tokenizer)
    except UserError:
        return None
    return now.to_str() == store.tokenizer().to_str() and special.eos[0] == store.manifest["eos_id"]


def _same_text(store: Store, settings: StoreSettings) -> bool | None:
    """Whether the source of a store still holds the text that the store was made from; None if that is not known."""
    if settings.source.startswith(SYNTHETIC):
        return True  # the settings determine it
    recorded: str | None = store.manifest["source_content"]
    try:
        source = sources.open_source(settings.source, settings.text_field)
    except UserError:  # it is gone
        return None
    if recorded is None or not isinstance(source, Lasting):
        return None
    seen = store.path / SEEN
    if seen.is_file() and seen.read_text("utf-8", errors="replace") == source.fingerprint():
        return True
    return source.content() == recorded


class _Stages(ExitStack):
    """Displays the progress of reading a source, first to train a BPE on it, then to encode it."""

    def __init__(self, progress: Progress, name: str, source: Source) -> None:
        super().__init__()
        self._progress, self._name = progress, name
        self._size = source.size() if isinstance(source, Lasting) else None
        self._stage, self._done = "", 0

    def advance(self, stage: str, size: int) -> None:
        """Counts `size` more bytes as read."""
        if stage != self._stage:
            self.close()
            self._display = self.enter_context(self._progress.display("MB", stopped=STOPPED))
            self._stage, self._done = stage, 0
        self._done += size
        most = None if stage == ENCODING else TRAINING_CHARACTERS
        total = self._size and max(self._done, min(self._size, most or self._size))
        self._display.update(f"{stage} {self._name}", self._done / 1e6, total and total / 1e6)


def default_store(progress: Progress) -> Store:
    """The default corpus, tokenised on first use."""
    if DEFAULT_STORE.exists():
        store = Store.open(DEFAULT_STORE)
        if store.manifest["settings"]["source"] == "stdlib" and _same_text(store, StoreSettings()) is False:
            warn(progress, f"{DEFAULT_STORE} is used as it is, but {OTHER_TEXT.format('the library of this Python')}")
        return store
    progress.say(f"no `data` is given: tokenising this Python's standard library into {DEFAULT_STORE}")
    return store_with(StoreSettings(), DEFAULT_STORE, progress)
