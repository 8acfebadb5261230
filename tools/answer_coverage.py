"""How often a report's answer says what is not so, and what it finds: python tools/answer_coverage.py [REPORTS]

Seven models and nine with an extension are evaluated at 2x to 16x, on 52 documents, as in docs/results/books.md. Also
measured, for comparison with the family that the answer rests on: all models at all lengths at once.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.reports.family import ERROR, HOLDS, Family, family, of_control
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, WORSE
from extrapolate.statistics.comparison import Comparison, comparisons

FACTORS, DOCUMENTS = (2, 4, 8, 16), 52
NOISE = 0.5  # nats, in every target
WITHIN = 0.005  # nats: what a seed changes of a model at every length
DEPTH = 0.5  # nats: how much worse a model is with a seed that fails
# How far a model is above its context cut back to L, at each length, and the deviation of that over seeds, nats: those
# of docs/results/books.md, fixed-target. An extension is looked at where it is longest alone.
BOOKS = {
    "RoPE": ((0.341, 0.551, 0.700, 0.850), (0.111, 0.094, 0.085, 0.073)),
    "p-RoPE": ((0.272, 0.498, 0.671, 0.842), (0.081, 0.077, 0.080, 0.066)),
    "ALiBi": ((0.0, 0.0, 0.0, 0.0), (0.002, 0.003, 0.002, 0.002)),
    "ExPE": ((0.007, 0.069, 0.221, 0.520), (0.015, 0.016, 0.013, 0.075)),
    "ExQPE": ((0.006, 0.069, 0.217, 0.456), (0.008, 0.006, 0.014, 0.020)),
    "FoX": ((-0.003, -0.003, -0.003, -0.003), (0.001, 0.001, 0.001, 0.001)),
    "NoPE": ((0.132, 0.320, 0.429, 0.491), (0.001, 0.024, 0.043, 0.050)),
    "RoPE + PI": ((0.838,) * 4, (0.008,) * 4),
    "RoPE + YaRN": ((0.314,) * 4, (0.029,) * 4),
    "p-RoPE + PI": ((0.815,) * 4, (0.021,) * 4),
    "p-RoPE + YaRN": ((0.292,) * 4, (0.017,) * 4),
    "ALiBi + PI": ((0.696,) * 4, (0.030,) * 4),
    "ExPE + PI": ((0.673,) * 4, (0.028,) * 4),
    "ExPE + Scale": ((0.394,) * 4, (0.008,) * 4),
    "ExQPE + PI": ((0.700,) * 4, (0.018,) * 4),
    "ExQPE + Scale": ((0.404,) * 4, (0.021,) * 4),
}
ABOVE = {"ALiBi": 0.06, "NoPE": 0.30}  # nats: the loss at L above RoPE's; of the others about as low
MODELS = list(BOOKS)
PLAIN = [model.partition(" + ")[0] for model in MODELS]
TRAINED = sum(" + " not in model for model in MODELS)
BEFORE = 1 - ERROR / ((len(MODELS) + len(MODELS) - 1) * len(FACTORS))  # the confidence of each of all comparisons


@dataclass(frozen=True)
class Population:
    """What reports are made of.

    rise_MF: how far each model truly is above its control at each length, and spread_MF its deviation over seeds, nats.
    above_M: the models' losses at L. seeds: how many are tried. effect: the deviation of documents' own effects on a
    model, relative to its rise and 0.01 nats. fails: how often a seed fails, of each model for itself.
    """

    named: str
    rise_MF: np.ndarray
    spread_MF: np.ndarray
    above_M: np.ndarray
    seeds: tuple[int, ...] = (2, 3, 5)
    effect: float = 0.15
    fails: float = 0.0

    def truth(self, model: str, factor: float) -> float:
        """How far a model is above its control."""
        return float(self.rise_MF[MODELS.index(model), FACTORS.index(int(factor))]) + DEPTH * self.fails

    def difference(self, one: Comparison) -> float:
        """Of two models' losses."""
        ours, theirs = (
            self.truth(model, one.factor) + float(self.above_M[MODELS.index(model)]) for model in (one.model, one.other)
        )
        return ours - theirs

    def rows(self, rng: np.random.Generator, seeds: int) -> pd.DataFrame:
        """Documents' rows of a report. Sizes are log-normal, documents' effects gamma with shape 4."""
        models = len(self.rise_MF)
        targets_C = np.ceil(np.exp(rng.normal(5, 0.7, DOCUMENTS)))
        several = seeds > 1  # with one seed, the truth is about this run
        within_MS = several * WITHIN * rng.normal(0, 1, (TRAINED, seeds))[[MODELS.index(plain) for plain in PLAIN]]
        seed_MS = several * rng.normal(0, 1, (models, seeds))  # a seed is good or bad at all lengths
        failed_MS = rng.random((models, seeds)) < self.fails
        own_MC = self.effect * (rng.gamma(4.0, 1.0, (models, DOCUMENTS)) - 4) / 2
        rise_MFSC = (
            self.rise_MF[:, :, None, None]
            + (self.spread_MF[:, :, None] * seed_MS[:, None])[..., None]
            + DEPTH * failed_MS[:, None, :, None]
            + ((abs(self.rise_MF) + 0.01)[..., None] * own_MC[:, None])[:, :, None]
        )
        rise_MFSC = rise_MFSC + rng.normal(0, NOISE, rise_MFSC.shape) / np.sqrt(targets_C)
        control_MSC = 4.0 + self.above_M[:, None, None] + within_MS[..., None] + rng.normal(0, 0.3, DOCUMENTS)
        m, f, s, c = (grid.ravel() for grid in np.meshgrid(*map(np.arange, rise_MFSC.shape), indexing="ij"))
        names = np.array(MODELS)
        return pd.DataFrame(
            {
                "protocol": "fixed-target", "targets_hash": "t", "model": names[m], "seed": s,
                "run": np.char.add(np.array(PLAIN)[m], s.astype(str)), "factor": np.array(FACTORS, float)[f],
                "extension": np.where(m < TRAINED, "as-trained", names[m]), "document": c, "block": 0,
                "n_targets": targets_C[c], "control_loss": control_MSC[m, s, c], "optimum_loss": None,
                "loss": control_MSC[m, s, c] + rise_MFSC.ravel(),
            }
        )  # fmt: skip


def alike(named: str, first: float, others: float, **more: Any) -> Population:
    """Models that are equal to each other and to their controls, with these deviations over seeds, nats."""
    spread_MF = np.full((len(MODELS), len(FACTORS)), others)
    spread_MF[[PLAIN.index("RoPE")]] = first
    return Population(named, np.zeros_like(spread_MF), spread_MF, np.zeros(len(MODELS)), **more)


_BOOKS = [np.array([BOOKS[model][part] for model in MODELS]) for part in (0, 1)]
POPULATIONS = [
    alike("equal, seeds alike", 0.0, 0.0, seeds=(1, 3), effect=5.0),
    alike("equal, 0.07", 0.07, 0.07, effect=5.0),
    alike("equal, the first 0.07, others 0.005", 0.07, 0.005, effect=1.0),
    alike("equal, one seed in five fails", 0.01, 0.01, seeds=(3,), effect=1.0, fails=0.2),
    Population("as on the books", *_BOOKS, np.array([ABOVE.get(plain, 0.0) for plain in PLAIN])),
]


def false_words(found: Family, population: Population) -> tuple[bool, bool]:
    """Whether the answer tells a false order, of models or of an extension; and a false one of model and control."""
    orders = [one for mine in found.orders.values() for one in mine] + list(found.extensions)
    wrong = {
        BETTER: lambda truth: truth >= 0, WORSE: lambda truth: truth <= 0,
        EQUIVALENT: lambda truth: abs(truth) >= LEAST, HOLDS: lambda truth: truth >= LEAST,
    }  # fmt: skip
    return (
        any(one.word in wrong and wrong[one.word](population.difference(one)) for one in orders),
        any(
            (said := of_control(one, True)) in wrong and wrong[said](population.truth(one.model, one.factor))
            for mine in found.controls.values()
            for one in mine
        ),
    )


def tried(population: Population, seeds: int, trial: int) -> list[float]:
    """Of one report: whether an order is false, whether a word on a control is; whether FoX is told to be better than
    RoPE at 16x, and whether it was with all comparisons at once; whether an extension is told to help."""
    number = POPULATIONS.index(population)
    rows = population.rows(np.random.default_rng([7, number, seeds, trial]), seeds)
    found = family(rows, rows, MODELS, True)
    at_longest = rows[(rows["factor"] == max(FACTORS)) & rows["model"].isin(["RoPE", "FoX"])]
    (before,) = comparisons(at_longest, BEFORE, controls=False, reference="RoPE")
    return [
        *map(float, false_words(found, population)),
        float(found.orders["FoX"][0].word == BETTER),
        float(before.word == BETTER),
        float(any(one.word == BETTER for one in found.extensions)),
    ]


def row(population: Population, seeds: int, shares: np.ndarray) -> str:
    """A row of the table."""
    cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
    return f"| {population.named} | {seeds} | {cells} |"


def main(reports: int) -> None:
    """Prints a table in Markdown."""
    print(
        "| models, and seeds | seeds | false order | false word of a control | FoX better than RoPE | all at once "
        "| some extension helps |\n|---|---|---|---|---|---|---|"
    )
    with ProcessPoolExecutor() as pool:
        for population in POPULATIONS:
            for seeds in population.seeds:
                found = list(pool.map(partial(tried, population, seeds), range(reports), chunksize=5))
                print(row(population, seeds, np.array(found).mean(axis=0)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
