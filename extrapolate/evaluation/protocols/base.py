"""Protocols decide which tokens are scored, each with which context. Index arithmetic, no model.

In a window that starts at token s of a document, inputs x[s .. s+N-1] predict x[s+1 .. s+N]. Windows never cross the
end of a document. With `bos`, a token that is not part of the text replaces x[s].
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import numpy as np

from extrapolate import specs
from extrapolate.errors import UserError, about
from extrapolate.names import LONGEST, MAX_TARGETS

if TYPE_CHECKING:
    from extrapolate.data.store import Split


@dataclass(frozen=True)
class Windows:
    """W windows of `length` inputs; in each, the last `scored` targets count.

    document_W and start_W, int64, are the document and the first input's place in it. bos: a token that replaces the
    first input (default: none); with one, a window may start at -1.
    """

    document_W: np.ndarray
    start_W: np.ndarray
    length: int
    scored: int
    bos: int | None = None

    def tokens(self, split: "Split", rows: slice) -> np.ndarray:
        """The inputs and the last target of some windows, [rows, length + 1]."""
        starts = split.offsets[self.document_W[rows]] + self.start_W[rows]
        if self.bos is None:
            return np.stack([split.slice(start, start + self.length + 1) for start in starts])
        text = np.stack([split.slice(start + 1, start + self.length + 1) for start in starts])
        return np.insert(text.astype(np.int64), 0, self.bos, axis=1)

    def targets(self) -> np.ndarray:
        """The (document, place in the document) of every target, int64 [W, scored, 2]."""
        last_W = self.start_W + self.length
        place_WS = last_W[:, None] + np.arange(1 - self.scored, 1)
        return np.stack([np.broadcast_to(self.document_W[:, None], place_WS.shape), place_WS], axis=-1)


ISOLATES = "fixed-target"  # scores the same targets at every length, so that only their context differs
CONTROL: Final = "control"
# Names some windows: those of an evaluation length with the plan of a length, both in tokens, or the control's.
Key = tuple[int, int] | Literal["control"]


@dataclass(frozen=True)
class Layout:
    """One protocol on one split: the windows of every evaluation length, and the control's.

    Every entry scores the same targets. by_own_length: whether the plan of a window is that of its own length, rather
    than of the evaluation length.
    """

    rows: Mapping[int, tuple[Windows, ...]]
    control: tuple[Windows, ...]
    by_own_length: bool = False

    def keys_of(self, row: int) -> list[tuple[int, int]]:
        """The keys of an evaluation length: several if its windows have several plans."""
        lengths = {group.length for group in self.rows[row]} if self.by_own_length else {row}
        return [(row, length) for length in sorted(lengths)]

    def by_key(self) -> dict[Key, tuple[Windows, ...]]:
        """The windows of every key, the control's under CONTROL."""
        found: dict[Key, tuple[Windows, ...]] = {}
        for row, groups in self.rows.items():
            for key in self.keys_of(row):
                found[key] = tuple(g for g in groups if g.length == key[1]) if self.by_own_length else groups
        return found | {CONTROL: self.control}

    def plan_lengths(self) -> list[int]:
        """The lengths whose plans are needed, in ascending order."""
        return sorted({length for row in self.rows for _, length in self.keys_of(row)})

    def beginning_with(self, token: int) -> "Layout":
        """The same windows and targets, with this token as the first input of every window."""
        rows = {length: tuple(replace(group, bos=token) for group in groups) for length, groups in self.rows.items()}
        return replace(self, rows=rows, control=tuple(replace(group, bos=token) for group in self.control))


class TooFewTargetsError(UserError):
    """A limit on a protocol's targets holds none of the pieces that it lays out whole.

    piece: what it holds none of, such as `span of 64 tokens`. least: the targets of one.
    """

    def __init__(self, most: int, piece: str, least: int) -> None:
        super().__init__(f"`max_targets={most}` holds no {piece}: {least} would do")
        self.piece, self.least, self.field = piece, least, "max_targets"


@dataclass(frozen=True, kw_only=True)
class Protocol(ABC):
    """Lays windows over documents, and says how reports show its results. The docstring's first line describes it.

    Keyword arguments are its configuration. bos: whether every window begins with a token that is not part of the
    text. max_targets: how many tokens it scores at most by default; targets cost more if windows score few of their
    tokens. paper: whether published tables use it; its tables are a report's main ones. positions: whether it scores
    targets all over its windows, so that a report shows the loss by position. by_window: whether its published figures
    weight every window equally. drawn_tokens: the length of the document in its picture, which has windows of up to 32
    tokens.
    """

    bos: bool = False
    name: ClassVar[str]  # what it is registered as
    max_targets: ClassVar[int] = MAX_TARGETS
    paper: ClassVar[bool] = False
    positions: ClassVar[bool] = False
    by_window: ClassVar[bool] = False
    drawn_tokens: ClassVar[int] = 33  # one window of the longest length, and the last target

    @property
    def text(self) -> str:
        """The spec, with the arguments that are not defaults, as in tables."""
        usual = specs.parameters(type(self))
        given = {name: getattr(self, name) for name, known in usual.items() if getattr(self, name) != known.default}
        return specs.spell(self.name, {name: str(value).lower() for name, value in given.items()})

    def stride_at(self, seq_len: int) -> int | None:
        """How far each window moves on from the one before, tokens, for a training length; None if they do not."""
        return None

    @abstractmethod
    def layout(self, document_lengths: np.ndarray, seq_len: int, lengths: Sequence[int], max_targets: int) -> Layout:
        """The windows over documents of these lengths, for a training length and evaluation lengths, in tokens.

        At most max_targets targets, spread evenly over documents. `Layout.beginning_with` puts in the token of `bos`.
        Raises UserError if documents are too small for the lengths, TooFewTargetsError if max_targets is.
        """


class _Protocols(specs.Registry[Protocol]):
    """Sets each protocol's `name`."""

    def register(self, name: str) -> Callable[[type[Protocol]], type[Protocol]]:
        """Class decorator: makes the protocol known under `name`."""
        decorate = super().register(name)

        def named(cls: type[Protocol]) -> type[Protocol]:
            decorate(cls).name = name
            return cls

        return named


protocols: specs.Registry[Protocol] = _Protocols("protocol")


def parse_protocol(text: str) -> Protocol:
    """A protocol from its spec, `sliding:stride=16`. Raises UserError on unknown names, arguments or values."""
    spec = specs.parse(text)
    cls = protocols[spec.name]
    return cls(**specs.convert_arguments(cls, spec.arguments, owner=spec.name))


def with_arguments(texts: Sequence[str], stride: int | None = None, bos: bool = False) -> tuple[str, ...]:
    """The names of protocols in tables, without repeats: `bos` applies to all, and a stride to those that have one.

    Raises UserError if a text is no protocol, or none of them has a stride.
    """
    found = [parse_protocol(text) for text in texts]
    known = [name for name in protocols.names() if "stride" in specs.parameters(protocols[name])]
    if stride is not None and not any(one.name in known for one in found):
        raise UserError(
            f"`stride={specs.truncate(stride)}` is for {' and '.join(known)}: name one of them in `protocols`"
        )
    more = {name: {} if stride is None else {"stride": stride} for name in known}
    return tuple(dict.fromkeys(replace(one, bos=bos or one.bos, **more.get(one.name, {})).text for one in found))


def is_papers(text: str) -> bool:
    """Whether a table's protocol is the one of published tables, without arguments."""
    return text in protocols.names() and protocols[text].paper


def isolates(text: str) -> bool:
    """Whether a table's protocol is ISOLATES, with or without arguments."""
    return text.partition(":")[0] == ISOLATES


def known_by(text: str) -> type[Protocol]:
    """The class of the protocol that a table names, or `Protocol` itself if none is registered under that name."""
    name = text.partition(":")[0]
    return protocols[name] if name in protocols.names() else Protocol


@about("factors")
def lengths_of(factors: Sequence[float], seq_len: int) -> list[int]:
    """Evaluation lengths in tokens, N = factor L, in ascending order.

    Raises UserError on factors that are not positive or do not give whole lengths.
    """
    lengths = []
    for factor in factors:
        if not (math.isfinite(factor) and factor > 0):
            raise UserError(f"factors must be positive, not {factor:g}")
        if factor * seq_len > LONGEST:
            raise UserError(
                f"factor {factor:g} of a training length of {seq_len} makes windows of more than {LONGEST} tokens"
            )
        length = Fraction(str(factor)) * seq_len
        if length.denominator != 1:
            raise UserError(
                f"factor {factor:g} of a training length of {seq_len} is {float(length):g}, not a whole length"
            )
        lengths.append(int(length))
    if not lengths:
        raise UserError("name at least one factor")
    return sorted(set(lengths))


def targets_of(groups: Sequence[Windows]) -> tuple[np.ndarray, np.ndarray]:
    """The (document, place) of every target, [N, 2], and the order that sorts them, [N]."""
    flat = np.concatenate([group.targets().reshape(-1, 2) for group in groups])
    return flat, np.lexsort((flat[:, 1], flat[:, 0]))


def targets_hash(groups: Sequence[Windows], corpus_hash: str, split: str) -> str:
    """Identifies a set of targets: only rows with equal hashes are compared."""
    flat, order = targets_of(groups)
    return hashlib.sha256(f"{corpus_hash} {split}\n".encode() + flat[order].astype("<i8").tobytes()).hexdigest()[:16]
