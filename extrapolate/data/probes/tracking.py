"""A value that is handed on from variable to variable."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("tracking")
@dataclass(frozen=True, kw_only=True)
class Tracking(Probe):
    """Chains of assignments: a variable gets a value, and each next one copies the last; the answer is the final value.

        text ... [m k1 v  j1 w  k2 k1  j2 j1  k3 k2  j3 j2] text ... text [m k3 -> v]

    No assignment has both the queried variable and its value: they are `hops` apart. The chains are interleaved, each
    in its own order. Variables differ; values may be equal.

    Arguments: hops, from the first variable of a chain to the last; chains, one of which is queried.
    Source: variable tracking of RULER, Hsieh et al., arXiv 2404.06654, which spreads the assignments over the text and
    asks for all variables of a value.
    """

    hops: int = 2
    chains: int = 2
    marker: ClassVar[int] = 4
    source: ClassVar[str] = "arXiv 2404.06654"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("hops", 1, self.symbols - 1)
        self._check("chains", 1, self.symbols // (self.hops + 1))

    def least(self) -> int:
        return 2 * self.chains * (self.hops + 1) + 3

    @property
    def vocabulary_needed(self) -> int:
        """Token ids: markers, the end-of-text token, symbols, and as many variables."""
        return super().vocabulary_needed + self.symbols

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The values of the window's chains."""
        return self._symbols_in_blocks(tokens_WN, 2 * self.chains * (self.hops + 1), vocabulary)

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        steps = self.hops + 1
        variables = rng.choice(vocabulary.keys(self.symbols), (self.chains, steps), replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.chains)
        given = np.concatenate([values[:, None], variables[:, :-1]], axis=1)
        chain = rng.permutation(np.repeat(np.arange(self.chains), steps))  # whose turn it is
        step = np.array([int((chain[:at] == chain[at]).sum()) for at in range(len(chain))])
        assignments = np.stack([variables[chain, step], given[chain, step]], axis=1)
        asked = int(rng.integers(self.chains))
        marker = vocabulary.marker(self.marker)
        block = np.concatenate([[marker], assignments.ravel()])
        question = np.array([marker, variables[asked, -1], values[asked]])
        return Parts(block, question, np.array([2]), variables.ravel())
