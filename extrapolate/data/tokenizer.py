"""Byte-level BPE tokenizers, trained or loaded, and what the token store needs to know about them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer, decoders, models, pre_tokenizers, trainers

from extrapolate.data import special_tokens
from extrapolate.data.documents import first
from extrapolate.data.hub import downloaded
from extrapolate.data.manifest import TOKENIZER
from extrapolate.data.special_tokens import EOS, SpecialTokens
from extrapolate.errors import UserError
from extrapolate.machine.children import Child, reply, tokenizing

HUB = "hf:"  # before a name on the Hugging Face Hub, or a local folder of that name
SMALLEST_VOCAB = 257  # 256 bytes and <eos>
LARGEST_VOCAB = 2**24  # models and tables of tokens have a row for every id
TRAINING_CHARACTERS = 100_000_000  # more text than this no longer changes a small BPE
SMALL_CHARACTERS = 2_000_000  # training on this takes a second or two
BLOCK_CHARACTERS = 2**16  # of text at a time: the library holds hundreds of blocks


def learn_bpe(texts: Iterable[str], vocab_size: int, workers: int) -> Tokenizer:
    """Like `train_bpe`, but trains on long text in a process with `workers` threads, which Ctrl-C ends at once."""
    texts = _first_characters(texts, TRAINING_CHARACTERS)
    held, more = first(texts, SMALL_CHARACTERS, len)
    if not more:
        return train_bpe(held, vocab_size)
    with Child(serve_training, "a process that learns a vocabulary", tokenizing(workers)) as child:
        child.send(vocab_size)
        for text in chain(held, texts):
            child.send(text)
        child.send(None)
        return Tokenizer.from_str(child.receive())


def serve_training(connection: Connection) -> None:
    """The training process: receives the size and texts up to None, and replies with the tokenizer as JSON."""
    vocab_size = connection.recv()
    reply(connection, train_bpe(iter(connection.recv, None), vocab_size).to_str())


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE of exactly `vocab_size` tokens, `<eos>` included, from the first 100 M characters.

    Words of more than 500 characters, such as text without spaces, are cut, and no token crosses a cut.

    Raises UserError if the size is out of range, or there is too little text for it.
    """
    if not SMALLEST_VOCAB <= vocab_size <= LARGEST_VOCAB:
        raise UserError(
            f"a byte-level vocabulary has between {SMALLEST_VOCAB} tokens (256 bytes and {EOS}) and "
            f"{LARGEST_VOCAB}, not {vocab_size}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with _panics("the text cannot be tokenised"):
        tokenizer.train_from_iterator(_first_characters(texts, TRAINING_CHARACTERS), trainer)
    if tokenizer.get_vocab_size() < vocab_size:
        raise UserError(
            f"the text is too little for a vocabulary of {vocab_size}: it yields {tokenizer.get_vocab_size()} tokens; "
            f"use `vocab_size={tokenizer.get_vocab_size()}` or more text"
        )
    return tokenizer


def _first_characters(texts: Iterable[str], limit: int) -> Iterator[str]:
    for text in texts:
        for block in blocks(text[:limit], BLOCK_CHARACTERS):  # leaves words as they are
            yield from without_long_words(block)  # because training time is quadratic in the longest word
        limit -= len(text)
        if limit <= 0:
            return


def on_hub(spec: str) -> bool:
    """Whether a tokenizer is on the Hub, not in a local file or folder."""
    return spec.startswith(HUB) and not Path(spec.removeprefix(HUB)).is_dir()


def load(spec: str) -> tuple[Tokenizer, SpecialTokens]:
    """Loads a tokenizer: a `tokenizer.json`, or `hf:NAME` from the Hugging Face Hub or a local folder of that name.

    Its special tokens are those that the files beside it say: see `special_tokens.find`. `<eos>` is added to the
    vocabulary if there is no end-of-text token. Post-processing is turned off. Raises UserError if the tokenizer cannot
    be read, or has dropout.
    """
    name = spec.removeprefix(HUB)
    if on_hub(spec):
        folder = downloaded(name, (TOKENIZER, special_tokens.CONFIG, *special_tokens.KEPT))
    else:
        folder = Path(name) if name != spec else Path(spec).parent
    tokenizer = _read(folder / TOKENIZER if name != spec else Path(spec), f"the tokenizer {spec} cannot be read")
    found = special_tokens.find(tokenizer, folder)
    tokenizer.post_processor = None  # nothing is added to texts. An exported model's tokenizer must work as in training
    if not found.eos:
        taken, added = set(tokenizer.get_vocab().values()), f"{spec} has no end-of-text token"
        tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
        end = special_tokens.find(tokenizer).eos[0]
        if end in taken:  # the library's new id is the count, which may be taken
            raise UserError(f"the tokenizer {added}, and gaps in its ids: add one to it")
        found = replace(found, eos=(end,), notes=(*found.notes, f"{added}: {EOS} is added, with the new id {end}"))
    return tokenizer, found


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    """Encodes texts without adding tokens. Raises UserError if the tokenizer fails on them."""
    with _unreadable("the tokenizer cannot encode the text"):
        return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Decodes tokens, special ones included. Raises UserError if the tokenizer fails on them."""
    with _unreadable("the tokenizer cannot decode its tokens"):
        return tokenizer.decode(tokens, skip_special_tokens=False)


def token_bytes(tokenizer: Tokenizer, eos: int) -> np.ndarray | None:
    """The number of bytes of text in each token, int64 [V]; None if tokens do not consist of bytes.

    eos: the token between documents, which is no text.

    In a byte-level tokenizer, every character of a token's name is one byte, unless the text is changed before it
    is split, by a normalizer or an added space.
    """
    settings = json.loads(tokenizer.to_str())
    splitter = json.dumps(settings.get("pre_tokenizer"))
    changed = settings.get("normalizer") is not None or '"add_prefix_space": true' in splitter
    if changed or "ByteLevel" not in json.dumps(settings.get("decoder")):
        return None
    vocabulary = tokenizer.get_vocab()
    lengths = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
    for name, token in vocabulary.items():
        lengths[token] = len(name)
    for token in settings.get("added_tokens", []):
        if not token["special"]:  # its name is plain text
            lengths[token["id"]] = len(token["content"].encode())
    lengths[eos] = 0  # other special tokens occur only if the text spells them
    return lengths


def read(path: Path) -> Tokenizer:
    """Reads the tokenizer of a store, run or checkpoint. Raises UserError if the file is damaged, or has dropout."""
    return _read(path, f"{path} is damaged")


def _read(path: Path, wrong: str) -> Tokenizer:
    with _unreadable(wrong):
        tokenizer = without_lengths(Tokenizer.from_file(str(path)))
        _check_ids(tokenizer)
    if getattr(tokenizer.model, "dropout", None):
        raise UserError(f"{path} has dropout, so a text's tokens differ each time: set it to null")
    return tokenizer


def without_lengths(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, which neither cuts texts nor fills them up, as a file of transformers may have set."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _check_ids(tokenizer: Tokenizer) -> None:
    """Raises ValueError if there are no tokens, or an id is LARGEST_VOCAB or more."""
    ids = tokenizer.get_vocab().values()
    if not ids:
        raise ValueError("it has no tokens")
    if (largest := max(ids)) >= LARGEST_VOCAB:
        raise ValueError(f"a token has the id {largest}, and ids must be below {LARGEST_VOCAB}")


@contextmanager
def _unreadable(what: str) -> Iterator[None]:
    """Turns any exception of the library into a UserError, because it has no type of its own for bad files."""
    try:
        with _panics(what):
            yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what}: {error}") from error


@contextmanager
def _panics(what: str) -> Iterator[None]:
    """Turns a panic of the library, which is not an Exception, into a UserError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: the tokenizers library failed: {error}") from error


# White space in the regular expressions of tokenizers, which is less than in Python.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD = re.compile(rf" ?[^{_SPACE}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]")
_LONG = 500  # characters
_PART = re.compile(rf"[^{_SPACE}]+|[{_SPACE}]+")
_BETWEEN = re.compile(rf"(?<=[^{_SPACE}])[{_SPACE}]")


def words(text: str) -> list[str]:
    """Splits a text into words, each with the space before it.

    The pattern is that of GPT-2's pre-tokenizer without its distinction of letters, numbers and other signs.
    """
    return _WORD.findall(text)


def blocks(text: str, characters: int) -> Iterator[str]:
    """Splits a text into pieces of about `characters` characters, each beginning with white space."""
    start = 0
    while (found := _BETWEEN.search(text, start + characters)) is not None:
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def without_long_words(text: str) -> Iterator[str]:
    """Cuts long words, so that no piece has a word of more than 2 _LONG characters.

    Words of up to _LONG characters are never cut. A run of white space counts as a word.
    """
    start = 0
    for end in range(_LONG, len(text) + 1, _LONG):
        if _PART.fullmatch(text, end - _LONG, end):
            yield text[start:end]
            start = end
    yield text[start:]
