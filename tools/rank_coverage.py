"""How often a 95 % interval of a rank holds the true rank: python tools/rank_coverage.py [TRIALS]

Six models with the same seeds are evaluated on the same documents. Beside the interval that the tool uses: the one that
counts the ranks of resamples, and takes the middle 95 %.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from extrapolate.statistics.ranks import rank_intervals

DOCUMENTS = 30
MODELS = 6
EFFECT, BETWEEN_SEEDS = 0.05, 0.01  # nats: what a document and a seed change of one model's loss alone
MEANS = {
    "all equal": np.zeros(MODELS),
    "0.005 nats apart": np.arange(MODELS) * 0.005,
    "0.05 nats apart": np.arange(MODELS) * 0.05,
    "three equal, three 0.1 nats above": np.repeat([0.0, 0.1], 3),
}


def drawn(rng: np.random.Generator, mean_M: np.ndarray, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of losses, nats, [M, S, C], and targets, [C]. Sizes are log-normal, documents' own effects gamma."""
    targets_C = np.ceil(np.exp(rng.normal(6, 0.7, DOCUMENTS)))
    document_C = 0.5 * rng.normal(0, 1, DOCUMENTS)  # of all models alike
    own_MC = EFFECT * (rng.gamma(4.0, 1.0, (MODELS, DOCUMENTS)) - 4) / 2
    seed_MS = (BETWEEN_SEEDS if seeds > 1 else 0.0) * rng.normal(0, 1, (MODELS, seeds))
    noise_MSC = np.sqrt(targets_C) * rng.normal(0, 0.1, (MODELS, seeds, DOCUMENTS))
    loss_MC = 4.0 + mean_M[:, None] + document_C + own_MC
    return targets_C * (loss_MC[:, None] + seed_MS[..., None]) + noise_MSC, targets_C


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
    """A row of the table; every cell has draws of its own."""
    mean_M = MEANS[named]
    best_M = 1 + (mean_M[None, :] < mean_M[:, None]).sum(axis=1)
    last_M = (mean_M[None, :] <= mean_M[:, None]).sum(axis=1)
    held, width = np.zeros((2, MODELS)), np.zeros(2)
    for trial in range(trials):
        sum_MSC, targets_C = drawn(np.random.default_rng([5, cell, trial]), mean_M, seeds)
        found = rank_intervals(sum_MSC, targets_C, resamples=resamples, seed=trial)
        assert found is not None
        for at, (low_M, high_M) in enumerate((found, of_resamples(sum_MSC, targets_C, trial, resamples))):
            held[at] += (low_M <= best_M) & (last_M <= high_M)
            width[at] += (high_M - low_M + 1).mean()
    shares = [
        f"{100 * share.min() / trials:.1f} % | {ranks_held / trials:.1f}"
        for share, ranks_held in zip(held, width, strict=True)
    ]
    return f"| {named} | {seeds} | {' | '.join(shares)} |"


def main(trials: int) -> None:
    """Prints a table in Markdown."""
    print(
        "| true losses | seeds | interval | ranks in it | ranks of resamples | ranks in it |\n|---|---|---|---|---|---|"
    )
    cells = list(product(MEANS, (1, 3)))
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, range(len(cells)), *zip(*cells, strict=True), [trials] * len(cells)):
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
