"""How often a 95 % interval holds the truth, by simulation: python benchmarks/coverage.py [TRIALS]

Documents have skewed sizes (log-normal), effects of their own (normal, or gamma, which is skewed), and noise in every
target. Beside the studentised bootstrap that the tool uses, a plain percentile bootstrap.
"""

import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from extrapolate.evaluation.statistics import RESAMPLES, interval

TRUTH = 0.05
# The spread of the logarithm of sizes, and the shape of the effects: a gamma's, none for a normal.
POPULATIONS: list[tuple[float, float | None]] = [(0.7, 4.0), (0.7, 1.0), (1.0, None), (1.0, 4.0)]
DOCUMENTS = (10, 20, 30, 100, 300)


def drawn(
    rng: np.random.Generator, documents: int, spread: float, shape: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Each document's summed difference in loss, and its targets; effects have mean TRUTH and deviation 0.1."""
    targets = np.ceil(np.exp(rng.normal(6, spread, documents)))
    normal = rng.normal(0, 1, documents)
    skewed = normal if shape is None else (rng.gamma(shape, 1.0, documents) - shape) / shape**0.5
    return targets * (TRUTH + 0.1 * skewed) + np.sqrt(targets) * rng.normal(0, 0.5, documents), targets


def percentile(sums: np.ndarray, targets: np.ndarray, seed: int) -> tuple[float, float]:
    """The plain bootstrap: quantiles of the resampled means."""
    count = len(sums)
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    low, high = np.quantile((times @ sums) / (times @ targets), [0.025, 0.975])
    return float(low), float(high)


def row(population: tuple[float, float | None], documents: int, trials: int) -> str:
    """A row of the table."""
    rng = np.random.default_rng(1)
    ours, plain = 0, 0
    for trial in range(trials):
        sums, targets = drawn(rng, documents, *population)
        found = interval(sums, targets, seed=trial)
        ours += found.low is not None and found.high is not None and found.low <= TRUTH <= found.high
        low, high = percentile(sums, targets, trial)
        plain += low <= TRUTH <= high
    spread, shape = population
    effects = "normal" if shape is None else f"gamma, shape {shape:g}"
    return f"| {spread:g} | {effects} | {documents} | {100 * ours / trials:.1f} % | {100 * plain / trials:.1f} % |"


def main(trials: int) -> None:
    """Prints a table in Markdown."""
    print("| spread of ln size | effects | documents | studentised | percentile |\n|---|---|---|---|---|")
    cells = [(population, documents, trials) for population in POPULATIONS for documents in DOCUMENTS]
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, *zip(*cells, strict=True)):
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
