"""Building a token store from documents; it appears whole or not at all."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import construction, special_tokens
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.construction import Construction
from extrapolate.data.documents import Document, Lasting, Source, first
from extrapolate.data.heldout import Learning
from extrapolate.data.passages import SKETCH
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import Process
from extrapolate.data.tokenizing import encoded
from extrapolate.errors import UserError
from extrapolate.machine.limits import cores

BATCH_CHARACTERS = 1_000_000
SEEN = ".source"  # a file of a store: the fingerprint of its source then. If unchanged, no file need be read again
READING, LEARNING, ENCODING = "reading", "training BPE", "tokenising"  # the stages of `progress`


@dataclass(frozen=True)
class StoreSettings:
    """How to build a store. Counts are in tokens; a maximum of None means no limit."""

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
    """Tokenises a source into a new store at `out`, which appears under its name only when it is complete.

    Documents shorter than min_doc_tokens and repeated documents are left out. Of the documents of at least
    min_heldout_tokens, a quarter (by hash, at most 256, and 8 M tokens) become the test split, a twentieth (at most 64,
    and 2 M tokens) the validation split. Near-duplicates go into one split, unless `dedup` is False. The tokenizer is
    trained on training documents only, from the first 100 M characters (see `Learning`).
    `progress(stage, bytes)` is called as text is read. workers: the number of encoding processes (default: one per
    core). Memory does not grow with the source. After a failure or a kill, the same call resumes the work if the
    source is `Lasting`. Raises UserError on unusable input.
    """
    made_from = _made_from(source, settings)

    def goes_on(folder: Path) -> bool:
        return made_from is not None and construction.can_go_on(folder, made_from)

    with files.new_folder(out, goes_on=goes_on) as folder:
        _build(source, settings, folder, made_from or {}, progress, workers or cores())
    return Store.open(out)


def _made_from(source: Source, settings: StoreSettings) -> dict[str, Any] | None:
    """Everything that decides the bytes of the store; None if unknown."""
    if not isinstance(source, Lasting) or (there := source.fingerprint()) is None:
        return None
    own = None
    if settings.tokenizer is not None:
        tokenizer, special = tokenizers.load(settings.tokenizer)
        own = {"json": tokenizer.to_str(), "eos": special.eos[0]}
    return {"settings": vars(settings), "source": there, "tokenizer": own, "sketch": SKETCH}


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
    # Synthetic documents all have the same length, and are alike only by chance.
    least = 1 if isinstance(source, Process) else settings.min_heldout_tokens
    dedup = settings.dedup and not isinstance(source, Process)
    with closing(Construction(folder, settings.min_doc_tokens, settings.max_tokens, least, dedup)) as store:
        if not store.whole:
            progress(ENCODING, store.read_bytes)
            batches = _batches(islice(source, store.read, None))
            with closing(encoded(batches, store.tokenizer, store.eos_id, store.dtype, workers, dedup)) as done:
                for document, found in done:
                    progress(ENCODING, found.size)
                    if not store.take(document.id, found, document.split):
                        break
            store.end()
        if not store.documents:
            limit = "" if settings.max_tokens is None else f" within `max_tokens={settings.max_tokens}`"
            raise UserError(f"{settings.source} holds no document of at least {settings.min_doc_tokens} tokens{limit}")
        manifest = {"format": files.FORMAT, "source": settings.source, "settings": vars(settings), **store.finish()}
        manifest["source_content"] = source.content() if isinstance(source, Lasting) else None
        if isinstance(source, Lasting) and made_from and source.fingerprint() != made_from["source"]:
            raise UserError(f"{settings.source} changed while it was tokenised: tokenise it again")
        if manifest["source_content"] is not None:
            files.write_text(folder / SEEN, made_from["source"])
        files.write_sealed(folder / "manifest.json", manifest)
        store.remove_scaffold()


def _tokenizer(
    source: Source, settings: StoreSettings, progress: Callable[[str, int], None], workers: int
) -> tuple[Tokenizer, int, bytes | None]:
    """The tokenizer, its end-of-text token, and the bound of `Learning`; None if it was not trained here."""
    if isinstance(source, Process):
        if settings.tokenizer is not None:
            raise UserError(f"{settings.source} has a token for every state: leave `tokenizer` out")
        made = source.tokenizer()
        return made, special_tokens.find(made).eos[0], None
    if settings.tokenizer is not None:
        tokenizer, special = tokenizers.load(settings.tokenizer)
        return tokenizer, special.eos[0], None
    learning = Learning.of(
        source, settings.min_heldout_tokens, tokenizers.TRAINING_CHARACTERS, partial(progress, READING)
    )
    texts = learning.texts(source, partial(progress, LEARNING))
    learned = tokenizers.learn_bpe(texts, settings.vocab_size, workers)
    return learned, special_tokens.find(learned).eos[0], learning.bound


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    while batch := first(documents, BATCH_CHARACTERS, lambda document: len(document.text))[0]:
        yield batch
