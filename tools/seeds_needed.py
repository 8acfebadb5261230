"""Whether the number of seeds that a comparison advises is right: python tools/seeds_needed.py [STUDIES]

Two models with normal seeds on 30 documents. First the advice to somebody who knows all spreads, and how many studies
of that size then decide; then the advice that pilot studies with three or five seeds give.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from extrapolate.results.verdicts import EQUIVALENT, ORDERED, UNDECIDED
from extrapolate.statistics.intervals import Estimate, Needed, estimate

DOCUMENTS = 30
EFFECT = 0.02  # nats: the deviation of documents' own differences
PILOTS = (3, 5)  # seeds
NORMAL = np.sort(np.random.default_rng(0).standard_normal(20_000))
ROWS = [(difference, spread) for spread in (0.01, 0.03, 0.07) for difference in (0.0, 0.015, 0.03, 0.06, 0.12)]


@dataclass(frozen=True)
class Population:
    """Two models: their difference, and the deviation of it over seeds, nats."""

    difference: float
    spread: float

    def known(self) -> Needed | None:
        """The advice to somebody who knows the difference and both spreads."""
        by_seed = tuple(self.difference + side * self.spread / math.sqrt(2) for side in (-1, 1))
        return Estimate(self.difference, DOCUMENTS, EFFECT / math.sqrt(DOCUMENTS), NORMAL, by_seed).needed()

    def study(self, rng: np.random.Generator, seeds: int, documents: int) -> Estimate:
        """What a study finds."""
        seed_S = self.spread * rng.standard_normal((seeds, 1))
        effect_C = EFFECT * rng.standard_normal(documents)
        return estimate(self.difference + seed_S + effect_C, np.ones(documents), resamples=1000)


def said(needed: Needed | None) -> str:
    """`9`, `9 on 60 documents`, `more than 100`."""
    if needed is None or needed.seeds is None:
        return "more than 100"
    return f"{needed.seeds}" + (f" on {needed.clusters} documents" if needed.clusters > DOCUMENTS else "")


def row(number: int, difference: float, spread: float, studies: int) -> str:
    """A row of the table."""
    population, rng = Population(difference, spread), np.random.default_rng([11, number])
    known = population.known()
    decided = "n/a"
    if known is not None and known.seeds is not None:
        wanted = ORDERED if difference else (EQUIVALENT,)
        found = [population.study(rng, known.seeds, known.clusters).interval().verdict() for _ in range(studies)]
        decided = f"{100 * np.mean([verdict in wanted for verdict in found]):.0f} %"
    cells = [f"{difference:g}", f"{spread:g}", said(known), decided]
    for seeds in PILOTS:
        pilots = [population.study(rng, seeds, DOCUMENTS) for _ in range(studies)]
        advised = [one.needed() for one in pilots if one.interval().verdict() == UNDECIDED]
        counts = [math.inf if one is None or one.seeds is None else one.seeds for one in advised]
        low, middle, high = (
            np.quantile(counts, share, method="inverted_cdf") if counts else math.nan for share in (0.1, 0.5, 0.9)
        )
        shown = [f"{count:.0f}" if math.isfinite(count) else ">100" for count in (low, middle, high)]
        cells += [f"{100 * len(counts) / studies:.0f} %", f"{shown[1]} ({shown[0]} to {shown[2]})" if counts else ""]
    return f"| {' | '.join(cells)} |"


def main(studies: int) -> None:
    """Prints a table in Markdown."""
    pilots = " | ".join(f"{seeds} seeds undecided | which advise" for seeds in PILOTS)
    print(f"| difference | between seeds | seeds needed | then decided | {pilots} |\n|{'---|' * (4 + 2 * len(PILOTS))}")
    differences, spreads = zip(*ROWS, strict=True)
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, range(len(ROWS)), differences, spreads, [studies] * len(ROWS)):
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 500)
