"""Probes: small tasks laid into real text, whose answers lie further back the longer the window is.

Every probe is a block somewhere in a window's text and a question at its very end, which the block answers; both begin
with the probe's marker. Of N + 1 tokens the first N are inputs and the last N targets; only answers are scored:

    text ... text [marker  block] text ... text [marker  question and answers]
    `- depth 0: the block is here                `- depth 1: the block ends here

The text is a contiguous piece of a split's stream. Markers, keys and symbols are token ids drawn once for a size of
vocabulary, never the end-of-text token, and ordinary tokens otherwise: symbols are in the text too, so that looking for
one is not enough. What the text has of markers, or of a window's keys, gives way to the end-of-text token. Answers are
uniformly random over the symbols, each drawn by itself.
"""

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from extrapolate import specs

if TYPE_CHECKING:
    from extrapolate.data.store import Split, Store

MARKERS = ("copy", "mqar", "needle", "passkey")  # by their place here; a new probe's goes to the end


@dataclass(frozen=True)
class Vocabulary:
    """The number of token ids, and which of them ends a text."""

    size: int
    eos: int

    @classmethod
    def of(cls, store: "Store") -> "Vocabulary":
        """A store's."""
        return cls(store.vocab_size, store.manifest["eos_id"])

    def marker(self, name: str) -> int:
        """The token that begins a probe's block and its question."""
        return int(_order(self)[MARKERS.index(name)])

    def symbols(self, count: int) -> np.ndarray:
        """What answers are drawn from."""
        return _order(self)[len(MARKERS) : len(MARKERS) + count]

    def keys(self, count: int) -> np.ndarray:
        """As many others, which answers are asked for by."""
        return _order(self)[len(MARKERS) + count : len(MARKERS) + 2 * count]


@cache
def _order(vocabulary: Vocabulary) -> np.ndarray:
    """Every id but the end-of-text token's, shuffled: the same for every run and machine."""
    shuffled = np.random.default_rng(0).permutation(vocabulary.size)
    return shuffled[shuffled != vocabulary.eos]


class Sequence(NamedTuple):
    """One probe in its text: tokens, int64 [N + 1], and the places in it of the answers, ascending, int64 [A]."""

    tokens: np.ndarray
    answers: np.ndarray


class Parts(NamedTuple):
    """What is laid into the text: the block, the question with its answers, the answers' places in it, and its keys."""

    block: np.ndarray
    question: np.ndarray
    answers: np.ndarray
    keys: np.ndarray = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """A task. Keyword arguments are its configuration; `symbols` is how many tokens an answer is drawn from."""

    symbols: int = 16
    name: ClassVar[str]
    source: ClassVar[str]
    # Whether a window counts as right where all of its answers are; else answers count one by one.
    whole: ClassVar[bool]

    def __post_init__(self) -> None:
        self._check("symbols", 2)

    def _check(self, argument: str, least: int, most: int | None = None) -> None:
        value = getattr(self, argument)
        if value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"between {least} and {most}"
            raise ValueError(f"{self.name}: {argument} must be {bounds}, not {value}")

    @property
    def text(self) -> str:
        """The spec, with the arguments that are not defaults."""
        usual = specs.parameters(type(self))
        given = {name: getattr(self, name) for name, known in usual.items() if getattr(self, name) != known.default}
        return specs.spell(self.name, given)

    @abstractmethod
    def least(self) -> int:
        """The smallest N that holds the probe."""

    @property
    def vocabulary_needed(self) -> int:
        """Token ids: markers, the end-of-text token, symbols."""
        return len(MARKERS) + 1 + self.symbols

    @abstractmethod
    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        """The block and the question of a window; with `full`, as large as the probe gets at this length."""

    @property
    def chance(self) -> float:
        """The accuracy of drawing every answer from the symbols."""
        return 1 / self.symbols

    def check(self, length: int, vocabulary: Vocabulary) -> None:
        """Raises ValueError where windows of `length` inputs, or the vocabulary, do not hold the probe."""
        if length < self.least():
            raise ValueError(f"the probe {self.text} takes at least {self.least()} tokens, and a window has {length}")
        if vocabulary.size < self.vocabulary_needed:
            raise ValueError(
                f"the probe {self.text} takes a vocabulary of at least {self.vocabulary_needed}, and this one has "
                f"{vocabulary.size}: give it fewer, {self.name}:symbols=8"
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

        Where the depth is given the probe is as large as it gets at this length. The split must hold length + 1 tokens.
        """
        block, question, answers, keys = self.parts(rng, length, vocabulary, depth is not None)
        room = length + 1 - len(block) - len(question)
        start = int(rng.integers(split.n_tokens - room + 1))
        text = split.slice(start, start + room).astype(np.int64)
        taken = np.concatenate([_order(vocabulary)[: len(MARKERS)], keys])
        text[np.isin(text, taken)] = vocabulary.eos
        place = int(rng.integers(room + 1)) if depth is None else round(depth * room)
        tokens = np.concatenate([text[:place], block, text[place:], question])
        return Sequence(tokens, length + 1 - len(question) + answers)

    def sequences(
        self, length: int, depth: float, count: int, split: "Split", vocabulary: Vocabulary
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is evaluated: tokens, int64 [count, N + 1], and the answers' places, the same in all of them, int64 [A].

        They depend on the probe, the split and the arguments alone. Raises ValueError where the probe does not fit.
        """
        self.check(length, vocabulary)
        check_text(split, length)
        seed = [zlib.crc32(f"{self.text} {split.name}".encode()), length, round(depth * 1_000_000)]
        made = [
            self.sequence(np.random.default_rng([*seed, number]), length, split, vocabulary, depth)
            for number in range(count)
        ]
        return np.stack([tokens for tokens, _ in made]), made[0].answers


def check_text(split: "Split", length: int) -> None:
    """Raises ValueError where a split does not fill a window of `length` inputs with text."""
    if split.n_tokens < length + 1:
        raise ValueError(
            f"the {split.name} split has {split.n_tokens} tokens, which do not fill a window of {length} and its next; "
            "use shorter windows or more data"
        )


probes: specs.Registry[Probe] = specs.Registry("probe")


def _repeated(marker: int, symbols: np.ndarray) -> Parts:
    """The block is a string, and so is the answer."""
    string = np.concatenate([[marker], symbols])
    return Parts(string, string, np.arange(1, len(string)))


@probes.register("needle")
@dataclass(frozen=True, kw_only=True)
class Needle(Probe):
    """One symbol, asked for by the last input of the window.

        text ... [m a] text ... text [m -> a]

    Source: after "needle in a haystack" tests, at the size of tiny models.
    """

    name: ClassVar[str] = "needle"
    source: ClassVar[str] = "github.com/gkamradt/LLMTest_NeedleInAHaystack"
    whole: ClassVar[bool] = True

    def least(self) -> int:
        return 3

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        return _repeated(vocabulary.marker(self.name), rng.choice(vocabulary.symbols(self.symbols), 1))


@probes.register("passkey")
@dataclass(frozen=True, kw_only=True)
class Passkey(Probe):
    """A key of a few symbols, all of which must be right, each predicted from those before it.

        text ... [m a b c d] text ... text [m -> a b c d]

    Arguments: length, in tokens.
    Source: passkey retrieval, Mohtashami and Jaggi, arXiv 2305.16300.
    """

    length: int = 4
    name: ClassVar[str] = "passkey"
    source: ClassVar[str] = "arXiv 2305.16300"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("length", 1)

    def least(self) -> int:
        return 2 * self.length + 1

    @property
    def chance(self) -> float:
        return float(self.symbols) ** -self.length

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        return _repeated(vocabulary.marker(self.name), rng.choice(vocabulary.symbols(self.symbols), self.length))


@probes.register("copy")
@dataclass(frozen=True, kw_only=True)
class Copy(Probe):
    """A string of up to a quarter of the window, which is said again; every token counts by itself.

        text ... [m a b c ... z] text ... text [m -> a b c ... z]

    In training any number of tokens from 1 to N/4, in evaluation N/4: what there is to copy grows with the window, as
    the literature has it. More symbols than the other probes have, so that few pairs of neighbours come twice.

    Source: Jelassi et al., arXiv 2402.01032.
    """

    symbols: int = 64
    name: ClassVar[str] = "copy"
    source: ClassVar[str] = "arXiv 2402.01032"
    whole: ClassVar[bool] = False

    def least(self) -> int:
        return 4

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        most = length // 4
        count = most if full else int(rng.integers(1, most + 1))
        return _repeated(vocabulary.marker(self.name), rng.choice(vocabulary.symbols(self.symbols), count))


@probes.register("mqar")
@dataclass(frozen=True, kw_only=True)
class MQAR(Probe):
    """Keys with a value each, some of which are asked for, in any order; every value asked for counts by itself.

        text ... [m k1 v1 k2 v2 k3 v3 k4 v4] text ... text [m k3 -> v3 k1 -> v1]

    The keys differ; values may be equal. Asking for all of them would give the last one away.

    Arguments: pairs, of a key and its value; queries, the keys that are asked for.
    Source: multi-query associative recall, Arora et al., arXiv 2312.04927.
    """

    pairs: int = 4
    queries: int = 2
    name: ClassVar[str] = "mqar"
    source: ClassVar[str] = "arXiv 2312.04927"
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("pairs", 1, self.symbols)
        self._check("queries", 1, self.pairs)

    def least(self) -> int:
        return 2 * (self.pairs + self.queries) + 1

    @property
    def vocabulary_needed(self) -> int:
        """Token ids: markers, the end-of-text token, symbols, and as many keys."""
        return super().vocabulary_needed + self.symbols

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        keys = rng.choice(vocabulary.keys(self.symbols), self.pairs, replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.pairs)
        pairs = np.stack([keys, values], axis=1)
        asked = rng.choice(self.pairs, self.queries, replace=False)
        marker = [vocabulary.marker(self.name)]
        block, question = (np.concatenate([marker, part.ravel()]) for part in (pairs, pairs[asked]))
        return Parts(block, question, np.arange(2, len(question), 2), keys)


def build(text: str) -> Probe:
    """A probe from its spec. Raises ValueError on unknown names, arguments or values."""
    spec = specs.parse(text)
    cls = probes[spec.name]
    return cls(**specs.convert_arguments(cls, spec.arguments, owner=spec.name))


def build_list(text: str) -> tuple[Probe, ...]:
    """`passkey,mqar:pairs=8`, or `all`. A probe with several arguments takes parentheses."""
    if text.strip() == "all":
        return tuple(build(name) for name in probes.names())
    if not text.strip():
        raise ValueError(f"name at least one probe: {', '.join(probes.names())}, or all")
    return tuple(
        dict.fromkeys(build(specs.unwrapped(part.strip())) for part in specs.split_outside_parentheses(text, ","))
    )
