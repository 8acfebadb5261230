"""Tokenising: from documents to a token store, which is there whole or not at all."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import construction
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.construction import Construction
from extrapolate.data.documents import Document, Lasting, Source
from extrapolate.data.heldout import Learning
from extrapolate.data.manifest import FORMAT
from extrapolate.data.passages import SKETCH
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import Process
from extrapolate.data.tokenizing import encoded
from extrapolate.errors import UserError
from extrapolate.machine.limits import cores

BATCH_CHARACTERS = 1_000_000
SEEN = ".source"  # in a store: the fingerprint that its source had then. While it has it, no file need be read again
READING, LEARNING, ENCODING = "reading", "training BPE", "tokenising"  # the stages of `progress`


@dataclass(frozen=True)
class StoreSettings:
    """How a store is made. Counts are in tokens; a maximum of None means all there is."""

    source: str = "stdlib"
    text_field: str = "text"
    vocab_size: int = 2048
    tokenizer: str | None = None
    min_doc_tokens: int = 1
    max_tokens: int | None = None
    min_heldout_tokens: int = 8193
    dedup: bool = True


def build_store(
    source: Source,
    settings: StoreSettings,
    out: Path,
    progress: Callable[[str, int], None] = lambda stage, amount: None,
    workers: int | None = None,
) -> Store:
    """Tokenises a source into a new store at `out`, which appears under its name only when it is whole.

    Documents shorter than min_doc_tokens and repeated documents are left out. Of the documents of at least
    min_heldout_tokens, a quarter (by hash, at most 256, and 8 M tokens) become the test split, a twentieth (at most 64,
    and 2 M tokens) the validation split. Near-duplicates go into one split, unless `dedup` is False. A tokenizer is
    learned from training documents alone: those of the first 100 M characters that `Learning` allows.
    `progress(stage, bytes)` is called as text is read. workers: processes that encode (default: one a core). Memory
    does not grow with the source. If the source is a `Lasting` one and the work was killed or failed, the same call
    resumes it. Raises UserError on unusable input.
    """
    made_from = _made_from(source, settings)

    def goes_on(folder: Path) -> bool:
        return made_from is not None and construction.can_go_on(folder, made_from)

    with files.new_folder(out, goes_on=goes_on) as folder:
        _build(source, settings, folder, made_from or {}, progress, workers or cores())
    return Store.open(out)


def _made_from(source: Source, settings: StoreSettings) -> dict[str, Any] | None:
    """What decides every byte of the store; None if that is not known."""
    if not isinstance(source, Lasting) or (there := source.fingerprint()) is None:
        return None
    tokenizer = None if settings.tokenizer is None else tokenizers.load(settings.tokenizer).to_str()
    return {"settings": vars(settings), "source": there, "tokenizer": tokenizer, "sketch": SKETCH}


def _build(
    source: Source,
    settings: StoreSettings,
    folder: Path,
    made_from: dict[str, Any],
    progress: Callable[[str, int], None],
    workers: int,
) -> None:
    if not any(folder.iterdir()):
        construction.begin(folder, made_from, *_tokenizer(source, settings, progress, workers))
    # Synthetic documents are all of one length, so that none is too short.
    least = 1 if isinstance(source, Process) else settings.min_heldout_tokens
    # Two of them are alike by chance alone.
    dedup = settings.dedup and not isinstance(source, Process)
    with closing(Construction(folder, settings.min_doc_tokens, settings.max_tokens, least, dedup)) as store:
        if not store.whole:
            progress(ENCODING, store.read_bytes)
            batches = _batches(islice(source, store.read, None))
            with closing(encoded(batches, store.tokenizer, store.dtype, workers, dedup)) as done:
                for document, found in done:
                    progress(ENCODING, found.size)
                    if not store.take(document.id, found, document.split):
                        break
            store.end()
        if not store.documents:
            limit = "" if settings.max_tokens is None else f" within `max_tokens={settings.max_tokens}`"
            raise UserError(f"{settings.source} holds no document of at least {settings.min_doc_tokens} tokens{limit}")
        manifest = {"format": FORMAT, "source": settings.source, "settings": vars(settings), **store.finish()}
        manifest["source_content"] = source.content() if isinstance(source, Lasting) else None
        if manifest["source_content"] is not None:
            files.write_text(folder / SEEN, made_from["source"])
        files.write_sealed(folder / "manifest.json", manifest)
        store.remove_scaffold()


def _tokenizer(
    source: Source, settings: StoreSettings, progress: Callable[[str, int], None], workers: int
) -> tuple[Tokenizer, bytes | None]:
    """The tokenizer, and the bound of what it did not learn from (see `Learning`), None if it was not learned."""
    if isinstance(source, Process):
        if settings.tokenizer is not None:
            raise UserError(f"{settings.source} has a token for every state: leave `tokenizer` out")
        return source.tokenizer(), None
    if settings.tokenizer is not None:
        return tokenizers.load(settings.tokenizer), None
    learning = Learning.of(
        source, settings.min_heldout_tokens, tokenizers.TRAINING_CHARACTERS, partial(progress, READING)
    )
    texts = learning.texts(source, partial(progress, LEARNING))
    return tokenizers.learn_bpe(texts, settings.vocab_size, workers), learning.bound


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
