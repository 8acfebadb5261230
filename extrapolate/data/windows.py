"""Training windows: index arithmetic over the stream of training tokens."""

import numpy as np

from extrapolate.data.store import Split
from extrapolate.errors import UserError


class TrainingWindows:
    """Windows of seq_len inputs and their next tokens, in a seeded order that changes every epoch.

    Window w is tokens w L .. w L + L of the stream of documents joined by their end-of-text tokens, so every token
    is a target once per epoch. The whole state of the data is one integer, the number of windows taken so far.
    """

    def __init__(self, split: Split, seq_len: int, seed: int) -> None:
        """Raises UserError if the stream does not fill one window."""
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
            self._epoch, self._order = (
                epoch,
                np.random.default_rng([self.seed, epoch]).permutation(self.count),
            )
        start = int(self._order[place]) * self.seq_len
        return self.split.slice(start, start + self.seq_len + 1).astype(np.int64)
