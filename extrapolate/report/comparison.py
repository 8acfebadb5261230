"""Which of two models is better at a length, and how sure that is: from the rows of evaluated runs alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.evaluation.names import PLAIN_NAME
from extrapolate.evaluation.statistics import Interval, interval
from extrapolate.report import tables

ENOUGH_DOCUMENTS = 30  # below this, stretches of 16 L tokens are resampled in the documents' place
CONTROL = "its control"
SETTING = ["protocol", "factor", "targets_hash"]


@dataclass(frozen=True)
class Comparison:
    """The loss of one model minus another's, nats per target, on the same targets; `clusters` were resampled."""

    protocol: str
    factor: float
    model: str
    other: str
    difference: Interval
    clusters: str
    seeds: int

    def row(self) -> dict[str, Any]:
        """As a row of JSON."""
        found = self.difference
        return {
            "protocol": self.protocol, "factor": self.factor, "model": self.model, "other": self.other,
            "difference": found.mean, "low": found.low, "high": found.high, "verdict": found.verdict(),
            "clusters": found.clusters, "cluster": self.clusters, "seeds": self.seeds,
        }  # fmt: skip


def comparable_rows(evals: pd.DataFrame, documents: pd.DataFrame, extensions: bool) -> tuple[pd.DataFrame, list[str]]:
    """The documents' rows of each run's last checkpoint, with what tells replicates apart.

    Without `extensions`, only those of the runs as they were trained. Of several sets of targets one is kept for each
    protocol, as in a report, and warnings say what was left out. Raises ValueError where runs differ in corpus,
    training length, precision or split, or runs of one model differ in more than their seed.
    """
    chosen = tables.comparable(evals, {})
    if not extensions:
        chosen = chosen[chosen["extension"] == PLAIN_NAME]
    for model, mine in chosen.groupby("model"):
        if mine["config_hash"].nunique() > 1:
            raise ValueError(
                f"the runs {', '.join(sorted(set(mine['run'])))} are all {model} but differ in more than their seed; "
                "compare them separately"
            )
    kept, warnings = [], []
    for _, mine in chosen.groupby("protocol", sort=False):
        same, said = tables.same_targets(mine)
        kept.append(same)
        warnings += said
    keys = ["run", "extension", "step", "precision", "split", *SETTING]
    rows = documents.merge(pd.concat(kept)[[*keys, "seed"]], on=keys).dropna(subset=["loss"])
    return rows, warnings


def comparisons(rows: pd.DataFrame, confidence: float = 0.95) -> Iterator[Comparison]:
    """Every pair of models, and every model with its control, at every factor on the same targets.

    Runs of one model that differ in their seed are averaged, cluster by cluster, before anything is resampled.
    """
    for (protocol, factor, _), here in rows.groupby(SETTING):
        enough = here["document"].nunique() >= ENOUGH_DOCUMENTS
        cluster = ["document"] if enough else ["document", "block"]
        name = "documents" if enough else "stretches"
        here = here.assign(
            total=here["loss"] * here["n_targets"], control_total=here["control_loss"] * here["n_targets"]
        )
        models: dict[str, pd.DataFrame] = {}
        seeds: dict[str, int] = {}
        for model, mine in here.groupby("model", sort=False):
            per_seed = mine.groupby([*cluster, "seed"], dropna=False)[["total", "control_total", "n_targets"]].sum()
            models[str(model)] = per_seed.groupby(cluster).mean()
            seeds[str(model)] = mine["seed"].nunique(dropna=False)  # the unknown one of an imported checkpoint, too
        for model, mine in models.items():
            found = _difference(mine["total"], mine["control_total"], mine["n_targets"], confidence)
            yield Comparison(str(protocol), float(str(factor)), model, CONTROL, found, name, seeds[model])
        for model, other in combinations(models, 2):
            first, second = models[model].align(models[other], join="inner")
            if len(first) < len(models[model]) or len(first) < len(models[other]):
                continue  # not the same targets after all
            found = _difference(first["total"], second["total"], first["n_targets"], confidence)
            fewest = min(seeds[model], seeds[other])
            yield Comparison(str(protocol), float(str(factor)), model, other, found, name, fewest)


def _difference(ours: Any, theirs: Any, targets: Any, confidence: float) -> Interval:
    return interval(
        np.asarray(ours, float) - np.asarray(theirs, float), np.asarray(targets, float), confidence=confidence
    )
