"""How often a 95 % interval of a rank holds the true rank: python tools/rank_coverage.py [TRIALS]

Models with the same seeds are evaluated on the same documents. Beside the interval that the tool uses: the one whose
part over seeds takes each model's variance by itself, and the one that counts the ranks of resamples, and takes the
middle 95 %.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from unittest.mock import patch

import numpy as np

from extrapolate.statistics import intervals, ranks

DOCUMENTS = 30
EFFECT, BETWEEN_SEEDS = 0.05, 0.01  # nats: what a document and a seed change of one model's loss alone
FAILED = 0.5  # nats that a failed seed loses
SIX, MANY = 6, 48
UNLIKE = 14  # times BETWEEN_SEEDS
# The true means, the deviations over seeds, and the share of seeds that fail.
CASES = {
    "6 equal": (np.zeros(SIX), np.full(SIX, BETWEEN_SEEDS), 0.0),
    "6, 0.005 nats apart": (np.arange(SIX) * 0.005, np.full(SIX, BETWEEN_SEEDS), 0.0),
    "6, 0.05 nats apart": (np.arange(SIX) * 0.05, np.full(SIX, BETWEEN_SEEDS), 0.0),
    "3 equal, 3 0.1 nats above": (np.repeat([0.0, 0.1], 3), np.full(SIX, BETWEEN_SEEDS), 0.0),
    "6 equal, 1 varies 14 times as much": (np.zeros(SIX), BETWEEN_SEEDS * np.repeat([1, UNLIKE], [SIX - 1, 1]), 0.0),
    "6 equal, one seed in five fails": (np.zeros(SIX), np.full(SIX, BETWEEN_SEEDS), 0.2),
    "48 equal": (np.zeros(MANY), np.full(MANY, BETWEEN_SEEDS), 0.0),
    "48 equal, 1 varies 14 times as much": (np.zeros(MANY), BETWEEN_SEEDS * np.repeat([1, UNLIKE], [MANY - 1, 1]), 0.0),
    "48 equal, 24 vary 14 times as much": (np.zeros(MANY), BETWEEN_SEEDS * np.repeat([1, UNLIKE], MANY // 2), 0.0),
    "48 equal, one seed in five fails": (np.zeros(MANY), np.full(MANY, BETWEEN_SEEDS), 0.2),
    "48, 0.02 nats apart": (np.arange(MANY) * 0.02, np.full(MANY, BETWEEN_SEEDS), 0.0),
}


def drawn(rng: np.random.Generator, named: str, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of losses, nats, [M, S, C], and targets, [C]. Sizes are log-normal, documents' own effects gamma.

    With one seed, the truth is that of these runs, so seeds change nothing.
    """
    mean_M, deviation_M, failing = CASES[named]
    models = len(mean_M)
    targets_C = np.ceil(np.exp(rng.normal(6, 0.7, DOCUMENTS)))
    document_C = 0.5 * rng.normal(0, 1, DOCUMENTS)  # of all models alike
    own_MC = EFFECT * (rng.gamma(4.0, 1.0, (models, DOCUMENTS)) - 4) / 2
    failed_MS = rng.random((models, seeds)) < failing
    seed_MS = deviation_M[:, None] * rng.normal(0, 1, (models, seeds)) + FAILED * failed_MS
    noise_MSC = np.sqrt(targets_C) * rng.normal(0, 0.1, (models, seeds, DOCUMENTS))
    loss_MC = 4.0 + mean_M[:, None] + document_C + own_MC
    return targets_C * (loss_MC[:, None] + (seeds > 1) * seed_MS[..., None]) + noise_MSC, targets_C


def of_resamples(sum_MSC: np.ndarray, targets_C: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """The middle 95 % of the ranks of resamples, [2, M]."""
    share_C = targets_C / targets_C.sum()
    effect_MC = sum_MSC.mean(axis=1) / targets_C
    drawn_RC = np.random.default_rng(seed).integers(0, DOCUMENTS, (resamples, DOCUMENTS))
    centre_M = effect_MC @ share_C - effect_MC.mean(axis=1)
    mean_RM = (effect_MC[:, drawn_RC] @ share_C).T + centre_M
    rank_RM = 1 + (mean_RM[:, None, :] < mean_RM[:, :, None]).sum(axis=2)
    return np.quantile(rank_RM, [0.025, 0.975], axis=0, method="nearest")


def row(cell: int, named: str, seeds: int, trials: int, resamples: int = 1000) -> str:
    """A row of the table, with the smallest share among models that differ; every cell has draws of its own."""
    mean_M, deviation_M, _ = CASES[named]
    alike_M = np.unique(np.stack([mean_M, deviation_M]), axis=1, return_inverse=True)[1]
    best_M = 1 + (mean_M[None, :] < mean_M[:, None]).sum(axis=1)
    last_M = (mean_M[None, :] <= mean_M[:, None]).sum(axis=1)
    held, width = np.zeros((3, len(mean_M))), np.zeros(3)
    for trial in range(trials):
        sum_MSC, targets_C = drawn(np.random.default_rng([5, cell, trial]), named, seeds)
        found = ranks.rank_intervals(sum_MSC, targets_C, resamples=resamples, seed=trial)
        with patch.object(intervals, "COMPARISONS_PER_DEGREE", math.inf):
            by_itself = ranks.rank_intervals(sum_MSC, targets_C, resamples=resamples, seed=trial)
        assert found is not None
        assert by_itself is not None
        for at, (low_M, high_M) in enumerate((found, by_itself, of_resamples(sum_MSC, targets_C, trial, resamples))):
            held[at] += (low_M <= best_M) & (last_M <= high_M)
            width[at] += (high_M - low_M + 1).mean()
    shares = [
        f"{100 * (np.bincount(alike_M, share) / np.bincount(alike_M)).min() / trials:.1f} % | {ranks_held / trials:.1f}"
        for share, ranks_held in zip(held, width, strict=True)
    ]
    return f"| {named} | {seeds} | {' | '.join(shares)} |"


def main(trials: int) -> None:
    """Prints a table in Markdown."""
    print("| true losses | seeds | interval | ranks | by itself | ranks | resamples | ranks |")
    print("|---|---|---|---|---|---|---|---|")
    cells = list(product(CASES, (1, 3)))
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, range(len(cells)), *zip(*cells, strict=True), [trials] * len(cells)):
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
