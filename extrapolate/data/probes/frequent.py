"""The most frequent words of a list."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("frequent")
@dataclass(frozen=True, kw_only=True)
class Frequent(Probe):
    """A list of words with different frequencies: the most frequent are the answers, in order.

        text ... [m c a a b a c a a b a a] text ... text [m -> a b]

    The list fills half of the window, so the amount to count grows with it; in training it has any number of words up
    to that. The word of rank k occurs about k^-2 times as often as the first, and each answer occurs more often than
    all words after it. The surrounding text has none of the symbols. Answers differ, and each counts on its own.

    Arguments: top, the number of words to find.
    Source: frequent words extraction of RULER, Hsieh et al., arXiv 2404.06654. RULER takes the most frequent word for
    noise and asks for the next three.
    """

    top: int = 2
    marker: ClassVar[int] = 5
    source: ClassVar[str] = "arXiv 2404.06654"
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("top", 1, self.symbols - 1)

    def least(self) -> int:
        return max(2 * self._fewest, 2 * self.top + 1)

    @property
    def _fewest(self) -> int:
        """The fewest words in a list: the last answer occurs once, the one before it twice, and so on."""
        return self.top * (self.top + 1) // 2

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        most = length // 2
        count = most if full else int(rng.integers(self._fewest, most + 1))
        words = rng.permutation(vocabulary.symbols(self.symbols))
        listed = rng.permutation(np.repeat(words, self.times(count)))
        return Parts.marked(vocabulary.marker(self.marker), listed, words[: self.top], keys=words)

    def times(self, count: int) -> np.ndarray:
        """How often the word of each rank occurs in a list of `count` words, int64 [symbols]."""
        rank = np.arange(1, self.symbols + 1)
        share = rank**-2.0 / (rank**-2.0).sum()
        times = np.floor(count * share).astype(np.int64)
        for place in range(self.top - 1, -1, -1):  # more often than the next, in short lists too
            times[place] = max(times[place], times[place + 1] + 1)
        times[0] += count - times.sum()
        return times
