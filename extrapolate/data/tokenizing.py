"""Tokenising texts on all cores.

A process encodes a text word by word and caches the tokens of every word, because most words repeat. The tokens are the
same as those of the whole text if the tokenizer splits text at least as finely: see `splits_into_words`. Other
tokenizers encode whole documents.
"""

import hashlib
import json
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection
from queue import SimpleQueue

from tokenizers import Tokenizer

from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.documents import Document, first
from extrapolate.data.passages import passages
from extrapolate.data.tokenizer import blocks, words
from extrapolate.errors import UserError
from extrapolate.machine.children import Child, reply, tokenizing

SMALL_CHARACTERS = 4_000_000  # encoding this takes less time than starting processes
WORDS_KEPT = 2**20  # in all processes together, about 200 MB
LONGEST_KEPT = 32  # characters of a word
BLOCK_CHARACTERS = 2**20  # split into words at a time


def splits_into_words(tokenizer: Tokenizer) -> bool:
    """Whether a text's tokens are those of its words, as with the byte-level BPE of GPT-2 and of this package.

    Such a tokenizer first cuts text by a pattern that never crosses words, and adds nothing.
    """
    settings = json.loads(tokenizer.to_str())
    splitter, model = settings["pre_tokenizer"] or {}, settings["model"]
    return (
        settings["normalizer"] is None
        and splitter.get("type") == "ByteLevel"
        and not splitter["add_prefix_space"]
        and splitter.get("use_regex", True)
        and all(token["special"] for token in settings["added_tokens"])
        and model["type"] == "BPE"
        and not model["dropout"]
    )


class Encoder:
    """Encodes a text: its tokens and the end-of-text token, `eos`, as bytes of uint16 or uint32."""

    def __init__(self, tokenizer: Tokenizer, eos: int, dtype: str, words_kept: int = WORDS_KEPT) -> None:
        tokenizer.encode_special_tokens = True  # if a document spells a special token, it is plain text
        self._tokenizer, self._code = tokenizer, {"uint16": "H", "uint32": "I"}[dtype]
        self._eos, self._end = eos, array(self._code, [eos]).tobytes()
        self._by_words = splits_into_words(tokenizer)
        self._words = _Words(self._encode, words_kept)

    def __call__(self, text: str) -> bytes:
        """Raises UserError if the tokenizer fails on the text."""
        if not self._by_words:
            return self._encode(text) + self._end
        lookup = self._words.__getitem__
        parts = [b"".join(map(lookup, words(block))) for block in blocks(text, BLOCK_CHARACTERS)]
        return b"".join((*parts, self._end))

    def _encode(self, text: str) -> bytes:
        ids = tokenizers.encode(self._tokenizer, [text])[0].ids
        if self._eos in ids:
            raise UserError(
                f"a document spells the tokenizer's end-of-text token, {self._tokenizer.id_to_token(self._eos)}, which "
                "would end it there: mark the token as special in tokenizer.json, or change the text"
            )
        return array(self._code, ids).tobytes()


class _Words(dict[str, bytes]):
    """A cache of the tokens of words, which keeps the `most` words used most recently."""

    def __init__(self, encode: Callable[[str], bytes], most: int) -> None:
        self._encode, self._half, self._before = encode, most // 2, dict[str, bytes]()

    def __missing__(self, word: str) -> bytes:
        tokens = self._before.get(word)
        if tokens is None:
            tokens = self._encode(word)
        if len(word) <= LONGEST_KEPT:
            if len(self) >= self._half:
                self._before = dict(self)
                self.clear()
            self[word] = tokens
        return tokens


@dataclass(frozen=True)
class Encoded:
    """What the store keeps of a text: the SHA-256 and size of its UTF-8, and its tokens and passages, as bytes."""

    digest: bytes
    size: int
    tokens: bytes
    passages: bytes = b""

    @classmethod
    def of(cls, text: str, encoder: Encoder, sketched: bool) -> "Encoded":
        """Encodes a text, with its passages if `sketched`. Raises UserError if the tokenizer fails on it."""
        content = text.encode()
        found = passages(content).tobytes() if sketched else b""
        return cls(hashlib.sha256(content).digest(), len(content), encoder(text), found)


def encoded(
    batches: Iterable[list[Document]], tokenizer: Tokenizer, eos: int, dtype: str, workers: int, sketched: bool = False
) -> Generator[tuple[Document, Encoded], None, None]:
    """Encodes every document of every batch, in order, with a few batches in memory at a time.

    eos: the token after each. workers: the number of processes; a small source is encoded in this process. sketched:
    whether to find the passages of every text. Raises UserError if the tokenizer fails on a text, RuntimeError if a
    process is killed.
    """
    batches = iter(batches)
    held, more = first(batches, SMALL_CHARACTERS, lambda batch: sum(len(document.text) for document in batch))
    if not more:
        encoder = Encoder(tokenizer, eos, dtype)
        yield from ((document, Encoded.of(document.text, encoder, sketched)) for batch in held for document in batch)
        return
    with _Workers(tokenizer, eos, dtype, workers, sketched) as pool:
        yield from pool.encoded(chain(held, batches))


class _Workers:
    """Encoding processes. Each has a thread here that sends it batches and waits for the tokens."""

    def __init__(self, tokenizer: Tokenizer, eos: int, dtype: str, workers: int, sketched: bool) -> None:
        self._children: list[Child] = []
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self._threads = ThreadPoolExecutor(workers)
        self._in_flight = workers + 2
        try:
            for _ in range(workers):
                child = Child(serve, "a process that tokenises", tokenizing(1))
                self._children.append(child)
                child.send((tokenizer.to_str(), eos, dtype, WORDS_KEPT // workers, sketched))
                self._idle.put(child)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:  # which ends the wait of its thread
            child.kill()
        self._threads.shutdown(cancel_futures=True)
        for child in self._children:
            child.end()

    def encoded(self, batches: Iterable[list[Document]]) -> Iterator[tuple[Document, Encoded]]:
        waiting: deque[tuple[list[Document], Future[list[Encoded]]]] = deque()
        for batch in batches:
            waiting.append((batch, self._threads.submit(self._encode, batch)))
            if len(waiting) == self._in_flight:
                yield from _done(*waiting.popleft())
        while waiting:
            yield from _done(*waiting.popleft())

    def _encode(self, batch: list[Document]) -> list[Encoded]:
        child = self._idle.get()
        try:
            child.send([document.text for document in batch])
            return child.receive()
        finally:
            self._idle.put(child)


def _done(batch: list[Document], future: Future[list[Encoded]]) -> Iterator[tuple[Document, Encoded]]:
    return zip(batch, future.result(), strict=True)


def serve(connection: Connection) -> None:
    """The encoding process: receives a tokenizer, then batches of texts, and replies with the tokens of each."""
    settings, eos, dtype, words_kept, sketched = connection.recv()
    encoder = Encoder(Tokenizer.from_str(settings), eos, dtype, words_kept)
    while True:
        reply(connection, [Encoded.of(text, encoder, sketched) for text in connection.recv()])
