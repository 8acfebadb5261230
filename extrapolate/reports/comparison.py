"""Which of two models is better at a length, and how sure that is: from the rows of evaluated runs alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.errors import UserError
from extrapolate.evaluation.names import AS_TRAINED
from extrapolate.evaluation.statistics import LEAST, Interval, interval
from extrapolate.reports import tables
from extrapolate.reports.seeds import of_seeds, seeds_of, shared

ENOUGH_DOCUMENTS = 30  # below this, stretches of 16 L tokens are resampled in the documents' place
CONTROL = "its control"
OPTIMUM = "the optimum"  # of text whose origin tells it: to be below it is to have seen what was to be predicted
BELOW_OPTIMUM = "Chance does this to one interval in forty; otherwise the model sees what it should predict."
SETTING = ["protocol", "factor", "targets_hash"]


@dataclass(frozen=True)
class Comparison:
    """The loss of one model minus another's, nats per target, on the same targets; `clusters` were resampled.

    Both are means over `seeds`, which both have; it is empty where a checkpoint's seed is unknown. There is no
    difference where both have seeds and share none. Nearer to zero than `least`, nats, a difference is a tie.
    """

    protocol: str
    factor: float
    model: str
    other: str
    difference: Interval | None
    clusters: str
    seeds: tuple[int, ...]
    least: float = LEAST

    def verdict(self) -> str:
        """`win`, `tie`, `loss`, `too few`, or `no shared seed`."""
        return "no shared seed" if self.difference is None else self.difference.verdict(self.least)

    def row(self) -> dict[str, Any]:
        """As a row of JSON."""
        found = self.difference
        return {
            "protocol": self.protocol, "factor": self.factor, "model": self.model, "other": self.other,
            "difference": found and found.mean, "low": found and found.low, "high": found and found.high,
            "verdict": self.verdict(), "clusters": found and found.clusters, "cluster": self.clusters,
            "seeds": list(self.seeds), "n_seeds": 0 if found is None else max(1, len(self.seeds)),
        }  # fmt: skip


def comparable_rows(
    evals: pd.DataFrame, documents: pd.DataFrame, extensions: bool, only: Mapping[str, Any] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The documents' rows of each run's last checkpoint, with what tells replicates apart.

    Without `extensions`, only those of runs as they were trained; `only` restricts rows: column -> value. Of several
    sets of targets one is kept for each protocol, as in a report, and warnings say what was left out. Raises UserError
    where runs differ in corpus, training length, precision or split, runs of one model differ in more than their seed,
    or no row has a loss.
    """
    chosen = tables.comparable(evals, only or {})
    if not extensions:
        chosen = chosen[chosen["extension"] == AS_TRAINED]
        if chosen.empty:
            raise UserError("no row is of a run as it was trained: evaluate again, or compare extensions too")
    for model, mine in chosen.groupby("model"):
        if mine["config_hash"].nunique() > 1:
            raise UserError(
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
        raise UserError("no model reaches any of the lengths that were evaluated: evaluate at 1x too")
    return rows, warnings


def document_rows(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The documents' rows that belong to the rows given, with the seed; without those that have no loss.

    Raises UserError where a protocol has losses and no documents.
    """
    keys = ["run", "extension", "step", "precision", "split", *SETTING]
    lacking = set(rows.loc[rows["loss"].notna(), "protocol"])
    if not documents.empty:
        found = documents.drop(columns="model").merge(rows[[*keys, "seed", "model"]], on=keys).dropna(subset=["loss"])
        lacking -= set(found["protocol"])
    if lacking:
        raise UserError(
            f"eval_documents.parquet holds no document of the protocol {sorted(lacking)[0]}, which evals.parquet has: "
            "evaluate again"
        )
    return found


def comparisons(
    rows: pd.DataFrame, confidence: float = 0.95, *, pairs: bool = True, least: float = LEAST
) -> Iterator[Comparison]:
    """Every model with its control, and with the optimum where it is known; with `pairs`, every pair of models too.

    At every factor, on the same targets. Runs of one model that differ in their seed are averaged, cluster by cluster,
    before anything is resampled; of a pair of models, the runs of the seeds that both have.
    """
    for (protocol, factor, _), here in rows.groupby(SETTING):
        cluster, by = clusters_of(here)
        setting: dict[str, Any] = {"protocol": str(protocol), "factor": float(str(factor))}
        setting |= {"clusters": cluster, "least": least}
        models = {str(model): mine for model, mine in here.groupby("model", sort=False)}
        seeds = {model: seeds_of(mine) for model, mine in models.items()}
        mean_of = _MeansOverSeeds(models, by)
        for model, own in seeds.items():
            mine = mean_of(model, own)
            for other, column in ((CONTROL, "control_loss"), (OPTIMUM, "optimum_loss")):
                if mine[column].notna().all():
                    found = _difference(mine["loss"], mine[column], mine["n_targets"], confidence)
                    yield Comparison(model=model, other=other, difference=found, seeds=own, **setting)
        for model, other in combinations(models, 2) if pairs else ():
            both = shared(seeds[model], seeds[other])
            if not both and seeds[model]:
                yield Comparison(model=model, other=other, difference=None, seeds=(), **setting)
                continue
            first, second = mean_of(model, both), mean_of(other, both)
            ours, theirs = first.align(second, join="inner")
            if len(ours) < max(len(first), len(second)):
                continue  # not the same targets after all
            found = _difference(ours["loss"], theirs["loss"], ours["n_targets"], confidence)
            yield Comparison(model=model, other=other, difference=found, seeds=both, **setting)


class _MeansOverSeeds:
    """Each model's sums by cluster, means over some of its seeds, computed once."""

    def __init__(self, models: Mapping[str, pd.DataFrame], by: list[str]) -> None:
        self.models, self.by = models, by
        self._known: dict[tuple[str, tuple[int, ...]], pd.DataFrame] = {}

    def __call__(self, model: str, seeds: tuple[int, ...]) -> pd.DataFrame:
        if (model, seeds) not in self._known:
            self._known[model, seeds] = over_seeds(of_seeds(self.models[model], seeds), self.by)
        return self._known[model, seeds]


def table(found: Sequence[Comparison], confidence: float) -> pd.DataFrame:
    """Comparisons as text, pair by pair, a row for every factor; the names stand in a pair's first row alone."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in found:
        pairs.setdefault((one.model, one.other), []).append(one)
    rows = []
    for (model, other), mine in pairs.items():
        for at, one in enumerate(mine):
            names = {"model": model, "other": other} if at == 0 else {"model": "", "other": ""}
            rows.append(names | _cells(one, f"{confidence:.0%} interval"))
    return pd.DataFrame(rows)


def _cells(one: Comparison, interval_name: str) -> dict[str, str]:
    found = one.difference
    ends = "" if found is None or found.low is None else f"[{found.low:+.3f}, {found.high:+.3f}]"
    return {
        "ev": f"{one.factor:g}",
        "difference": "n/a" if found is None else f"{found.mean:+.3f}",
        interval_name: ends,
        "verdict": one.verdict(),
        "seeds": ", ".join(map(str, one.seeds)),
    }


def against(found: Iterable[Comparison], other: str, order: Sequence[str]) -> pd.DataFrame:
    """`Model`, the difference to `other` at each length as text, and the number of seeds; models in this order."""
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in order}
    mine = [one for one in found if one.other == other and one.difference is not None]
    for one in mine:
        assert one.difference is not None
        cells[one.model][f"ev={one.factor:g}"] = one.difference.text()
    for one in mine:
        cells[one.model]["Seeds"] = str(max(1, len(one.seeds)))  # an unknown seed is one
    return pd.DataFrame([row for row in cells.values() if len(row) > 1]).fillna("n/a")


def below_optimum(found: Iterable[Comparison]) -> list[Comparison]:
    """Those in which a model is surely below the optimum (see BELOW_OPTIMUM)."""
    return [one for one in found if one.other == OPTIMUM and one.verdict() == "win"]


def resampled(found: Sequence[Comparison]) -> str:
    """What was resampled: `27 documents`, `136 stretches, 140 stretches`."""
    counts = sorted({(one.difference.clusters, one.clusters) for one in found if one.difference is not None})
    return ", ".join(f"{count} {name}" for count, name in counts) or "nothing"


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
    with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
        difference = np.asarray(ours, float) - np.asarray(theirs, float)
        return interval(difference, np.asarray(targets, float), confidence=confidence)
