"""The base class of algorithmic probes: problems that grow with the window, without text around them."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Sequence, Vocabulary

if TYPE_CHECKING:
    from extrapolate.data.store import Split


@dataclass(frozen=True, kw_only=True)
class WithoutText(Probe):
    """A problem and its answer at the end of a window, after end-of-text tokens:

        eos eos ... eos [m  problem] [m -> answer]

    In training, problems have any size that fits into the window; in evaluation, the largest.
    """

    whole: ClassVar[bool] = True
    depths: ClassVar[tuple[float, ...]] = (1.0,)  # the block is always next to the question

    @abstractmethod
    def largest(self, length: int) -> int:
        """The size of the largest problem in windows of `length` inputs."""

    @abstractmethod
    def answers(self, size: int) -> int:
        """How many answers a problem of this size has."""

    @abstractmethod
    def problem(self, rng: np.random.Generator, size: int, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of a problem and of its answer."""

    def least(self) -> int:
        return next(length for length in range(1, 100) if self.largest(length) >= 1)

    def chance_at(self, length: int) -> float:
        return float(self.symbols) ** -self.answers(self.largest(length))

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        largest = self.largest(length)
        size = largest if full else int(rng.integers(1, largest + 1))
        problem, answer = self.problem(rng, size, vocabulary)
        return Parts.marked(vocabulary.marker(self.marker), problem, answer)

    def sequence(
        self,
        rng: np.random.Generator,
        length: int,
        split: "Split",
        vocabulary: Vocabulary,
        depth: float | None = None,
    ) -> Sequence:
        """A window of `length` inputs without text. If a depth is given, the problem is the largest that fits.

        The end-of-text tokens come first, so that distances within a problem depend only on its size.
        """
        block, question, answers, _ = self.parts(rng, length, vocabulary, depth is not None)
        before = np.full(length + 1 - len(block) - len(question), vocabulary.eos, np.int64)
        return Sequence(np.concatenate([before, block, question]), length + 1 - len(question) + answers)
