"""How much of what a report's answer says is not so, and what it finds: python tools/answer_coverage.py [REPORTS]

Seven models and nine with an extension are evaluated at 16x, on 52 documents, as examples/studies/books.toml has them;
in one population, there are 42 models. Also measured, for comparison: what is found if all intervals hold at once.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.reports.fdr import HOLDS, Family, family, of_control, simultaneous
from extrapolate.results.verdicts import BETTER, EQUIVALENT, LEAST, WORSE

FACTOR, DOCUMENTS = 16, 52
NOISE = 0.5  # nats, in every target
WITHIN = 0.005  # nats: what a seed changes of a model at every length
DEPTH = 0.5  # nats: how much worse a model is with a seed that fails
# How far a model is above its context cut back to L, and the deviation of that over seeds, nats: measured on English
# books with examples/studies/books.toml at L = 64 (commit b81d4a6f8137, an earlier recipe, 2026-11-22), fixed-target.
BOOKS = {
    "RoPE": (0.850, 0.073),
    "p-RoPE": (0.842, 0.066),
    "ALiBi": (0.0, 0.002),
    "ExPE": (0.520, 0.075),
    "ExQPE": (0.456, 0.020),
    "FoX": (-0.003, 0.001),
    "NoPE": (0.491, 0.050),
    "RoPE + PI": (0.838, 0.008),
    "RoPE + YaRN": (0.314, 0.029),
    "p-RoPE + PI": (0.815, 0.021),
    "p-RoPE + YaRN": (0.292, 0.017),
    "ALiBi + PI": (0.696, 0.030),
    "ExPE + PI": (0.673, 0.028),
    "ExPE + Scale": (0.394, 0.008),
    "ExQPE + PI": (0.700, 0.018),
    "ExQPE + Scale": (0.404, 0.021),
}
ABOVE = {"ALiBi": 0.06, "NoPE": 0.30}  # nats: the loss at L above RoPE's; of the others about as low


@dataclass(frozen=True)
class Population:
    """What reports are made of.

    models: their names; `A + B` is A with an extension, and has A's seeds. rise_M: how far each truly is above its
    control, and spread_M the deviation of that over seeds, nats. above_M: the losses at L. seeds: how many are tried.
    effect: the deviation of documents' own effects on a model, relative to its rise and 0.01 nats. fails: how often a
    seed fails, of each model for itself.
    """

    named: str
    models: list[str]
    rise_M: np.ndarray
    spread_M: np.ndarray
    above_M: np.ndarray
    seeds: tuple[int, ...] = (3, 5)
    effect: float = 0.15
    fails: float = 0.0

    def truth(self, model: str) -> float:
        """How far a model is above its control."""
        return float(self.rise_M[self.models.index(model)]) + DEPTH * self.fails

    def difference(self, model: str, other: str) -> float:
        """Of two models' losses."""
        ours, theirs = (self.truth(name) + float(self.above_M[self.models.index(name)]) for name in (model, other))
        return ours - theirs

    def rows(self, rng: np.random.Generator, seeds: int) -> pd.DataFrame:
        """Documents' rows of a report. Sizes are log-normal, documents' effects gamma with shape 4."""
        models, plain = len(self.models), [model.partition(" + ")[0] for model in self.models]
        targets_C = np.ceil(np.exp(rng.normal(5, 0.7, DOCUMENTS)))
        several = seeds > 1  # with one seed, the truth is about this run
        within_MS = (several * WITHIN * rng.normal(0, 1, (models, seeds)))[[self.models.index(name) for name in plain]]
        seed_MS = several * rng.normal(0, 1, (models, seeds))
        failed_MS = rng.random((models, seeds)) < self.fails
        own_MC = self.effect * (rng.gamma(4.0, 1.0, (models, DOCUMENTS)) - 4) / 2
        rise_MS = self.rise_M[:, None] + self.spread_M[:, None] * seed_MS + DEPTH * failed_MS
        rise_MSC = rise_MS[..., None] + ((abs(self.rise_M) + 0.01)[:, None] * own_MC)[:, None]
        rise_MSC = rise_MSC + rng.normal(0, NOISE, rise_MSC.shape) / np.sqrt(targets_C)
        control_MSC = 4.0 + self.above_M[:, None, None] + within_MS[..., None] + rng.normal(0, 0.3, DOCUMENTS)
        m, s, c = (grid.ravel() for grid in np.meshgrid(*map(np.arange, rise_MSC.shape), indexing="ij"))
        names = np.array(self.models)
        return pd.DataFrame(
            {
                "protocol": "fixed-target", "targets_hash": "t", "model": names[m], "seed": s,
                "run": np.char.add(np.array(plain)[m], s.astype(str)), "factor": float(FACTOR),
                "extension": np.where(names[m] == np.array(plain)[m], "as-trained", names[m]), "document": c,
                "block": 0, "n_targets": targets_C[c], "control_loss": control_MSC[m, s, c], "optimum_loss": None,
                "loss": control_MSC[m, s, c] + rise_MSC.ravel(),
            }
        )  # fmt: skip


def alike(
    named: str, some: float, others: float, models: Sequence[str] = tuple(BOOKS), who: str = "RoPE", **more: Any
) -> Population:
    """Models that are equal to each other and to their controls, with these deviations over seeds, nats: that of the
    models whose names begin with `who`, and that of others."""
    spread_M = np.array([some if model.startswith(who) else others for model in models])
    return Population(named, list(models), np.zeros_like(spread_M), spread_M, np.zeros_like(spread_M), **more)


def as_books(named: str, models: list[str], **more: Any) -> Population:
    """Models with the losses of the books' models; `RoPE 2` has those of RoPE."""
    kinds = [re.sub(r" \d+$", "", model) for model in models]
    rise_M, spread_M = np.array([BOOKS[kind] for kind in kinds]).T
    above_M = np.array([ABOVE.get(kind.partition(" + ")[0], 0.0) for kind in kinds])
    return Population(named, models, rise_M, spread_M, above_M, **more)


COPIES = [f"{model} {copy}" for copy in range(2, 8) for model in BOOKS if " + " not in model]
POPULATIONS = [
    alike("equal, seeds alike", 0.0, 0.0, seeds=(1, 3), effect=5.0),
    alike("equal, 0.07", 0.07, 0.07, effect=5.0),
    alike("equal, the first 0.07, others 0.005", 0.07, 0.005, effect=1.0),
    alike("equal, one seed in five fails", 0.01, 0.01, seeds=(3,), effect=1.0, fails=0.2),
    alike("42 equal, the first 0.07, others 0.005", 0.07, 0.005, COPIES, seeds=(3,), effect=1.0),
    alike("42 equal, six others 0.07, the rest 0.005", 0.07, 0.005, COPIES, "ExPE", seeds=(3,), effect=1.0),
    alike("42 equal, one seed in five fails", 0.01, 0.01, COPIES, seeds=(3,), effect=1.0, fails=0.2),
    as_books("as on the books", list(BOOKS)),
    as_books("42 models as on the books", COPIES, seeds=(1, 3)),
]
WRONG: dict[str, Callable[[float], bool]] = {
    BETTER: lambda truth: truth >= 0,
    WORSE: lambda truth: truth <= 0,
    EQUIVALENT: lambda truth: abs(truth) >= LEAST,
    HOLDS: lambda truth: truth >= LEAST,
}


def judged(found: Family, population: Population) -> list[list[tuple[str | None, float]]]:
    """What is said in answer to each question, with the truth about it, nats."""
    return [
        [(one.word, population.difference(one.model, one.other)) for one in found.orders],
        [(of_control(one, found.excused), population.truth(one.model)) for one in found.controls],
        [(one.word, population.difference(one.model, one.other)) for one in found.extensions],
    ]


def at_once(found: Family) -> Family:
    """The same, with intervals that hold for all comparisons of a question at once."""
    orders, controls, extensions = (
        [simultaneous(one, len(asked)) for one in asked] for asked in (found.orders, found.controls, found.extensions)
    )
    return replace(found, orders=orders, controls=controls, extensions=extensions)


def share_found(judged: list[tuple[str | None, float]]) -> float:
    """The share of the differences of at least LEAST nats that the answer reports with the right sign."""
    there = [(word, truth) for word, truth in judged if abs(truth) >= LEAST]
    return float(np.mean([word == (BETTER if truth < 0 else WORSE) for word, truth in there])) if there else math.nan


def interval_is_wrong(found: Family, population: Population) -> float:
    """Whether the interval in parentheses, that of the largest reported difference, misses the true difference."""
    better = [one for one in found.orders if one.word == BETTER]
    if not better:
        return 0.0
    best = min(better, key=lambda one: one.difference.mean if one.difference else math.inf)
    wide = simultaneous(best, len(found.orders))
    truth, given = population.difference(best.model, best.other), wide.difference
    if not wide.sure() or given is None or given.low is None or given.high is None:
        return 0.0
    return float(not given.low <= truth <= given.high)


def tried(population: Population, seeds: int, trial: int) -> list[float]:
    """Of one report: the share that is wrong of what is said in answer to each question; whether the interval in
    parentheses is wrong; and the shares of orders and extensions that are found, then with all intervals at once."""
    number = [one.named for one in POPULATIONS].index(population.named)
    rows = population.rows(np.random.default_rng([7, number, seeds, trial]), seeds)
    found = family(rows, rows, population.models, True)
    wrong = []
    for question in judged(found, population):
        said = [WRONG[word](truth) for word, truth in question if word in WRONG]
        wrong.append(float(np.mean(said)) if said else 0.0)
    shares = [share_found(question) for of in (found, at_once(found)) for question in judged(of, population)[::2]]
    return [*wrong, interval_is_wrong(found, population), *shares]


def row(population: Population, seeds: int, shares: np.ndarray) -> str:
    """A row of the table."""
    cells = " | ".join("n/a" if math.isnan(share) else f"{100 * share:.1f} %" for share in shares)
    return f"| {population.named} | {seeds} | {cells} |"


def main(reports: int) -> None:
    """Prints a table in Markdown."""
    print(
        "| models, and seeds | seeds | false orders | false words of controls | false words of extensions "
        "| false interval | orders found | extensions found | orders found at once | extensions found at once |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    with ProcessPoolExecutor() as pool:
        for population in POPULATIONS:
            for seeds in population.seeds:
                found = list(pool.map(partial(tried, population, seeds), range(reports), chunksize=5))
                print(row(population, seeds, np.array(found).mean(axis=0)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
