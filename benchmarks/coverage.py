"""How often a 95 % interval holds the truth, by simulation: python benchmarks/coverage.py [TRIALS]

Documents have skewed sizes (log-normal, sigma 0.7) and skewed effects (gamma, shape 4), and noise in every target.
Beside the studentised bootstrap that the tool uses, a plain percentile bootstrap.
"""

import sys

import numpy as np

from extrapolate.evaluation.statistics import RESAMPLES, interval

TRUTH = 0.05


def drawn(rng: np.random.Generator, documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Each document's summed difference in loss, and its targets."""
    targets = np.ceil(np.exp(rng.normal(6, 0.7, documents)))
    effect = TRUTH + 0.1 * (rng.gamma(4.0, 1.0, documents) - 4) / 2
    return targets * effect + np.sqrt(targets) * rng.normal(0, 0.5, documents), targets


def percentile(sums: np.ndarray, targets: np.ndarray, seed: int) -> tuple[float, float]:
    """The plain bootstrap: quantiles of the resampled means."""
    count = len(sums)
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    low, high = np.quantile((times @ sums) / (times @ targets), [0.025, 0.975])
    return float(low), float(high)


def main(trials: int) -> None:
    """Prints a table in Markdown."""
    print("| documents | studentised | percentile |\n|---|---|---|")
    for documents in (10, 20, 30, 100, 300):
        rng = np.random.default_rng(1)
        ours, plain = 0, 0
        for trial in range(trials):
            sums, targets = drawn(rng, documents)
            found = interval(sums, targets, seed=trial)
            ours += found.low is not None and found.high is not None and found.low <= TRUTH <= found.high
            low, high = percentile(sums, targets, trial)
            plain += low <= TRUTH <= high
        print(f"| {documents} | {100 * ours / trials:.1f} % | {100 * plain / trials:.1f} % |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
