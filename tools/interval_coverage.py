"""How often a 95 % interval holds the truth, by simulation: python tools/interval_coverage.py [TRIALS [STORE]]

Documents have skewed sizes, effects of their own, and noise in every target. Beside the interval that the tool uses,
the percentile bootstrap. With a token store, sizes are also drawn from its documents.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from extrapolate.data.store import SPLITS, Store
from extrapolate.statistics.intervals import RESAMPLES, interval

TRUTH = 0.05
DEVIATION = 0.1  # of the effects
DOCUMENTS = (10, 20, 30, 100, 300)


@dataclass(frozen=True)
class Population:
    """What documents are drawn from.

    Sizes are log-normal with this spread of their logarithm, or those listed. Effects are normal, or gamma with a
    shape (skewed), or absent: noise alone. `slope` is how far an effect rises with the logarithm of its size.
    """

    effects: str | float
    spread: float = 0.0
    sizes: tuple[int, ...] = ()
    named: str = ""
    slope: float = 0.0

    def drawn(self, rng: np.random.Generator, documents: int) -> tuple[np.ndarray, np.ndarray]:
        """Each document's summed difference in loss, and its targets. The mean over targets is TRUTH."""
        logarithm = rng.normal(0, self.spread, documents)
        targets = rng.choice(self.sizes, documents).astype(float) if self.sizes else np.ceil(np.exp(6 + logarithm))
        effect = np.zeros(documents)
        if self.effects == "normal":
            effect = rng.normal(0, 1, documents)
        elif not isinstance(self.effects, str):
            effect = (rng.gamma(self.effects, 1.0, documents) - self.effects) / self.effects**0.5
        # Weighted by size, the mean of the logarithm is the square of its spread.
        effect += self.slope * (logarithm - self.spread**2)
        noise = np.sqrt(targets) * rng.normal(0, 0.5, documents)
        return targets * (TRUTH + DEVIATION * effect) + noise, targets

    def cells(self) -> str:
        """Two cells of the table."""
        effects = self.effects if isinstance(self.effects, str) else f"gamma, shape {self.effects:g}"
        return f"{self.named or f'{self.spread:g}'} | {effects}{', rising with size' if self.slope else ''}"


POPULATIONS = [
    Population(4.0, 0.7), Population(1.0, 0.7),
    Population("normal", 1.0), Population(4.0, 1.0), Population(1.0, 1.0), Population("none", 1.0),
    Population(4.0, 1.2), Population(4.0, 0.7, slope=0.5), Population(4.0, 1.0, slope=0.5),
]  # fmt: skip


def of_store(path: Path) -> list[Population]:
    """Sizes of a store's test documents, and of all that are long enough to be held out."""
    store = Store.open(path)
    test = store.split("test").lengths
    every = np.concatenate([store.split(name).lengths for name in SPLITS])
    long = every[every >= test.min()]
    return [
        Population(4.0, sizes=tuple(map(int, lengths)), named=f"{len(lengths)} {name}")
        for name, lengths in (("test documents", test), ("long documents", long))
    ]


def percentile(sums: np.ndarray, targets: np.ndarray, seed: int) -> tuple[float, float]:
    """The plain bootstrap: quantiles of the resampled means."""
    drawn = np.random.default_rng(seed).integers(0, len(sums), (RESAMPLES, len(sums)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / targets[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def row(cell: int, population: Population, documents: int, trials: int) -> str:
    """A row of the table; every cell has draws of its own."""
    rng = np.random.default_rng([2, cell])
    ours, plain = 0, 0
    for trial in range(trials):
        sums, targets = population.drawn(rng, documents)
        found = interval(sums, targets, seed=trial)
        ours += found.low is not None and found.high is not None and found.low <= TRUTH <= found.high
        low, high = percentile(sums, targets, trial)
        plain += low <= TRUTH <= high
    return f"| {population.cells()} | {documents} | {100 * ours / trials:.1f} % | {100 * plain / trials:.1f} % |"


def main(trials: int, populations: list[Population]) -> None:
    """Prints a table in Markdown."""
    print("| spread of ln size | effects | documents | interval | percentile |\n|---|---|---|---|---|")
    cells = list(product(populations, DOCUMENTS))
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, range(len(cells)), *zip(*cells, strict=True), [trials] * len(cells)):
            print(line, flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 1000, POPULATIONS + (of_store(Path(given[1])) if given[1:] else []))
