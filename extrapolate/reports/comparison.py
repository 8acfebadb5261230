"""Which of two models is better at a length, and how sure that is: from the rows of evaluated runs alone."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.errors import UserError
from extrapolate.evaluation.names import AS_TRAINED
from extrapolate.evaluation.statistics import LEAST, Interval, estimate, holm
from extrapolate.reports import tables
from extrapolate.reports.seeds import seeds_of, shared
from extrapolate.specs import did_you_mean

ENOUGH_DOCUMENTS = 30  # below this, stretches of 16 L tokens are resampled in the documents' place
CONTROL = "its control"
OPTIMUM = "the optimum"  # of text whose origin tells it: to be below it is to have seen what was to be predicted
BELOW_OPTIMUM = "Chance does this to one interval in forty; otherwise the model sees what it should predict."
THIS_RUN = " (this run)"  # ends the verdict on one run of a model: another seed may give another
CORRECTIONS = ("none", "holm")
MARK = "*"  # a difference that is sure after the correction
SETTING = ["protocol", "factor", "targets_hash"]


@dataclass(frozen=True)
class Comparison:
    """The loss of one model minus another's, nats per target, on the same targets; `clusters` were resampled.

    Both are means over `seeds`, which both have; it is empty where a checkpoint's seed is unknown. There is no
    difference where both have seeds and share none. Nearer to zero than `least`, nats, a difference is a tie.
    by_seed: the difference of each pair of runs with one seed, nats. these_runs: the difference and its interval over
    documents alone, with the seeds averaged. one_run: whether a model has one run here, so that nothing is known of
    other seeds. p: the least 1 - confidence at which the interval would leave out zero; corrected: the same for all
    comparisons that are shown together, None where they are not corrected. confidence: of the interval.
    """

    protocol: str
    factor: float
    model: str
    other: str
    difference: Interval | None
    clusters: str
    seeds: tuple[int, ...]
    least: float = LEAST
    by_seed: tuple[float, ...] = ()
    these_runs: Interval | None = None
    one_run: bool = False
    p: float | None = None
    corrected: float | None = None
    confidence: float = 0.95

    def verdict(self) -> str:
        """`win`, `tie`, `loss`, each with THIS_RUN where a model has one run; `too few`, or `no shared seed`."""
        if self.difference is None:
            return "no shared seed"
        found: str = self.difference.verdict(self.least)
        if found == "too few":
            return found
        if math.isinf(self.difference.mean) and not all(map(math.isinf, self.by_seed)):
            found = "tie"  # some seeds diverge, and some do not
        if self.corrected is not None and self.corrected >= 1 - self.confidence:
            found = "tie"
        return found + (THIS_RUN if self.one_run else "")

    def sure(self) -> bool:
        """Whether it is a win or a loss."""
        return self.verdict().startswith(("win", "loss"))

    def row(self) -> dict[str, Any]:
        """As a row of JSON."""
        found = self.difference
        return {
            "protocol": self.protocol, "factor": self.factor, "model": self.model, "other": self.other,
            "difference": found and found.mean, "by_seed": list(self.by_seed),
            "low": found and found.low, "high": found and found.high, "p": self.p, "p_corrected": self.corrected,
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
    """The documents' rows that belong to the rows given, with the seed and `plan_hash`; without those of no loss.

    Raises UserError where a protocol has losses and no documents.
    """
    found = of_documents(rows, documents)
    lacking = set(rows.loc[rows["loss"].notna(), "protocol"]) - set(found["protocol"])
    if lacking:
        raise UserError(
            f"eval_documents.parquet holds no document of the protocol {sorted(lacking)[0]}, which evals.parquet has: "
            "evaluate again"
        )
    return found


def of_documents(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """As `document_rows`, where some rows, or all, may have no documents."""
    keys, told = ["run", "extension", "step", "precision", "split", *SETTING], ["seed", "model", "plan_hash"]
    if documents.empty:
        return pd.DataFrame(columns=[*keys, *told])
    own = documents.drop(columns=told, errors="ignore")
    return own.merge(rows[[*keys, *told]], on=keys).dropna(subset=["loss"])


def comparisons(
    rows: pd.DataFrame,
    confidence: float = 0.95,
    *,
    pairs: bool = True,
    controls: bool = True,
    reference: str | None = None,
    least: float = LEAST,
) -> Iterator[Comparison]:
    """With `controls`, every model with its control, and with the optimum where it is known; with `pairs`, every pair,
    or with a `reference` every other model with it.

    At every factor, on the same targets. Runs of one model that differ in their seed are replicates; of a pair of
    models, runs with the same seed are a pair, and only seeds that both have count. Two runs with one seed read the
    same windows in the same order, and have the same initial weights but for what their encodings add. How far that
    makes them alike need not be known: the differences of the pairs vary by what is left (see `Estimate.interval`).
    """
    for setting, models in _settings(rows, confidence, least):
        for model, own in models.items():
            for other, column in ((CONTROL, "control_loss"), (OPTIMUM, "optimum_loss")) if controls else ():
                difference = _difference(own.of(own.seeds), "loss", own.of(own.seeds), column)
                if difference is not None:
                    setting |= {"seeds": own.seeds, "one_run": own.runs < 2}
                    yield Comparison(model=model, other=other, **setting, **_found(*difference, confidence))
        for model, other in _pairs(models, reference) if pairs else ():
            yield from _pair(models, model, other, setting)


def with_best(rows: pd.DataFrame, confidence: float = 0.95, *, least: float = LEAST) -> Iterator[Comparison]:
    """At every factor, every other model with the one whose mean loss is least. Rows as for `comparisons`."""
    for setting, models in _settings(rows, confidence, least):
        best = min(models, key=lambda model: models[model].mean())
        for model, other in _pairs(models, best):
            yield from _pair(models, model, other, setting)


def _settings(
    rows: pd.DataFrame, confidence: float, least: float
) -> Iterator[tuple[dict[str, Any], dict[str, "Sums"]]]:
    """For each protocol and factor: what all its comparisons have, and the models' sums."""
    for (protocol, factor, _), here in rows.groupby(SETTING):
        cluster, by = clusters_of(here)
        setting: dict[str, Any] = {"protocol": str(protocol), "factor": float(str(factor))}
        setting |= {"clusters": cluster, "least": least, "confidence": confidence}
        yield setting, {str(model): Sums(mine, by) for model, mine in here.groupby("model", sort=False)}


def _pair(models: Mapping[str, "Sums"], model: str, other: str, setting: dict[str, Any]) -> Iterator[Comparison]:
    """The comparison of two models, if they have the same targets after all."""
    ours, theirs = models[model], models[other]
    both = shared(ours.seeds, theirs.seeds)
    if not both and ours.seeds:
        yield Comparison(model=model, other=other, **setting | {"seeds": (), "one_run": False}, difference=None)
        return
    difference = _difference(ours.of(both), "loss", theirs.of(both), "loss")
    if difference is not None:
        one_run = min(ours.runs, theirs.runs, len(both)) < 2
        found = _found(*difference, setting["confidence"])
        yield Comparison(model=model, other=other, **setting | {"seeds": both, "one_run": one_run}, **found)


def _pairs(models: Collection[str], reference: str | None) -> Iterable[tuple[str, str]]:
    if reference is None:
        return combinations(models, 2)
    return [(model, reference) for model in models if model != reference and reference in models]


class Sums:
    """One model's sums of losses (nats) and numbers of targets by cluster, for each of its runs."""

    def __init__(self, rows: pd.DataFrame, by: list[str]) -> None:
        self.seeds = seeds_of(rows)
        self._runs = {seed: sums_of(mine, by) for seed, mine in rows.groupby("seed", dropna=False)}
        self.runs = len(self._runs)

    def of(self, seeds: tuple[int, ...]) -> list[pd.DataFrame]:
        """Those of the runs with these seeds, in their order; a run whose seed is unknown goes with each of them."""
        unknown = [sums for seed, sums in self._runs.items() if pd.isna(seed)]
        return unknown * max(1, len(seeds)) if unknown else [self._runs[seed] for seed in seeds]

    def mean(self) -> float:
        """The mean loss over all runs, nats per target; infinite where it is not a number."""
        means = [sums["loss"].sum() / sums["n_targets"].sum() for sums in self._runs.values()]
        return float(np.nan_to_num(np.mean(means), nan=math.inf))


def check_correction(by: str) -> None:
    """Raises UserError where there is no such correction."""
    if by not in CORRECTIONS:
        raise UserError(f"unknown correction '{by}'; {did_you_mean(by, CORRECTIONS)}")


def corrected(found: Sequence[Comparison], by: str) -> list[Comparison]:
    """The comparisons, as a correction for their number leaves them: `holm`, or `none`.

    Those without a p value do not count: they are infinite, or have too few clusters, or no difference. Raises
    UserError where there is no such correction.
    """
    check_correction(by)
    if by == "none":
        return list(found)
    counting = [one for one in found if one.p is not None]
    p = dict(zip(map(id, counting), holm([one.p for one in counting if one.p is not None]), strict=True))
    return [replace(one, corrected=p.get(id(one))) for one in found]


def table(found: Sequence[Comparison], confidence: float) -> pd.DataFrame:
    """Comparisons as text, pair by pair, a row for every factor; the names stand in a pair's first row alone."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in found:
        pairs.setdefault((one.model, one.other), []).append(one)
    rows = []
    several = any(len(one.by_seed) > 1 for one in found)
    by_holm = any(one.corrected is not None for one in found)
    for (model, other), mine in pairs.items():
        for at, one in enumerate(mine):
            names = {"model": model, "other": other} if at == 0 else {"model": "", "other": ""}
            rows.append(names | _cells(one, f"{confidence:.0%} interval", several, by_holm))
    return pd.DataFrame(rows)


def _cells(one: Comparison, interval_name: str, several: bool, by_holm: bool) -> dict[str, str]:
    found = one.difference
    return {
        "ev": f"{one.factor:g}",
        "difference": "n/a" if found is None else f"{found.mean:+.3f}",
        interval_name: "" if found is None or found.low is None else f"[{found.low:+.3f}, {found.high:+.3f}]",
        "verdict": one.verdict(),
        **({"p (Holm)": p_text(one.corrected)} if by_holm else {}),
        **({"by seed": ", ".join(f"{mean:+.3f}" for mean in one.by_seed)} if several else {}),
        "seeds": ", ".join(map(str, one.seeds)),
    }


def p_text(p: float | None) -> str:
    """`0.034`, `<0.001`, nothing where there is none."""
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def against(found: Iterable[Comparison], other: str, order: Sequence[str]) -> pd.DataFrame:
    """`Model`, the difference to `other` at each length as text, and the number of seeds; models in this order.

    MARK follows what is a win or a loss. Which comparisons it is corrected over is the caller's to decide.
    """
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in order}
    mine = [one for one in found if one.other == other and one.difference is not None]
    for one in mine:
        assert one.difference is not None
        cells[one.model][f"ev={one.factor:g}"] = one.difference.text() + (f" {MARK}" if one.sure() else "")
    for one in mine:
        cells[one.model]["Seeds"] = str(max(1, len(one.seeds)))  # an unknown seed is one
    return pd.DataFrame([row for row in cells.values() if len(row) > 1]).fillna("n/a")


def marked(found: Sequence[Comparison]) -> str:
    """What MARK means in a table of these comparisons, which are corrected, and what their intervals are over."""
    count = sum(one.corrected is not None for one in found)
    least = max((one.least for one in found), default=LEAST)
    said = (
        f"{MARK} marks a difference that is sure: at least {least:g} nats, and its interval excludes zero also after "
        f"Holm's correction for the number of comparisons in this table, {count}. The intervals themselves are not "
        f"corrected. {resampled(found)}"
    )
    if any(one.one_run for one in found):
        said += (
            " Where a model has one seed, interval and mark are about this run: another seed may give another order."
        )
    return said


def below_optimum(found: Iterable[Comparison]) -> list[Comparison]:
    """Those in which a model is surely below the optimum (see BELOW_OPTIMUM).

    These runs are, whatever others do: what a model should not see is a property of the program, not of a seed.
    """
    return [
        one
        for one in found
        if one.other == OPTIMUM and one.these_runs is not None and one.these_runs.verdict(one.least) == "win"
    ]


def resampled(found: Sequence[Comparison]) -> str:
    """What intervals are over, in a sentence: `Intervals are over 136 stretches, 140 stretches, and 2 seeds.`"""
    counts = sorted({(one.difference.clusters, one.clusters) for one in found if one.difference is not None})
    over = ", ".join(f"{count} {name}" for count, name in counts) or "nothing"
    seeds = sorted({len(one.by_seed) for one in found if one.difference is not None})
    if seeds and seeds[-1] > 1:
        over += f", and {' or '.join(map(str, seeds))} seeds"
    return f"Intervals are over {over}."


def clusters_of(rows: pd.DataFrame) -> tuple[str, list[str]]:
    """What is resampled, and the columns that tell it: documents, or stretches of 16 L where they are too few."""
    if rows["document"].nunique() >= ENOUGH_DOCUMENTS:
        return "documents", ["document"]
    return "stretches", ["document", "block"]


def over_seeds(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Of one model's rows: sums of losses (nats) and numbers of targets for each group, means over seeds."""
    return sums_of(rows, [*by, "seed"]).groupby(by).mean()


def sums_of(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sums of losses (nats) and numbers of targets for each group of rows."""
    sums = rows[[*by, "n_targets"]].assign(
        **{name: rows[name].astype(float) * rows["n_targets"] for name in ("loss", "control_loss", "optimum_loss")}
    )
    return sums.groupby(by, dropna=False).sum(min_count=1)


def _difference(
    ours: list[pd.DataFrame], own: str, theirs: list[pd.DataFrame], other: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Differences of sums with each seed, [seeds, clusters], and targets, [clusters].

    None where the runs do not have the same clusters, or one has no loss of that name.
    """
    clusters = ours[0].index
    if any(not run.index.equals(clusters) for run in (*ours, *theirs)):
        return None
    ours_SC, theirs_SC = (
        np.stack([run[name].to_numpy(float) for run in runs]) for runs, name in ((ours, own), (theirs, other))
    )
    if np.isnan(ours_SC).any() or np.isnan(theirs_SC).any():
        return None
    with np.errstate(invalid="ignore"):  # infinite losses
        return ours_SC - theirs_SC, ours[0]["n_targets"].to_numpy(float)


def _found(sum_SC: np.ndarray, targets_C: np.ndarray, confidence: float) -> dict[str, Any]:
    """What a comparison says of differences of sums: see `Comparison`."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
        found = estimate(sum_SC, targets_C)
        return {
            "difference": found.interval(confidence),
            "by_seed": found.by_seed,
            "these_runs": found.of_these_runs().interval(confidence),
            "p": found.p(),
        }
