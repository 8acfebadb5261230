"""Repetition at a hidden distance."""

import numpy as np

from extrapolate.data.synthetic.base import Process, processes
from extrapolate.errors import UserError


@processes.register("echo")
class Echo(Process):
    """Every token repeats the one `lag` places before, apart from noise; each document draws its lag.

    Lags are shortest, 2 shortest, 4 shortest, ... up to longest, equally likely. With probability `noise`, a repetition
    is replaced by a token drawn uniformly from all, as are the first `lag` tokens. In a window no longer than the lag,
    nothing can be predicted, so lags beyond L only help longer windows. The best prediction weights every lag by how
    well it explains the window so far.
    Arguments: states; shortest and longest, tokens; noise; documents, of `length` tokens each (default 1040, for 16x of
    64); seed.
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
            raise UserError(f"echo: expected 1 <= shortest <= longest < length, not {shortest}, {longest}, {length}")
        if not 0 < noise < 1:
            raise UserError(f"echo: noise must be between 0 and 1, not {noise:g}")
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
