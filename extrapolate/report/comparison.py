"""Which of two models is better at a length, and how sure that is: from the rows of evaluated runs alone."""

from collections.abc import Iterator, Mapping
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
OPTIMUM = "the optimum"  # of text whose origin tells it: to be below it is to have seen what was to be predicted
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


def comparable_rows(
    evals: pd.DataFrame, documents: pd.DataFrame, extensions: bool, only: Mapping[str, Any] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The documents' rows of each run's last checkpoint, with what tells replicates apart.

    Without `extensions`, only those of runs as they were trained; `only` restricts rows: column -> value. Of several
    sets of targets one is kept for each protocol, as in a report, and warnings say what was left out. Raises ValueError
    where runs differ in corpus, training length, precision or split, runs of one model differ in more than their seed,
    or no row has a loss.
    """
    chosen = tables.comparable(evals, only or {})
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
    rows = document_rows(pd.concat(kept), documents)
    if rows.empty:
        raise ValueError("no model reaches any of the lengths that were evaluated: evaluate at 1x too")
    return rows, warnings


def document_rows(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The documents' rows that belong to the rows given, with the seed; without those that have no loss."""
    keys = ["run", "extension", "step", "precision", "split", *SETTING]
    return documents.merge(rows[[*keys, "seed"]], on=keys).dropna(subset=["loss"])


def comparisons(rows: pd.DataFrame, confidence: float = 0.95, *, pairs: bool = True) -> Iterator[Comparison]:
    """Every model with its control, and with the optimum where it is known; with `pairs`, every pair of models too.

    At every factor, on the same targets. Runs of one model that differ in their seed are averaged, cluster by cluster,
    before anything is resampled.
    """
    for (protocol, factor, _), here in rows.groupby(SETTING):
        name, cluster = clusters_of(here)
        models = {str(model): over_seeds(mine, cluster) for model, mine in here.groupby("model", sort=False)}
        # The unknown seed of an imported checkpoint is one, too.
        seeds = here.groupby("model")["seed"].nunique(dropna=False)
        setting = str(protocol), float(str(factor))
        for model, mine in models.items():
            for other, column in ((CONTROL, "control_loss"), (OPTIMUM, "optimum_loss")):
                if mine[column].notna().all():
                    found = _difference(mine["loss"], mine[column], mine["n_targets"], confidence)
                    yield Comparison(*setting, model, other, found, name, int(seeds[model]))
        for model, other in combinations(models, 2) if pairs else ():
            first, second = models[model].align(models[other], join="inner")
            if len(first) < len(models[model]) or len(first) < len(models[other]):
                continue  # not the same targets after all
            found = _difference(first["loss"], second["loss"], first["n_targets"], confidence)
            yield Comparison(*setting, model, other, found, name, int(min(seeds[model], seeds[other])))


def clusters_of(rows: pd.DataFrame) -> tuple[str, list[str]]:
    """What is resampled, and the columns that tell it: documents, or stretches of 16 L where they are too few."""
    if rows["document"].nunique() >= ENOUGH_DOCUMENTS:
        return "documents", ["document"]
    return "stretches", ["document", "block"]


def over_seeds(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Of one model's rows: sums of losses (nats) and numbers of targets for each group, means over seeds."""
    sums = rows[[*by, "seed", "n_targets"]].assign(
        **{name: rows[name].astype(float) * rows["n_targets"] for name in ("loss", "control_loss", "optimum_loss")}
    )
    return sums.groupby([*by, "seed"], dropna=False).sum(min_count=1).groupby(by).mean()


def _difference(ours: Any, theirs: Any, targets: Any, confidence: float) -> Interval:
    return interval(
        np.asarray(ours, float) - np.asarray(theirs, float), np.asarray(targets, float), confidence=confidence
    )
