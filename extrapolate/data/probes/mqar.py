"""Multi-query associative recall."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("mqar")
@dataclass(frozen=True, kw_only=True)
class MQAR(Probe):
    """Keys with a value each; some keys are queried, in any order, and every answer counts on its own.

        text ... [m k1 v1 k2 v2 k3 v3 k4 v4] text ... text [m k3 -> v3 k1 -> v1]

    Keys differ; values may be equal. Not all keys are queried, because the last value would follow from the others.

    Arguments: pairs, of a key and its value; queries, the number of queried keys.
    Source: multi-query associative recall, Arora et al., arXiv 2312.04927.
    """

    pairs: int = 4
    queries: int = 2
    marker: ClassVar[int] = 1
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

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The values of the window's pairs."""
        return self._symbols_in_blocks(tokens_WN, 2 * self.pairs, vocabulary)

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        keys = rng.choice(vocabulary.keys(self.symbols), self.pairs, replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.pairs)
        pairs = np.stack([keys, values], axis=1)
        asked = rng.choice(self.pairs, self.queries, replace=False)
        marker = [vocabulary.marker(self.marker)]
        block, question = (np.concatenate([marker, part.ravel()]) for part in (pairs, pairs[asked]))
        return Parts(block, question, np.arange(2, len(question), 2), keys)
