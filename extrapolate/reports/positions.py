"""Where in the context the loss is what: curves by position in the window, and the failure length."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from extrapolate.evaluation.statistics import FEWEST, band
from extrapolate.reports.comparison import SETTING, clusters_of, over_seeds

LEAST = 0.01  # nats: a smaller difference is no failure, however sure it is


@dataclass(frozen=True)
class Failure:
    """From which position on windows of `length` tokens lose to the control, and how far they surely do not.

    fails_from is the first bucket beyond L whose loss is above the control's by LEAST or more, and surely above it;
    holds_to the end of the last of those, from L on, that are surely less than LEAST above it. Both are tokens, None
    where there is no such bucket, and surely is said of all buckets at once. Neither is known of too few clusters.
    Both are of the mean over seeds, and so of these runs. by_seed is fails_from of each of them, in words, and empty
    where there is one.
    """

    model: str
    factor: float
    length: int
    fails_from: int | None
    holds_to: int | None
    clusters: int
    cluster: str
    seeds: int
    by_seed: str = ""

    def text(self) -> str:
        """In words, for tables."""
        by_seed = f"; by seed: {self.by_seed}" if self.by_seed else ""
        if self.clusters < FEWEST:
            return "too few"
        if self.holds_to == self.length:
            return f"holds to {self.length}{by_seed}"
        fails = self.fails()
        return (fails if self.holds_to is None else f"{fails} (holds to {self.holds_to})") + by_seed

    def fails(self) -> str:
        """fails_from in words."""
        return "not found" if self.fails_from is None else str(self.fails_from)


def by_position(rows: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """Loss, control and their difference with a simultaneous band, for every model, factor and position, in nats.

    `rows` are documents' rows of one protocol (see `comparison.comparable_rows`). Positions are where a bucket of L/2
    inputs begins; the band holds all of a model's and factor's buckets beyond L at once, and is missing up to L, where
    windows and control differ in their context for reasons of their own.
    """
    found = []
    for (_, factor, _), here in rows.groupby(SETTING):
        name, cluster = clusters_of(here)
        for model, mine in here.groupby("model", sort=False):
            sums = over_seeds(mine, [*cluster, "position"]).reset_index()
            curve = sums.groupby("position")[["loss", "control_loss", "n_targets"]].sum()
            table = curve[["loss", "control_loss"]].div(curve["n_targets"], axis=0)
            table["difference"] = table["loss"] - table["control_loss"]
            length = int(here["length"].iloc[0])
            ends, clusters = _band(sums, cluster, round(length / float(str(factor))), confidence)
            table = table.join(ends).reset_index()
            found.append(
                table.assign(
                    n_targets=curve["n_targets"].to_numpy(),
                    model=str(model),
                    factor=float(str(factor)),
                    length=length,
                    clusters=clusters,
                    cluster=name,
                    seeds=mine["seed"].nunique(dropna=False),
                )
            )
    return pd.concat(found, ignore_index=True)


def _band(sums: pd.DataFrame, cluster: list[str], seq_len: int, confidence: float) -> tuple[pd.DataFrame, int]:
    """Low and high ends of the difference by position, nats, nothing up to L; and how many clusters tell them."""
    sums = sums.assign(difference=sums["loss"] - sums["control_loss"])
    beyond = sums[sums["position"] >= seq_len]
    ends = pd.DataFrame(np.nan, index=sorted(set(sums["position"])), columns=["low", "high"])
    if beyond.empty:
        return ends, sums.groupby(cluster).ngroups
    grid = beyond.pivot(index=cluster, columns="position", values=["difference", "n_targets"]).fillna(0.0)
    found = band(grid["difference"].to_numpy(), grid["n_targets"].to_numpy(), confidence=confidence)
    if found.low_B is not None and found.high_B is not None:
        ends.loc[grid["difference"].columns, "low"] = found.low_B
        ends.loc[grid["difference"].columns, "high"] = found.high_B
    return ends, found.clusters


def failures(curves: pd.DataFrame) -> list[Failure]:
    """The failure length of every model at every factor beyond 1, from what `by_position` found."""
    found = []
    for (model, factor), curve in curves.groupby(["model", "factor"], sort=False):
        length = int(curve["length"].iloc[0])
        beyond = curve[curve["position"] >= round(length / float(str(factor)))].sort_values("position")
        if beyond.empty:
            continue
        # An infinite difference has no band, and nothing is surer.
        surely = (beyond["low"] > 0) | np.isposinf(beyond["difference"])
        fails = beyond[surely & (beyond["difference"] >= LEAST)]["position"]
        held = int((beyond["high"] < LEAST).cumprod().sum())  # buckets, from L on
        ends = [*beyond["position"].iloc[1:], length]
        first = curve.iloc[0]
        found.append(
            Failure(
                str(model),
                float(str(factor)),
                length,
                int(fails.iloc[0]) if len(fails) else None,
                int(ends[held - 1]) if held else None,
                int(first["clusters"]),
                str(first["cluster"]),
                int(first["seeds"]),
            )
        )
    return found


def with_seeds(found: Iterable[Failure], rows: pd.DataFrame) -> list[Failure]:
    """The failures, each with those of its seeds, from the documents' rows that they come from."""
    several = rows.groupby("model")["seed"].transform("nunique") > 1
    each: dict[tuple[str, float], list[str]] = {}
    for _, mine in rows[several].groupby("seed"):
        for one in failures(by_position(mine)):
            each.setdefault((one.model, one.factor), []).append(one.fails())
    return [replace(one, by_seed=", ".join(each.get((one.model, one.factor), []))) for one in found]


def failure_table(found: list[Failure], order: list[str]) -> pd.DataFrame:
    """`Model`, the failure length in windows of each factor, in words, and the number of seeds."""
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in order}
    for one in sorted(found, key=lambda one: one.factor):
        cells[one.model][f"Failure length (ev={one.factor:g})"] = one.text()
    for one in found:
        cells[one.model]["Seeds"] = str(one.seeds)
    return pd.DataFrame(cells.values()).fillna("n/a")
