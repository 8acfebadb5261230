"""Repetition at a hidden distance."""

import numpy as np

from extrapolate.data.synthetic.base import Process, processes


@processes.register("echo")
class Echo(Process):
    """Every token repeats the one `lag` places before, but for noise; each document draws its lag.

    Lags are shortest, 2 shortest, 4 shortest, ... up to longest, equally likely. A repetition is replaced by a token
    drawn evenly from all with probability `noise`, and so are the first `lag` tokens. A window that is not longer than
    the lag holds nothing to predict from: lags beyond L are of use to longer windows alone. The best prediction weighs
    every lag by how well it explains the window so far.
    Arguments: states (default 16); shortest (default 8) and longest (default 256), tokens; noise (default 0.1);
    documents (default 4096), of `length` tokens each (default 1040, for 16x of 64); seed.
    """

    def __init__(
        self,
        *,
        states: int = 16,
        shortest: int = 8,
        longest: int = 256,
        noise: float = 0.1,
        documents: int = 4096,
        length: int = 1040,
        seed: int = 0,
    ) -> None:
        super().__init__(states=states, documents=documents, length=length, seed=seed)
        if not 1 <= shortest <= longest < length:
            raise ValueError(f"echo: expected 1 <= shortest <= longest < length, not {shortest}, {longest}, {length}")
        if not 0 < noise < 1:
            raise ValueError(f"echo: noise must be between 0 and 1, not {noise:g}")
        self.shortest, self.longest, self.noise = shortest, longest, noise
        self.lags = [shortest * 2**n for n in range((longest // shortest).bit_length())]

    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        found = rng.integers(0, self.states, (documents, self.length))
        repeated = rng.random((documents, self.length)) >= self.noise
        for row, lag in enumerate(rng.choice(self.lags, documents)):
            for t in range(lag, self.length):
                if repeated[row, t]:
                    found[row, t] = found[row, t - lag]
        return found

    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        windows, length = tokens_WT.shape
        log_p = np.full((len(self.lags), windows, length), -np.log(self.states))  # of each token, under each lag
        for i, lag in enumerate(self.lags):
            same = tokens_WT[:, lag:] == tokens_WT[:, :-lag]
            log_p[i, :, lag:] = np.log((1 - self.noise) * same + self.noise / self.states)
        before = np.cumsum(log_p, axis=2) - log_p
        return (np.logaddexp.reduce(before, axis=0) - np.logaddexp.reduce(before + log_p, axis=0))[:, 1:]
