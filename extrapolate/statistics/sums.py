"""Losses of documents, summed by cluster once for all comparisons of a length.

Letters: R runs, S seeds, C clusters.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from extrapolate.statistics.intervals import Estimate, estimate

ENOUGH_DOCUMENTS = 30  # below this, stretches of 16 L tokens are resampled instead of documents
SETTING = ["protocol", "factor", "targets_hash"]
LOSSES = ("loss", "control_loss", "optimum_loss")


class Sums:
    """One model's sums of losses (nats) and numbers of targets by cluster, for each of its runs.

    seeds: the known ones, in order. runs: the number of runs.
    """

    def __init__(self, at: Mapping[int | None, int], sum_RC: Mapping[str, np.ndarray]) -> None:
        self.seeds, self.runs = tuple(seed for seed in at if seed is not None), len(at)
        self._at, self._sum_RC = at, sum_RC

    def of(self, seeds: tuple[int, ...], name: str) -> np.ndarray:
        """One column's sums, [S, C], for the runs with these seeds; NaN if a run lacks the cluster.

        A run with an unknown seed stands for each of them.
        """
        chosen = [self._at[None]] * max(1, len(seeds)) if None in self._at else [self._at[seed] for seed in seeds]
        found: np.ndarray = self._sum_RC[name][chosen]
        return found

    def mean(self) -> float:
        """The mean loss over all runs, nats per target; infinite instead of NaN."""
        means = []
        for run in self._at.values():
            held_C = ~np.isnan(self._sum_RC["n_targets"][run])
            means.append(self._sum_RC["loss"][run][held_C].sum() / self._sum_RC["n_targets"][run][held_C].sum())
        mean = float(np.mean(means))
        return math.inf if math.isnan(mean) else mean


class ComparisonGroup:
    """The sums of all models at one length of one protocol, on the same targets.

    clusters: the kind of clusters, in words. count: their number. models: each model's sums, in the order of the rows.
    """

    def __init__(self, protocol: str, factor: float, rows: pd.DataFrame) -> None:
        self.protocol, self.factor = protocol, factor
        self.clusters, by = clusters_of(rows)
        cluster = rows.groupby(by, observed=True).ngroup()
        self.count = int(cluster.max()) + 1
        self.models = _by_model(rows, cluster)


def settings(rows: pd.DataFrame) -> list[ComparisonGroup]:
    """The sums for each protocol, factor and set of targets in documents' rows."""
    return [
        ComparisonGroup(str(protocol), float(str(factor)), here)
        for (protocol, factor, _), here in rows.groupby(SETTING, observed=True)
    ]


def difference(ours: Sums, own: str, theirs: Sums, other: str, seeds: tuple[int, ...]) -> Estimate | None:
    """One column of a model minus a column of another, over the runs with these seeds, which both have.

    None if the runs have different clusters, or one lacks the column.
    """
    held_SC = ~np.isnan(np.concatenate([ours.of(seeds, "n_targets"), theirs.of(seeds, "n_targets")]))
    if (held_SC != held_SC[0]).any():
        return None
    ours_SC, theirs_SC = ours.of(seeds, own)[:, held_SC[0]], theirs.of(seeds, other)[:, held_SC[0]]
    if np.isnan(ours_SC).any() or np.isnan(theirs_SC).any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
        return estimate(ours_SC - theirs_SC, ours.of(seeds, "n_targets")[0, held_SC[0]])


def clusters_of(rows: pd.DataFrame) -> tuple[str, list[str]]:
    """What is resampled, and its columns: documents, or stretches of 16 L tokens if there are few documents."""
    if rows["document"].nunique() >= ENOUGH_DOCUMENTS:
        return "documents", ["document"]
    return "stretches", ["document", "block"]


def sums_of(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sums of losses (nats) and numbers of targets for each group of rows."""
    sums = rows[[*by, "n_targets"]].assign(**{name: rows[name].astype(float) * rows["n_targets"] for name in LOSSES})
    return sums.groupby(by, dropna=False, observed=True).sum(min_count=1)


def _by_model(rows: pd.DataFrame, cluster: "pd.Series[int]") -> dict[str, Sums]:
    run = ["model", "seed"]
    own = rows.groupby(run, observed=True, dropna=False).ngroup()
    sums = sums_of(rows.assign(run=own, cluster=cluster), ["run", "cluster"])
    sum_RC = {str(name): np.full((own.max() + 1, cluster.max() + 1), np.nan) for name in sums}
    for name, table in sum_RC.items():
        table[sums.index.get_level_values("run"), sums.index.get_level_values("cluster")] = sums[name]
    first = rows[run].assign(at=own)[~own.duplicated()]
    runs: dict[str, dict[int | None, int]] = {str(model): {} for model in first["model"]}
    for model, seed, at in first.sort_values("seed").itertuples(index=False, name=None):
        runs[str(model)][None if pd.isna(seed) else int(seed)] = at
    return {model: Sums(at, sum_RC) for model, at in runs.items()}
