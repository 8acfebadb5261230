"""How often a 95 % interval over seeds and documents holds the truth: python tools/seed_coverage.py [TRIALS]

Two models are trained with the same few seeds and evaluated on the same documents. The truth is the mean difference
over all seeds and all documents. Beside the interval that the tool uses: one over documents alone, with the seeds
averaged, and one that adds both variances and takes Student's t with Satterthwaite's degrees of freedom.
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np

from extrapolate.results.verdicts import BETTER, WORSE
from extrapolate.statistics.intervals import Estimate, estimate
from extrapolate.statistics.student_t import quantile

SEEDS = (2, 3, 5)
DOCUMENTS = 30
EFFECT = 0.1  # nats: the deviation of documents' own differences
DEPTH = 0.5  # nats: how much worse a model is with a seed that fails


@dataclass(frozen=True)
class Population:
    """What seeds and documents are drawn from; all in nats.

    difference: between the models, seeds that fail left out. spread: the deviation of a normal difference between
    seeds. fails: how often each model's seed fails, for itself. crossed: the deviation of what a seed changes at one
    document alone.
    """

    named: str
    difference: float
    spread: float = 0.0
    fails: tuple[float, float] = (0.0, 0.0)
    crossed: float = 0.0

    @property
    def truth(self) -> float:
        """The mean difference over all seeds and documents."""
        return self.difference + DEPTH * (self.fails[0] - self.fails[1])

    def drawn(self, rng: np.random.Generator, seeds: int) -> tuple[np.ndarray, np.ndarray]:
        """Each document's summed difference with each seed, [seeds, documents], and its targets, [documents].

        Sizes are log-normal, documents' effects gamma with shape 4, and half a nat of noise is in every target.
        """
        targets_C = np.ceil(np.exp(rng.normal(6, 0.7, DOCUMENTS)))
        document_C = EFFECT * (rng.gamma(4.0, 1.0, DOCUMENTS) - 4) / 2
        seed_S = self.spread * rng.normal(0, 1, seeds)
        failed_S = (rng.random((2, seeds)) < np.array(self.fails)[:, None]).astype(float)
        seed_S += DEPTH * (failed_S[0] - failed_S[1])
        both_SC = self.crossed * rng.normal(0, 1, (seeds, DOCUMENTS))
        noise_SC = np.sqrt(targets_C) * rng.normal(0, 0.5, (seeds, DOCUMENTS))
        return targets_C * (self.difference + document_C + seed_S[:, None] + both_SC) + noise_SC, targets_C


POPULATIONS = [
    population
    for difference, text in ((0.0, "none"), (-0.1, "-0.1"))
    for population in (
        Population(f"{text} | all alike", difference),
        Population(f"{text} | normal, 0.02", difference, 0.02),
        Population(f"{text} | normal, 0.1", difference, 0.1),
        Population(f"{text} | normal, 0.02; 0.1 at each document", difference, 0.02, crossed=0.1),
        Population(f"{text} | one in five fails, of both models", difference, 0.02, fails=(0.2, 0.2)),
        Population(f"{text} | half fail, of both models", difference, 0.02, fails=(0.5, 0.5)),
    )
] + [
    Population("only what fails | one in five fails, of one model", 0.0, 0.02, fails=(0.2, 0.0)),
    Population("only what fails | half fail, of one model", 0.0, 0.02, fails=(0.5, 0.0)),
]


def satterthwaite(found: Estimate) -> tuple[float, float]:
    """The interval of both variances together."""
    assert found.error is not None
    documents, seeds = found.error**2, found.seed_error**2
    freedom = (documents + seeds) ** 2 / (documents**2 / (found.clusters - 1) + seeds**2 / (len(found.by_seed) - 1))
    reach = quantile(0.025, max(1, math.floor(freedom))) * math.sqrt(documents + seeds)
    return found.mean - reach, found.mean + reach


def row(cell: int, population: Population, seeds: int, trials: int, resamples: int = 1000) -> str:
    """A row of the table; every cell has draws of its own."""
    held, wrong, right = np.zeros(3), 0, 0
    truth = population.truth
    for trial in range(trials):
        sum_SC, targets_C = population.drawn(np.random.default_rng([3, cell, trial]), seeds)
        found = estimate(sum_SC, targets_C, resamples=resamples, seed=trial)
        ours = found.interval()
        documents = found.of_these_runs().interval()
        assert ours.low is not None
        assert ours.high is not None
        assert documents.low is not None
        assert documents.high is not None
        ends = (ours.low, ours.high), (documents.low, documents.high), satterthwaite(found)
        held += [low <= truth <= high for low, high in ends]
        said = {BETTER: -1, WORSE: 1}.get(ours.verdict(), 0)
        right += said != 0 and said == np.sign(truth)
        wrong += said != 0 and said != np.sign(truth)
    shares = " | ".join(f"{100 * share / trials:.1f} %" for share in (*held, wrong, right))
    return f"| {seeds} | {population.named} | {shares} |"


def main(trials: int) -> None:
    """Prints a table in Markdown."""
    print(
        "| seeds | difference | between seeds | interval | documents alone | Satterthwaite | wrong verdict "
        "| right verdict |\n|---|---|---|---|---|---|---|---|"
    )
    cells = list(product(POPULATIONS, SEEDS))
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, range(len(cells)), *zip(*cells, strict=True), [trials] * len(cells)):
            print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
