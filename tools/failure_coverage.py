"""How often a report names a failure where there is none: python tools/failure_coverage.py [REPORTS]

Each report has six models, of which one has a failure length for each of four evaluation lengths, on 30 documents of
unequal length with three seeds. Beside the test that the tool uses: one for each model and evaluation length by
itself. Also, how often a step of 0.02 nats is found where it is.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd

from extrapolate.statistics.positions import by_position, failures

SEQ_LEN, FACTORS, BUCKET = 64, (2, 4, 8, 16), 32
DOCUMENTS, MODELS, SEEDS = 30, 6, 3
STEP, STEP_AT = 0.02, 256  # nats, and tokens: with 30 buckets from 64 to 1024
# Nats: the deviation of a document's effect. Where it is small, the least difference that counts stops false failures.
DEVIATION_OF_STEP, DEVIATION_OF_NOTHING = 0.01, 0.1
LENGTHS = SEQ_LEN * np.array(FACTORS)
# The rows of a document: a bucket of positions beyond L in windows of a factor, shortest first.
ROWS = [(factor, position) for factor in FACTORS for position in range(SEQ_LEN, factor * SEQ_LEN, BUCKET)]


@dataclass(frozen=True)
class Population:
    """What documents are drawn from.

    effects: their distribution, with mean 0. spread: the deviation of the logarithm of documents' sizes.
    """

    effects: str
    spread: float

    def drawn(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Effects with a deviation of 1."""
        if self.effects == "normal":
            return rng.normal(size=shape)
        if self.effects == "Student's t, 3":
            return rng.standard_t(3, shape) / np.sqrt(3)
        sign = -1 if self.effects.startswith("minus") else 1
        return sign * (rng.gamma(1.0, 1.0, shape) - 1.0)  # exponential: skewed, with a heavy tail

    def rows(self, rng: np.random.Generator, step: float, deviation: float) -> pd.DataFrame:
        """Documents' rows of a report. The first model rises above its control by `step`, nats, from STEP_AT on.

        deviation: that of documents' effects on a model, nats.
        An effect is a document's own for all models, a document's on a model, drifting from bucket to bucket
        (correlation 0.9), and a seed's on both; half a nat of noise is in every target.
        """
        spans_D = np.ceil(np.exp(rng.normal(2.5, self.spread, DOCUMENTS)))
        share = np.array([FACTORS[-1] / factor for factor, _ in ROWS])
        targets_DR = spans_D[:, None] * share * BUCKET
        at = np.array([position // BUCKET for _, position in ROWS])
        buckets = at.max() + 1
        drift_DMSB = np.empty((DOCUMENTS, MODELS, SEEDS, buckets))
        drift_DMSB[..., 0] = self.drawn(rng, DOCUMENTS, MODELS, SEEDS)
        for b in range(1, buckets):
            fresh = self.drawn(rng, DOCUMENTS, MODELS, SEEDS)
            drift_DMSB[..., b] = 0.9 * drift_DMSB[..., b - 1] + np.sqrt(1 - 0.9**2) * fresh
        of_document = self.drawn(rng, DOCUMENTS, 1, 1, 1) + self.drawn(rng, DOCUMENTS, MODELS, 1, 1)
        effect = deviation * (of_document + drift_DMSB)[..., at] / np.sqrt(3)
        effect += rng.normal(0, 0.5, effect.shape) / np.sqrt(targets_DR)[:, None, None]
        effect[:, 0] += step * (np.array([position for _, position in ROWS]) >= STEP_AT)
        d, m, s, r = (grid.ravel() for grid in np.meshgrid(*map(np.arange, effect.shape), indexing="ij"))
        factor, position = np.array(ROWS)[r].T
        looks_at_length = m == MODELS - 1
        return pd.DataFrame(
            {
                "protocol": "windows", "targets_hash": "t", "model": m.astype(str), "run": m * SEEDS + s, "seed": s,
                "factor": factor.astype(float), "length": factor * SEQ_LEN, "document": d, "block": 0,
                "position": position, "bucket": SEQ_LEN // 2,
                "n_targets": targets_DR[d, r], "control_loss": 4.0, "loss": 4.0 + effect.ravel(),
                "optimum_loss": None, "plan_hash": np.where(looks_at_length, factor, 0).astype(str),
            }
        )  # fmt: skip


POPULATIONS = [
    Population("normal", 0.7),
    Population("Student's t, 3", 0.7),
    Population("exponential", 0.7),
    Population("minus exponential", 0.7),
    Population("Student's t, 3", 1.0),
]


def tried(cell: int, trial: int, also_single: bool) -> list[float]:
    """Of one report: whether it names a failure that is not there, whether tests by themselves would, nan where that is
    not asked; then whether the step is found too early, where it is, and a bucket later.
    """
    population, rng = POPULATIONS[cell], np.random.default_rng([9, cell, trial])
    rows, single = population.rows(rng, 0.0, DEVIATION_OF_NOTHING), np.nan
    if also_single:
        single = float(any(_fails(mine) for _, mine in rows.groupby(["model", "factor"])))
    found = failures(by_position(population.rows(rng, STEP, DEVIATION_OF_STEP)))
    (at,) = (one.fails_from for one in found if one.model == "0")
    return [_fails(rows), single, at is not None and at < STEP_AT, at == STEP_AT, at == STEP_AT + BUCKET]


def _fails(rows: pd.DataFrame) -> bool:
    return any(one.fails_from is not None for one in failures(by_position(rows)))


def main(reports: int) -> None:
    """Prints a table in Markdown."""
    print(
        "| effects | spread of ln size | false failures | each length by itself | too early | where it is "
        "| a bucket later |\n|---|---|---|---|---|---|---|"
    )
    also_single = [trial % 5 == 0 for trial in range(reports)]  # it takes three times as long
    with ProcessPoolExecutor() as pool:
        for cell, population in enumerate(POPULATIONS):
            found = pool.map(tried, [cell] * reports, range(reports), also_single, chunksize=5)
            shares = np.nanmean(np.array(list(found), float), axis=0)
            cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
            print(f"| {population.effects} | {population.spread:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 400)
