"""Probes: small tasks inserted into real text, whose answers lie further back in longer windows.

A probe is a block somewhere in a window's text and a question at its very end, which the block answers. Both begin
with the probe's marker. Of N + 1 tokens, the first N are inputs and the last N are targets; only answers are scored:

    text ... text [marker  block] text ... text [marker  question and answers]
    `- depth 0: the block is here                `- depth 1: the block ends here

`flip-flop` and the probes without text fill the window themselves.

The text is a contiguous piece of a split's stream. Markers, keys and symbols are token ids drawn once per vocabulary
size, never the end-of-text token. They are ordinary tokens otherwise: symbols occur in the text too, so looking for one
is not enough. In the text, the end-of-text token replaces the first four markers, the probe's own, and the window's
keys. Answers are drawn independently and uniformly from the symbols.

A trained model knows the ids of its probes, so a new probe must not shift them. With S symbols, ids are taken from both
ends of the shuffled list:

    markers 0 to 3 | S symbols | S keys | ... | marker 6 | marker 5 | marker 4
"""

import itertools
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from extrapolate import specs
from extrapolate.errors import UserError
from extrapolate.names import ALL, LEFT_OUT

if TYPE_CHECKING:
    from extrapolate.data.store import Split, Store

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
FIRST_MARKERS = 4  # these stand before the symbols; later ones are counted from the other end


@dataclass(frozen=True)
class Vocabulary:
    """The number of token ids, which of them ends a text, and how many a model has embeddings for (None: all).

    A tokenizer may have ids above a model's embeddings, which no text uses. Probes do not use them either.
    """

    size: int
    eos: int
    embedded: int | None = None

    @classmethod
    def of(cls, store: "Store", embedded: int | None = None) -> "Vocabulary":
        """A store's. embedded: the number of embeddings of the model (default: one for each id)."""
        return cls(store.vocab_size, store.manifest["eos_id"], embedded)

    def marker(self, number: int) -> int:
        """The token that begins the block and the question of the probe with this marker number."""
        return int(_order(self)[number if number < FIRST_MARKERS else FIRST_MARKERS - 1 - number])

    def symbols(self, count: int) -> np.ndarray:
        """The tokens that answers are drawn from."""
        return _order(self)[FIRST_MARKERS : FIRST_MARKERS + count]

    def keys(self, count: int) -> np.ndarray:
        """As many other tokens, which name the answers in a question."""
        return _order(self)[FIRST_MARKERS + count : FIRST_MARKERS + 2 * count]

    def markers_kept_clear(self, number: int) -> np.ndarray:
        """The markers that the text around this probe must not contain: the first ones and the probe's own.

        Those of other later probes may occur: a window must not depend on which probes exist.
        """
        return np.append(_order(self)[:FIRST_MARKERS], self.marker(number))


@cache
def _order(vocabulary: Vocabulary) -> np.ndarray:
    """Every id with an embedding but the end-of-text token's, shuffled: the same order for every run and machine."""
    shuffled = np.random.default_rng(0).permutation(vocabulary.size)
    return shuffled[(shuffled != vocabulary.eos) & (shuffled < (vocabulary.embedded or vocabulary.size))]


class Sequence(NamedTuple):
    """A probe in its text: tokens, int64 [N + 1], and the answers' places in them, ascending, int64 [A]."""

    tokens: np.ndarray
    answers: np.ndarray


_NO_KEYS = np.zeros(0, np.int64)


class Parts(NamedTuple):
    """What is inserted into the text: the block, the question with its answers, the answers' places in it, and keys."""

    block: np.ndarray
    question: np.ndarray
    answers: np.ndarray
    keys: np.ndarray = _NO_KEYS

    @classmethod
    def marked(
        cls,
        marker: int,
        block: np.ndarray,
        question: np.ndarray,
        answers: slice = slice(1, None),
        keys: np.ndarray = _NO_KEYS,
    ) -> "Parts":
        """Puts the marker before the block and the question. `answers` are places in the question, marker included."""
        block, question = np.concatenate([[marker], block]), np.concatenate([[marker], question])
        return cls(block, question, np.arange(len(question))[answers], keys)

    @classmethod
    def repeated(cls, marker: int, symbols: np.ndarray) -> "Parts":
        """The block is a string, and the same string is the answer."""
        return cls.marked(marker, symbols, symbols)


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """A task. Keyword arguments are its configuration; `symbols` is how many tokens an answer is drawn from."""

    symbols: int = 16
    name: ClassVar[str]  # what it is registered as
    marker: ClassVar[int]  # the number of its marker, which is unique and never changes
    source: ClassVar[str]
    whole: ClassVar[bool]  # whether a window is right only if all of its answers are; else each answer counts
    keyed: ClassVar[bool] = False  # whether the vocabulary also needs a key for each symbol
    depths: ClassVar[tuple[float, ...]] = DEPTHS  # that are evaluated

    def __post_init__(self) -> None:
        self._check("symbols", 2)

    def _check(self, argument: str, least: int, most: int | None = None) -> None:
        value = getattr(self, argument)
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise UserError(f"{self.name}: {argument} must be {bounds}, not {value}")

    @property
    def text(self) -> str:
        """The spec, without arguments that have their defaults."""
        usual = specs.parameters(type(self))
        given = {name: getattr(self, name) for name, known in usual.items() if getattr(self, name) != known.default}
        return specs.spell(self.name, given)

    @abstractmethod
    def least(self) -> int:
        """The smallest N that fits the probe."""

    @property
    def vocabulary_needed(self) -> int:
        """Token ids: markers up to its own, the end-of-text token, symbols, and keys if there are any."""
        return max(FIRST_MARKERS, self.marker + 1) + 1 + self.symbols * (2 if self.keyed else 1)

    @abstractmethod
    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        """The block and the question of a window; if `full`, the largest that fits this length."""

    @property
    def chance(self) -> float:
        """The accuracy of drawing every answer from the symbols."""
        return 1 / self.symbols

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The distinct tokens that could be each window's answers, int64 [W, C], padded with -1.

        All symbols, unless the block names fewer: the model may know these, but not which of them is right.
        """
        return np.broadcast_to(vocabulary.symbols(self.symbols), (len(tokens_WN), self.symbols))

    def _symbols_in_blocks(self, tokens_WN: np.ndarray, size: int, vocabulary: Vocabulary) -> np.ndarray:
        """The distinct symbols in each window's block of `size` tokens after the marker: see `candidates`."""
        first_W = (tokens_WN == vocabulary.marker(self.marker)).argmax(axis=1)
        block_WC = np.take_along_axis(tokens_WN, first_W[:, None] + np.arange(1, size + 1), axis=1)
        return different_symbols(block_WC, vocabulary.symbols(self.symbols))

    def chance_at(self, length: int) -> float:
        """The chance in evaluated windows of `length` inputs; to override if the number of answers grows with them."""
        return self.chance

    def check(self, length: int, vocabulary: Vocabulary) -> None:
        """Raises UserError if the probe does not fit into windows of `length` inputs or the vocabulary."""
        if length < self.least():
            raise UserError(f"the probe {self.text} takes at least {self.least()} tokens, and a window has {length}")
        if (size := min(vocabulary.size, vocabulary.embedded or vocabulary.size)) < self.vocabulary_needed:
            raise UserError(
                f"the probe {self.text} takes a vocabulary of at least {self.vocabulary_needed}, and this one has "
                f"{size}: give it fewer, {self.name}:symbols=8"
            )

    def sequence(
        self,
        rng: np.random.Generator,
        length: int,
        split: "Split",
        vocabulary: Vocabulary,
        depth: float | None = None,
    ) -> Sequence:
        """A window of `length` inputs with text of the split, its block at `depth`, 0 to 1 (None: anywhere).

        If the depth is given, the probe is the largest that fits. The split must have length + 1 tokens.
        """
        block, question, answers, keys = self.parts(rng, length, vocabulary, depth is not None)
        room = length + 1 - len(block) - len(question)
        start = int(rng.integers(split.n_tokens - room + 1))
        text = split.slice(start, start + room).astype(np.int64)
        taken = np.concatenate([vocabulary.markers_kept_clear(self.marker), keys])
        text[np.isin(text, taken)] = vocabulary.eos
        place = int(rng.integers(room + 1)) if depth is None else round(depth * room)
        tokens = np.concatenate([text[:place], block, text[place:], question])
        return Sequence(tokens, length + 1 - len(question) + answers)

    def sequences(
        self, length: int, depth: float, count: int, split: "Split", vocabulary: Vocabulary
    ) -> tuple[np.ndarray, np.ndarray]:
        """Windows to evaluate: tokens, int64 [count, N + 1], and the places of the answers in each, int64 [A].

        They depend only on the probe, the split and the arguments. Raises UserError if the probe does not fit.
        """
        self.check(length, vocabulary)
        check_text(split, length)
        seed = [zlib.crc32(f"{self.text} {split.name}".encode()), length, round(depth * 1_000_000)]
        made = [
            self.sequence(np.random.default_rng([*seed, number]), length, split, vocabulary, depth)
            for number in range(count)
        ]
        return np.stack([tokens for tokens, _ in made]), made[0].answers


def different_symbols(found_WC: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """The distinct symbols among each window's tokens, in descending order, int64 [W, at most C], padded with -1."""
    found_WC = np.sort(np.where(np.isin(found_WC, symbols), found_WC, -1), axis=1)[:, ::-1]
    again_WC = np.zeros(found_WC.shape, bool)
    again_WC[:, 1:] = found_WC[:, 1:] == found_WC[:, :-1]
    found_WC = np.sort(np.where(again_WC, -1, found_WC), axis=1)[:, ::-1]
    return found_WC[:, : max(1, int((found_WC >= 0).sum(axis=1).max()))]


def check_text(split: "Split", length: int) -> None:
    """Raises UserError if a split has too little text for a window of `length` inputs."""
    if split.n_tokens < length + 1:
        raise UserError(
            f"the {split.name} split has {split.n_tokens} tokens, which do not fill a window of {length} and its next; "
            "use shorter windows or more data"
        )


class _Probes(specs.Registry[Probe]):
    """Refuses two probes with the same marker, because a model could not tell them apart."""

    def register(self, name: str) -> Callable[[type[Probe]], type[Probe]]:
        """Class decorator that registers a probe. Raises UserError if its marker number is taken."""
        decorate = super().register(name)

        def checked(cls: type[Probe]) -> type[Probe]:
            taken = {self[other].marker: other for other in self.names()}
            number = getattr(cls, "marker", None)
            free = f"the next free number is {next(n for n in itertools.count() if n not in taken)}"
            if not isinstance(number, int) or number < 0:
                raise UserError(f"the probe '{name}' has no marker number: write marker: ClassVar[int] = ...; {free}")
            if number in taken:
                raise UserError(f"the probes '{taken[number]}' and '{name}' both have marker number {number}; {free}")
            decorate(cls).name = name
            return cls

        return checked


probes: specs.Registry[Probe] = _Probes("probe")


def parse_probe(text: str) -> Probe:
    """A probe from its spec. Raises UserError on unknown names, arguments or values."""
    spec = specs.parse(text)
    cls = probes[spec.name]
    return cls(**specs.convert_arguments(cls, spec.arguments, owner=spec.name))


def parse_probes(text: str) -> tuple[Probe, ...]:
    """`passkey,mqar:pairs=8`, `all` or `off`. A probe with several arguments takes parentheses."""
    if text.strip() == LEFT_OUT:
        return ()
    if text.strip() == ALL:
        return tuple(parse_probe(name) for name in probes.names())
    if not text.strip():
        raise UserError(f"name at least one probe: {', '.join(probes.names())}, or all")
    return tuple(
        dict.fromkeys(parse_probe(specs.unwrapped(part.strip())) for part in specs.split_outside_parentheses(text, ","))
    )
