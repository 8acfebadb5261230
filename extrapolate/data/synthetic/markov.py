"""Markov chains."""

import numpy as np

from extrapolate.data.synthetic.base import Process, processes
from extrapolate.errors import UserError


@processes.register("markov")
class Markov(Process):
    """A Markov chain whose transition rows are drawn from a symmetric Dirichlet prior, anew for every document.

    The best prediction of j after i is (n_ij + c) / (n_i + c K), with n the transitions seen in the window, K the
    states and c the concentration. It takes the window's first token as given. A chain that has run for long favours
    some states, so the first token says a little about the rows: at most 0.1 nats in a whole window (K 16, c 0.3), or
    0.002 per token at 64 tokens.
    Arguments: states, K; concentration, c; documents, of `length` tokens each (default 1040, for 16x of 64); seed.
    """

    def __init__(
        self,
        *,
        states: int = 16,
        concentration: float = 0.3,
        documents: int = 4096,
        length: int = 1040,
        seed: int = 0,
    ) -> None:
        super().__init__(states=states, documents=documents, length=length, seed=seed)
        if concentration <= 0:
            raise UserError(f"markov: concentration must be more than 0, not {concentration:g}")
        self.concentration = concentration

    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        prior = np.full(self.states, self.concentration)
        rows = np.cumsum(rng.dirichlet(prior, size=(documents, self.states)), axis=-1)
        rows[..., -1] = 1.0
        found = np.empty((documents, self.length), np.int64)
        found[:, 0] = rng.integers(0, self.states, documents)
        each = np.arange(documents)
        for t in range(1, self.length):
            found[:, t] = (rows[each, found[:, t - 1]] < rng.random((documents, 1))).sum(axis=1)
        return found

    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        windows, length = tokens_WT.shape
        counts = np.zeros((windows, self.states, self.states))
        totals = np.zeros((windows, self.states))
        losses = np.empty((windows, length - 1))
        each = np.arange(windows)
        for t in range(length - 1):
            here, following = tokens_WT[:, t], tokens_WT[:, t + 1]
            seen = counts[each, here, following] + self.concentration
            losses[:, t] = np.log((totals[each, here] + self.states * self.concentration) / seen)
            counts[each, here, following] += 1
            totals[each, here] += 1
        return losses
