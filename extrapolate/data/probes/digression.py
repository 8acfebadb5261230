"""A value that is asked for again after a digression."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("digression")
@dataclass(frozen=True, kw_only=True)
class Digression(Probe):
    """A key and its value; after the text, another key with another value; the question is about the first.

        text ... [m k1 v1] text ... text [m k2 v2  k1 -> v1]

    The text in between is the digression, and `k2 v2` is the decoy: it is as recent as it can be, however far back the
    right pair is. A model that falls back on what it read last gives the decoy's value, so it does worse than one that
    guesses between the two. Keys differ, and so do values.

    Arguments: decoys, the number of pairs before the question.
    Source: the return from a digression, arXiv 2609.34556, App. D, where prompts are sentences and an answer is right
    if it is likelier than the decoy: that is our `choice`.
    """

    decoys: int = 1
    marker: ClassVar[int] = 7
    source: ClassVar[str] = "arXiv 2609.34556"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("decoys", 1, self.symbols - 1)

    def least(self) -> int:
        return 2 * self.decoys + 5

    @property
    def vocabulary_needed(self) -> int:
        """Token ids: markers, the end-of-text token, symbols, and as many keys."""
        return super().vocabulary_needed + self.symbols

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The decoys' values, and the right one: every second token from the end."""
        return tokens_WN[:, -2 * self.decoys - 1 :: 2]

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        keys = rng.choice(vocabulary.keys(self.symbols), self.decoys + 1, replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.decoys + 1, replace=False)
        pairs = np.stack([keys, values], axis=1)
        marker = [vocabulary.marker(self.marker)]
        block, question = np.concatenate([marker, pairs[-1]]), np.concatenate([marker, pairs.ravel()])
        return Parts(block, question, np.array([len(question) - 1]), keys)
