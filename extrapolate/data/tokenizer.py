"""Byte-level BPE, trained or loaded, and what the token store needs to know of a tokenizer."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer, decoders, models, pre_tokenizers, trainers

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.machine.children import Child, reply, tokenizing

EOS = "<eos>"
_KNOWN_EOS = (EOS, "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>")
_KNOWN_BOS = ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>")
SMALLEST_VOCAB = 257  # 256 bytes and <eos>
LARGEST_VOCAB = 2**24  # a model, and what is known of tokens, have a row for every id
TRAINING_CHARACTERS = 100_000_000  # more text than this no longer changes a small BPE
SMALL_CHARACTERS = 2_000_000  # learned from within a second or two
BLOCK_CHARACTERS = 2**16  # of text at a time: the library holds hundreds of them


def learn_bpe(texts: Iterable[str], vocab_size: int, workers: int) -> Tokenizer:
    """`train_bpe`, for much text in a process of its own with `workers` threads, so that Ctrl-C ends it at once."""
    texts = _first_characters(texts, TRAINING_CHARACTERS)
    held: list[str] = []
    characters = 0
    for text in texts:
        held.append(text)
        characters += len(text)
        if characters >= SMALL_CHARACTERS:
            break
    else:
        return train_bpe(held, vocab_size)
    with Child(serve_training, "a process that learns a vocabulary", tokenizing(workers)) as child:
        child.send(vocab_size)
        for text in chain(held, texts):
            child.send(text)
        child.send(None)
        return Tokenizer.from_str(child.receive())


def serve_training(connection: Connection) -> None:
    """What that process does: it gets the size and texts up to None, and answers with the tokenizer as JSON."""
    vocab_size = connection.recv()
    reply(connection, train_bpe(iter(connection.recv, None), vocab_size).to_str())


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE of exactly `vocab_size` tokens, `<eos>` included, from the first 100 M characters.

    Words of more than 500 characters, such as text without spaces, are cut: no token goes beyond a cut in all of them.

    Raises UserError if the size is out of range, or there is too little text for that many tokens.
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
        for block in blocks(text[:limit], BLOCK_CHARACTERS):  # the words to learn from are the same,
            yield from without_long_words(block)  # but for long ones: learning takes time quadratic in the longest
        limit -= len(text)
        if limit <= 0:
            return


def load(spec: str) -> Tokenizer:
    """A tokenizer from a `tokenizer.json`, or as `hf:NAME` from the Hugging Face Hub or a local folder of that name.

    `<eos>` is added if the tokenizer has no end-of-text token, and no others are added to a text. Raises UserError if
    it cannot be read, or has dropout.
    """
    name = spec.removeprefix("hf:")
    with _unreadable(f"the tokenizer {spec} cannot be read"):
        if name != spec and not Path(name).is_dir():
            tokenizer = Tokenizer.from_pretrained(name)
        elif name != spec:
            tokenizer = Tokenizer.from_file(str(Path(name) / "tokenizer.json"))
        else:
            tokenizer = Tokenizer.from_file(spec)
        _check_ids(tokenizer)
    if getattr(tokenizer.model, "dropout", None):
        raise UserError(f"the tokenizer {spec} has dropout, so a text's tokens differ each time: set it to null")
    # Texts are whole, and nothing is added to them; an exported model's tokenizer must do as training did.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = None
    if eos_id(tokenizer) is None:
        taken = set(tokenizer.get_vocab().values())
        tokenizer.add_special_tokens([AddedToken(EOS, special=True)])
        if eos_id(tokenizer) in taken:  # the library numbers by count, so ids with gaps collide
            raise UserError(f"the tokenizer {spec} has no end-of-text token, and gaps in its ids: add one to it")
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    """Texts as tokens, no token added. Raises UserError if the tokenizer fails on them."""
    with _unreadable("the tokenizer cannot encode the text"):
        return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """The text that tokens spell, special ones included. Raises UserError if the tokenizer fails on them."""
    with _unreadable("the tokenizer cannot decode its tokens"):
        return tokenizer.decode(tokens, skip_special_tokens=False)


def eos_id(tokenizer: Tokenizer) -> int | None:
    """The id of the end-of-text token, or None if there is none by any of its usual names."""
    return _first_known(tokenizer, _KNOWN_EOS)


def bos_id(tokenizer: Tokenizer) -> int | None:
    """The id of the beginning-of-text token, or None if there is none by any of its usual names."""
    return _first_known(tokenizer, _KNOWN_BOS)


def _first_known(tokenizer: Tokenizer, names: Sequence[str]) -> int | None:
    ids = (tokenizer.token_to_id(name) for name in names)
    return next((i for i in ids if i is not None), None)


def token_bytes(tokenizer: Tokenizer) -> np.ndarray | None:
    """The number of bytes of text that each token stands for, int64 [V]; None if tokens are not bytes.

    In a byte-level tokenizer every character of a token's name is one byte, unless the text is changed before it
    is split: by a normalizer, or a space put in front.
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
        if not token["special"]:  # its name is text, not bytes spelt as characters
            lengths[token["id"]] = len(token["content"].encode())
    if (eos := eos_id(tokenizer)) is not None:  # other special tokens occur only where text spells them
        lengths[eos] = 0
    return lengths


def read(path: Path) -> Tokenizer:
    """The tokenizer of a store or run. Raises UserError if the file is damaged."""
    files.check_regular(path)
    with _unreadable(f"{path} is damaged"):
        tokenizer = Tokenizer.from_file(str(path))
        _check_ids(tokenizer)
    return tokenizer


def _check_ids(tokenizer: Tokenizer) -> None:
    """Raises ValueError if there are no tokens, or an id is larger than a table of all ids can be."""
    ids = tokenizer.get_vocab().values()
    if not ids:
        raise ValueError("it has no tokens")
    if (largest := max(ids)) >= LARGEST_VOCAB:
        raise ValueError(f"a token has the id {largest}, and ids must be below {LARGEST_VOCAB}")


@contextmanager
def _unreadable(what: str) -> Iterator[None]:
    """Whatever the library raises for a file becomes a UserError: it has no type of its own for it."""
    try:
        with _panics(what):
            yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what}: {error}") from error


@contextmanager
def _panics(what: str) -> Iterator[None]:
    """A panic in the library's own language, which is no Exception, becomes a UserError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: the tokenizers library failed: {error}") from error


# What the regular expressions of tokenizers take for white space, which is less than Python does.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD = re.compile(rf" ?[^{_SPACE}]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]")
_LONG = 500  # characters
_PART = re.compile(rf"[^{_SPACE}]+|[{_SPACE}]+")
_BETWEEN = re.compile(rf"(?<=[^{_SPACE}])[{_SPACE}]")


def words(text: str) -> list[str]:
    """The words of a text, each with the space before it; joined they are the text.

    It is the pattern of GPT-2's pre-tokenizer, whose letters, numbers and other signs are not told apart.
    """
    return _WORD.findall(text)


def blocks(text: str, characters: int) -> Iterator[str]:
    """Splits a text into pieces of about `characters` characters, each of which begins at white space."""
    start = 0
    while (found := _BETWEEN.search(text, start + characters)) is not None:
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def without_long_words(text: str) -> Iterator[str]:
    """Pieces of a text, cut within long words, so that none has a word of more than 2 _LONG characters.

    Words of up to _LONG characters are never cut. Longer runs of white space are words too.
    """
    start = 0
    for end in range(_LONG, len(text) + 1, _LONG):
        if _PART.fullmatch(text, end - _LONG, end):
            yield text[start:end]
            start = end
    yield text[start:]
