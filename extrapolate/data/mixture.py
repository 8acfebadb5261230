"""Training windows: index arithmetic over the stream of training tokens, with windows of probes mixed in."""

from dataclasses import dataclass

import numpy as np

from extrapolate import specs
from extrapolate.data.probes.base import Probe, Vocabulary, check_text, parse_probe
from extrapolate.data.store import Split
from extrapolate.errors import UserError


class TrainingWindows:
    """Windows of seq_len inputs and their next tokens, in a seeded order that changes every epoch.

    Window w is tokens w L .. w L + L of the documents joined by their end-of-text tokens, so every token is a target
    once per epoch. The whole state of the data is one integer, the number of windows taken so far.
    """

    def __init__(self, split: Split, seq_len: int, seed: int) -> None:
        """Raises UserError if the stream is shorter than a window."""
        self.split, self.seq_len, self.seed = split, seq_len, seed
        self.count = (split.n_tokens - 1) // seq_len
        if self.count < 1:
            raise UserError(
                f"the {split.name} split has {split.n_tokens} tokens, which do not fill a window of "
                f"{seq_len} and its next token; use a smaller `seq_len` or more data"
            )
        self._epoch = -1
        self._order = np.zeros(0, np.int64)

    def batch(self, first: int, size: int) -> np.ndarray:
        """Windows number first .. first+size-1 since the start of training, int64 [size, L + 1]."""
        return np.stack([self._window(number) for number in range(first, first + size)])

    def _window(self, number: int) -> np.ndarray:
        epoch, place = divmod(number, self.count)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.count)
        start = int(self._order[place]) * self.seq_len
        return self.split.slice(start, start + self.seq_len + 1).astype(np.int64)


_STREAM = 20_231_208  # keeps these draws apart from those of the text's order


@dataclass(frozen=True)
class Mixture:
    """Probes and their shares of all windows; the rest is text."""

    parts: tuple[tuple[Probe, float], ...]

    @classmethod
    def parse(cls, text: str) -> "Mixture":
        """Reads `passkey=0.25,mqar:pairs=8=0.25`. A probe with several arguments needs parentheses.

        Raises UserError if a share is missing or not above 0, they add up to more than 1, or a probe is repeated.
        """
        parts: dict[Probe, float] = {}
        for part in specs.split_outside_parentheses(text, ","):
            name, equals, share_text = part.rpartition("=")
            try:
                share = float(share_text)
            except ValueError:
                equals = ""
            if not equals:
                raise UserError(
                    f"'{specs.truncate(part.strip())}' is not a probe and its share: expected something like "
                    "passkey=0.25"
                )
            probe = parse_probe(specs.unwrapped(name.strip()))
            if not 0 < share <= 1:
                raise UserError(
                    f"the share of {probe.text} must be above 0 and at most 1, not {specs.truncate(share_text)}"
                )
            if probe in parts:
                raise UserError(f"{probe.text} is twice in '{specs.truncate(text)}'")
            parts[probe] = share
        if not parts:
            raise UserError("name probes and their shares, such as passkey=0.25,mqar=0.25, or off")
        if sum(parts.values()) > 1 + 1e-9:
            raise UserError(f"the shares in '{specs.truncate(text)}' add up to {sum(parts.values()):g}: more than 1")
        return cls(tuple(sorted(parts.items(), key=lambda item: item[0].text)))

    @property
    def text(self) -> str:
        """The normal form: equal for all spellings of a mixture."""
        return ",".join(
            f"{f'({probe.text})' if ',' in probe.text else probe.text}={share:.12g}" for probe, share in self.parts
        )


class MixedWindows:
    """Windows of text, some of them replaced by probes; the others are the same as without probes.

    Which windows are probes, and their content, follow from the seed and the window's number, so the whole state of
    the data is still one integer.
    """

    def __init__(self, text: TrainingWindows, mixture: Mixture, split: Split, vocabulary: Vocabulary) -> None:
        """Raises UserError if a probe does not fit into the windows or the vocabulary."""
        self.text, self.split, self.vocabulary = text, split, vocabulary
        self.probes = [probe for probe, _ in mixture.parts]
        self.bounds = np.cumsum([share for _, share in mixture.parts])
        if self.bounds[-1] > 1 - 1e-9:
            self.bounds[-1] = 1.0  # leaves nothing for text, despite rounding
        for probe in self.probes:
            probe.check(text.seq_len, vocabulary)
        check_text(split, text.seq_len)

    def batch(self, first: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows number first .. first+size-1: tokens, int64 [size, L + 1], and weights of targets, float32 [size, L].

        A window's weights add up to 1, spread evenly over the answers of a probe or the targets of a text.
        """
        length = self.text.seq_len
        tokens = np.empty((size, length + 1), np.int64)
        weights = np.zeros((size, length), np.float32)
        for row, number in enumerate(range(first, first + size)):
            rng = np.random.default_rng([_STREAM, self.text.seed, number])
            drawn = int(np.searchsorted(self.bounds, rng.random(), side="right"))
            if drawn == len(self.probes):
                tokens[row] = self.text.batch(number, 1)[0]
                weights[row] = 1 / length
            else:
                made = self.probes[drawn].sequence(rng, length, self.split, self.vocabulary)
                tokens[row] = made.tokens
                weights[row, made.answers - 1] = 1 / len(made.answers)
        return tokens, weights
