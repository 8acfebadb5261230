"""Loss by position in the window, and the failure length."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from extrapolate.results.verdicts import LEAST
from extrapolate.statistics.intervals import FEWEST, band
from extrapolate.statistics.sums import clusters_of, sums_of

BUCKET = ["model", "factor", "position"]
OF_ALL = "up to"  # begins `windows` of several lengths


@dataclass(frozen=True)
class Failure:
    """Where a model becomes worse than the control, and up to where it demonstrably is not.

    windows, in words: those of all lengths, `up to 16x`, if a token's loss does not depend on the length of its window;
    otherwise those of one length, `16x`, and the model has a failure for each. factor and length (tokens) are the
    longest. fails_from is the first bucket beyond L whose loss is significantly above the control's, and by at least
    LEAST. holds_to is the end of the last bucket, counted from L on without a gap, that is significantly less than
    LEAST above it. Both are tokens, None if there is no such bucket or there are too few clusters, and significance is
    simultaneous over all buckets of all models. Both are about the mean over seeds, and so about these runs. by_seed
    is fails_from of each seed, in words; empty for a single one.
    """

    model: str
    windows: str
    factor: float
    length: int
    fails_from: int | None
    holds_to: int | None
    clusters: int
    cluster: str
    seeds: int
    by_seed: str = ""

    def text(self) -> str:
        """The failure in words, for tables."""
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

    `rows` are documents' rows of one protocol on one set of targets (see `comparison.comparable_rows`). A position is
    the start of a bucket of inputs; `bucket` is its size, the same in all rows. The band is simultaneous over all
    models' rows that are `examined`; other rows have none.
    """
    name, by = clusters_of(rows)
    numbers = {
        "place": rows.groupby(BUCKET, observed=True).ngroup(),
        "cluster": rows.groupby(by, observed=True).ngroup(),
    }
    by_seed = sums_of(rows.assign(**numbers), [*numbers, "seed"])
    sums = by_seed.groupby([*numbers], observed=True).mean()
    sums["difference"] = sums["loss"] - sums["control_loss"]
    curves = sums.groupby("place")[["loss", "control_loss", "difference", "n_targets"]].sum()
    means = ["loss", "control_loss", "difference"]
    curves[means] = curves[means].div(curves["n_targets"], axis=0)
    curves = curves.assign(
        low=np.nan, high=np.nan, clusters=numbers["cluster"].nunique(), cluster=name, bucket=rows["bucket"].iloc[0]
    )
    places = rows[BUCKET].assign(place=numbers["place"]).drop_duplicates("place").astype({"model": str})
    curves = _told(places.sort_values("place").merge(curves, on="place"), rows).set_index("place")
    chosen = examined(curves)["difference"]
    finite = chosen.index[np.isfinite(chosen)]  # an infinite difference has no band, and must not affect others
    if len(finite):
        grid = sums[["difference", "n_targets"]].unstack("place").fillna(0.0)
        found = band(*(grid[of][finite].to_numpy() for of in ("difference", "n_targets")), confidence=confidence)
        curves["clusters"] = found.clusters
        curves.loc[finite, "low"], curves.loc[finite, "high"] = found.low_B, found.high_B
    return curves.reset_index(drop=True)


def _told(curves: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The curves with length, windows and seeds, in the order of the rows' models."""
    rows = rows[["model", "run", "seed", "factor", "length", "plan_hash"]]
    rows = rows.drop_duplicates().astype({"model": str, "run": str, "plan_hash": object})
    of_model = rows.groupby(["model", "factor"], sort=False)
    told = pd.DataFrame({"length": of_model["length"].first(), "seeds": of_model["seed"].nunique(dropna=False)})
    several = _without_length(rows)
    longest = rows.groupby("model")["factor"].max()
    told["windows"] = [
        f"{OF_ALL} {longest[model]:g}x" if model in several else f"{factor:g}x" for model, factor in told.index
    ]
    order = {model: at for at, model in enumerate(rows["model"].unique())}
    found = curves.merge(told.reset_index(), on=["model", "factor"])
    return found.sort_values("model", key=lambda models: models.map(order), kind="stable", ignore_index=True)


def _without_length(rows: pd.DataFrame) -> set[str]:
    """The models with several lengths beyond L, whose runs compute windows of all these lengths alike."""
    beyond = rows[rows["factor"] > 1][["model", "run", "factor", "plan_hash"]].drop_duplicates()
    found = set()
    for model, group in beyond.groupby("model"):
        alike = group["plan_hash"].notna().all() and (group.groupby("run")["plan_hash"].nunique() == 1).all()
        if alike and group["factor"].nunique() > 1:
            found.add(str(model))
    return found


def examined(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows that failure lengths are computed from: each bucket beyond L once per model and its `windows`.

    If these are of several lengths, a longer window begins with the same text and losses as the shorter one at its
    place. So if lengths divide each other, the shortest length with the whole bucket has each of its targets once.
    """
    seq_len = (curves["length"] / curves["factor"]).round()
    beyond = curves[curves["position"] >= seq_len]
    cut_off = beyond["position"] + beyond["bucket"] > beyond["length"]
    shortest_first = beyond.assign(cut_off=cut_off).sort_values(["cut_off", "length"], kind="stable")
    chosen = shortest_first.drop_duplicates(["model", "windows", "position"]).index
    return beyond.loc[chosen.sort_values()].sort_values("position", kind="stable")


def furthest(curves: pd.DataFrame) -> pd.DataFrame:
    """The examined rows to plot, one line per model: if failure lengths are per length, those of the longest."""
    rows = examined(curves)
    return rows[(rows["factor"] == curves["factor"].max()) | rows["windows"].str.startswith(OF_ALL)]


def failures(curves: pd.DataFrame) -> list[Failure]:
    """Every model's failure length for each of its `windows`, from the curves of `by_position`."""
    found = []
    for (model, windows), beyond in examined(curves).groupby(["model", "windows"], sort=False):
        # An infinite difference has no band, but is significant.
        surely = (beyond["low"] > 0) | np.isposinf(beyond["difference"])
        fails = beyond[surely & (beyond["difference"] >= LEAST)]["position"]
        held = int((beyond["high"] < LEAST).cumprod().sum())  # buckets, from L on
        longest = beyond.iloc[int(beyond["length"].argmax())]
        ends = [*beyond["position"].iloc[1:], longest["length"]]
        found.append(
            Failure(
                str(model),
                str(windows),
                float(longest["factor"]),
                int(longest["length"]),
                int(fails.iloc[0]) if len(fails) else None,
                int(ends[held - 1]) if held else None,
                int(longest["clusters"]),
                str(longest["cluster"]),
                int(longest["seeds"]),
            )
        )
    return found


def with_seeds(found: Iterable[Failure], rows: pd.DataFrame) -> list[Failure]:
    """The failures with `by_seed`, from the documents' rows that they come from."""
    several = rows.groupby("model", observed=True)["seed"].transform("nunique") > 1
    each: dict[tuple[str, str], list[str]] = {}
    for _, group in rows[several].groupby("seed"):
        for one in failures(by_position(group)):
            each.setdefault((one.model, one.windows), []).append(one.fails())
    return [replace(one, by_seed=", ".join(each.get((one.model, one.windows), []))) for one in found]


def failure_table(found: Iterable[Failure], order: Iterable[str]) -> pd.DataFrame:
    """`Model`, `Windows`, `Failure length` in words and `Seeds`: one row per model, or model and length."""
    by_model: dict[str, list[Failure]] = {}
    for one in sorted(found, key=lambda one: one.factor):
        by_model.setdefault(one.model, []).append(one)
    rows: list[tuple[str, ...]] = []
    for model in order:
        group = by_model.get(model, [])
        rows += [(model, one.windows, one.text(), str(one.seeds)) for one in group] or [(model, "n/a", "n/a", "n/a")]
    return pd.DataFrame(rows, columns=["Model", "Windows", "Failure length", "Seeds"])
