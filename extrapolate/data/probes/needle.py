"""One symbol, asked for at the end."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from extrapolate.data.probes.base import Parts, Probe, Vocabulary, probes


@probes.register("needle")
@dataclass(frozen=True, kw_only=True)
class Needle(Probe):
    """One symbol, to be predicted at the end of the window.

        text ... [m a] text ... text [m -> a]

    Source: after "needle in a haystack" tests, at the size of tiny models.
    """

    marker: ClassVar[int] = 2
    source: ClassVar[str] = "github.com/gkamradt/LLMTest_NeedleInAHaystack"
    whole: ClassVar[bool] = True

    def least(self) -> int:
        return 3

    def parts(self, rng: np.random.Generator, length: int, vocabulary: Vocabulary, full: bool) -> Parts:
        return Parts.repeated(vocabulary.marker(self.marker), rng.choice(vocabulary.symbols(self.symbols), 1))
