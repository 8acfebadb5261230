"""What the probes of algorithms share: problems that grow with the window, without any text."""

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

    In training problems have any size that the window holds, in evaluation the largest one.
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
        """The tokens of a problem, and those of its answer."""

    def least(self) -> int:
        return next(length for length in range(1, 100) if self.largest(length) >= 1)

    def chance_at(self, length: int) -> float:
        return float(self.symbols) ** -self.answers(self.largest(length))

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        largest = self.largest(length)
        size = largest if full else int(rng.integers(1, largest + 1))
        problem, answer = self.problem(rng, size, vocabulary)
        marker = [vocabulary.marker(self.marker)]
        block, question = np.concatenate([marker, problem]), np.concatenate([marker, answer])
        return Parts(block, question, np.arange(1, len(question)))

    def sequence(
        self,
        rng: np.random.Generator,
        length: int,
        split: "Split",
        vocabulary: Vocabulary,
        depth: float | None = None,
    ) -> Sequence:
        """A window of `length` inputs without text. With a depth, whichever it is, the problem is the largest.

        The end-of-text tokens are first, so that the distances within a problem depend on its size alone.
        """
        block, question, answers, _ = self.parts(rng, length, vocabulary, depth is not None)
        before = np.full(length + 1 - len(block) - len(question), vocabulary.eos, np.int64)
        return Sequence(np.concatenate([before, block, question]), length + 1 - len(question) + answers)
