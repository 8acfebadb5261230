"""What the tests of probes share: a split to lay them into."""

from collections.abc import Callable

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary


class Text:
    """A split whose stream is random tokens: every id is frequent, markers and keys too."""

    name = "made up"

    def __init__(self, vocabulary: Vocabulary, n_tokens: int = 2000) -> None:
        self.n_tokens = n_tokens
        self.stream = np.random.default_rng(5).integers(vocabulary.size, size=n_tokens).astype(np.uint16)
        self.before = self.stream.copy()

    def slice(self, start: int, end: int) -> np.ndarray:
        assert 0 <= start <= end <= self.n_tokens
        return self.stream[start:end]


@pytest.fixture(scope="session")
def text_in() -> Callable[..., Text]:
    """Makes the split of random tokens of a vocabulary."""
    return Text
