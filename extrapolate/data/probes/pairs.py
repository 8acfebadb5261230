"""Keys and their values, some of which are asked for at the end of the window."""

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
    keyed: ClassVar[bool] = True
    source: ClassVar[str] = "arXiv 2312.04927"
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("pairs", 1, self.symbols)
        self._check("queries", 1, self.pairs)

    def least(self) -> int:
        return 2 * (self.pairs + self.queries) + 1

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The values of the window's pairs."""
        return self._symbols_in_blocks(tokens_WN, 2 * self.pairs, vocabulary)

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        keys = rng.choice(vocabulary.keys(self.symbols), self.pairs, replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.pairs)
        pairs = np.stack([keys, values], axis=1)
        asked = rng.choice(self.pairs, self.queries, replace=False)
        marker = vocabulary.marker(self.marker)
        return Parts.marked(marker, pairs.ravel(), pairs[asked].ravel(), slice(2, None, 2), keys)


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
    keyed: ClassVar[bool] = True
    source: ClassVar[str] = "arXiv 2609.34556"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("decoys", 1, self.symbols - 1)

    def least(self) -> int:
        return 2 * self.decoys + 5

    def candidates(self, tokens_WN: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
        """The decoys' values, and the right one: every second token from the end."""
        return tokens_WN[:, -2 * self.decoys - 1 :: 2]

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        keys = rng.choice(vocabulary.keys(self.symbols), self.decoys + 1, replace=False)
        values = rng.choice(vocabulary.symbols(self.symbols), self.decoys + 1, replace=False)
        pairs = np.stack([keys, values], axis=1)
        return Parts.marked(vocabulary.marker(self.marker), pairs[-1], pairs.ravel(), slice(-1, None), keys)


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
    keyed: ClassVar[bool] = True  # keys are the variables
    source: ClassVar[str] = "arXiv 2404.06654"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("hops", 1, self.symbols - 1)
        self._check("chains", 1, self.symbols // (self.hops + 1))

    def least(self) -> int:
        return 2 * self.chains * (self.hops + 1) + 3

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
        question = np.array([variables[asked, -1], values[asked]])
        marker = vocabulary.marker(self.marker)
        return Parts.marked(marker, assignments.ravel(), question, slice(-1, None), variables.ravel())
