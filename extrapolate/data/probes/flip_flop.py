"""A bit that is written, and read after many bits to be ignored."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Sequence, Vocabulary, probes
from extrapolate.errors import UserError

if TYPE_CHECKING:
    from extrapolate.data.store import Split


@probes.register("flip-flop")
@dataclass(frozen=True, kw_only=True)
class FlipFlop(Probe):
    """Commands with a bit each, write or ignore; the last command reads, and the answer is the bit written last.

        i 1  w 0  i 0  w 1  i 0  i 0  i 1  m -> 1

    The pairs fill the window, without any text; an end-of-text token at the start makes up an odd length. The depth is
    the place of the last write: at 0 it is the first pair, at 1 the last before the read. Each pair before it is a
    write with a given probability, and all pairs after it are ignored. All bits are random, so reading any other pair
    is right half of the time. At small depths the last write is far behind ignored bits; at large ones it is near, and
    one of several writes.

    Arguments: writes, the probability of a write in each pair before the last write.
    Source: flip-flop language modelling, Liu et al., arXiv 2306.00946, which also reads along the way. There the
    distance of the last write is geometric; in training we draw its place uniformly, so that far ones are not rare.
    """

    symbols: int = 2
    writes: float = 0.1
    marker: ClassVar[int] = 6
    keyed: ClassVar[bool] = True  # two keys are the commands
    source: ClassVar[str] = "arXiv 2306.00946"
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.writes <= 1:
            raise UserError(f"{self.name}: writes must be between 0 and 1, not {self.writes:g}")

    def least(self) -> int:
        return 3

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        commands = vocabulary.keys(self.symbols)[:2]
        bit = rng.choice(vocabulary.symbols(self.symbols))
        block, question = np.array([commands[0], bit]), np.array([vocabulary.marker(self.marker), bit])
        return Parts(block, question, np.array([1]), commands)

    def sequence(
        self,
        rng: np.random.Generator,
        length: int,
        split: "Split",
        vocabulary: Vocabulary,
        depth: float | None = None,
    ) -> Sequence:
        """A window of `length` inputs, of pairs alone, with the last write at `depth` (None: anywhere)."""
        block, question, answers, (write, ignore) = self.parts(rng, length, vocabulary, depth is not None)
        count, left = divmod(length + 1 - len(question), len(block))
        last = int(rng.integers(count)) if depth is None else round(depth * (count - 1))
        commands = np.where(rng.random(count) < self.writes, write, ignore)
        commands[last + 1 :] = ignore
        pairs = np.stack([commands, rng.choice(vocabulary.symbols(self.symbols), count)], axis=1)
        pairs[last] = block
        tokens = np.concatenate([np.full(left, vocabulary.eos), pairs.ravel(), question])
        return Sequence(tokens, length + 1 - len(question) + answers)
