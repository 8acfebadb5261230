"""Comparing models at each length, from the rows of evaluated runs."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from extrapolate.errors import UserError
from extrapolate.names import AS_TRAINED
from extrapolate.results.verdicts import (
    BETTER,
    LEAST,
    NO_SHARED_SEED,
    ORDERED,
    THIS_RUN,
    TOO_FEW,
    UNDECIDED,
    WORSE,
    Verdict,
)
from extrapolate.specs import did_you_mean
from extrapolate.statistics.comparable import (
    check_replicates,
    comparable,
    not_evaluated,
    of_one_parent,
    of_other_text,
    same_targets,
    unequal_training,
    without_losses,
)
from extrapolate.statistics.documents import document_rows
from extrapolate.statistics.intervals import MOST_SEEDS, Estimate, Interval, Needed, holm
from extrapolate.statistics.seeds import shared
from extrapolate.statistics.sums import ComparisonGroup, difference, settings

CONTROL = "its control"
OPTIMUM = "the optimum"  # if known for the text; a model below it has seen what it should predict
BELOW_OPTIMUM = "Chance does this to one interval in forty; otherwise the model sees what it should predict."
LEAST_BELOW = 0.001  # nats below the optimum: ten times the numerical noise
CORRECTIONS = ("none", "holm")
MARK = "*"  # marks differences that are significant after the correction


@dataclass(frozen=True)
class Comparison:
    """The loss of one model minus another's, nats per target, on the same targets; `clusters` were resampled.

    Both are means over `seeds`, which both have; empty if a checkpoint's seed is unknown. There is no difference if
    both have seeds but share none. least: the least difference that matters, nats. by_seed: the difference of each pair
    of runs with one seed, nats. these_runs: the difference and its interval over documents only, with the seeds
    averaged. one_run: whether a model has only one run, so that nothing is known about other seeds. p: the smallest
    1 - confidence at which the interval excludes zero; corrected: the same, corrected for all `compared` comparisons
    shown together, or None. confidence: of the interval. estimate: what the interval is computed from. gone: whether
    the model lacks losses that it had before, which counts as worse.
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
    compared: int = 1
    confidence: float = 0.95
    estimate: Estimate | None = field(default=None, repr=False, compare=False)
    gone: bool = False

    @property
    def word(self) -> Verdict:
        """The verdict on the model."""
        if self.gone:
            return WORSE
        if self.difference is None:
            return NO_SHARED_SEED
        found = self.difference.verdict(self.least)
        if math.isinf(self.difference.mean) and not all(map(math.isinf, self.by_seed)):
            return UNDECIDED  # only some seeds diverge
        if found in ORDERED and self.corrected is not None and self.corrected >= 1 - self.confidence:
            return UNDECIDED
        return found

    def verdict(self) -> str:
        """`word`, followed by THIS_RUN if a model has only one run."""
        of_run = self.one_run and self.word not in (TOO_FEW, NO_SHARED_SEED)
        return self.word + (THIS_RUN if of_run else "")

    def sure(self) -> bool:
        """Whether one of the two is significantly better."""
        return self.word in ORDERED

    def needed(self) -> Needed | None:
        """The study that would decide an undecided comparison; None if decided, or nothing is known about seeds."""
        if self.word != UNDECIDED or self.one_run or self.estimate is None:
            return None
        return self.estimate.needed(1 - (1 - self.confidence) / self.compared, self.least)

    def advice(self) -> str:
        """`needed` in words: `9 seeds`, `5 seeds and 210 documents`, `more than 100 seeds`, or an empty string."""
        needed = self.needed()
        if needed is None or self.difference is None:
            return ""
        if needed.seeds is None:
            return f"more than {MOST_SEEDS} seeds"
        parts = [f"{needed.seeds} seeds"] if needed.seeds > len(self.by_seed) else []
        if needed.clusters > self.difference.clusters:
            parts.append(f"{float(f'{needed.clusters:.2g}'):,.0f} {self.clusters}")
        return " and ".join(parts)

    def row(self) -> dict[str, Any]:
        """The comparison as a row of JSON."""
        found, needed = self.difference, self.needed()
        return {
            "protocol": self.protocol, "factor": self.factor, "model": self.model, "other": self.other,
            "difference": found and found.mean, "by_seed": list(self.by_seed),
            "low": found and found.low, "high": found and found.high, "p": self.p, "p_corrected": self.corrected,
            "verdict": self.verdict(), "clusters": found and found.clusters, "cluster": self.clusters,
            "seeds": list(self.seeds), "n_seeds": 0 if found is None else max(1, len(self.seeds)),
            "needed_seeds": needed and needed.seeds, "needed_clusters": needed and needed.clusters,
        }  # fmt: skip


def comparable_rows(
    evals: pd.DataFrame, documents: pd.DataFrame, extensions: bool, only: Mapping[str, Any] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """The documents' rows of each run's last checkpoint, with their seeds.

    Without `extensions`, only those of runs as trained; `only` restricts rows: column -> value. One set of targets is
    kept per protocol, as in a report. Warnings say what was left out, and if models were not trained alike. Raises
    UserError if runs differ in corpus, training length, precision or split, runs of one model differ in more than their
    seed, or no row has a loss.
    """
    chosen = selected(evals, extensions, only or {})
    check_replicates(chosen)
    kept, warnings = [], of_other_text(chosen) + unequal_training(chosen) + of_one_parent(chosen)
    warnings += not_evaluated(chosen, "protocol", chosen) + without_losses(chosen)
    for _, group in chosen.groupby("protocol", sort=False):
        same, said = same_targets(group)
        kept.append(same)
        warnings += said
    rows = document_rows(pd.concat(kept), documents)
    if rows.empty:
        raise UserError("no model reaches any of the lengths that were evaluated: evaluate at 1x too")
    return rows, warnings


def selected(evals: pd.DataFrame, extensions: bool, only: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of last checkpoints, restricted to `only`; without `extensions`, of runs as trained. As in `comparable`,
    raises UserError if rows differ in what all must share, or none is left."""
    chosen = comparable(evals, only)
    if not extensions:
        chosen = chosen[chosen["extension"] == AS_TRAINED]
        if chosen.empty:
            raise UserError("no row is of a run as it was trained: evaluate again, or compare extensions too")
    return chosen


def comparisons(
    rows: pd.DataFrame,
    confidence: float = 0.95,
    *,
    pairs: bool = True,
    controls: bool = True,
    reference: str | None = None,
    least: float = LEAST,
) -> Iterator[Comparison]:
    """Like `of_sums`, from documents' rows."""
    return of_sums(settings(rows), confidence, pairs=pairs, controls=controls, reference=reference, least=least)


def of_sums(
    summed: Iterable[ComparisonGroup],
    confidence: float = 0.95,
    *,
    pairs: bool = True,
    controls: bool = True,
    reference: str | None = None,
    least: float = LEAST,
) -> Iterator[Comparison]:
    """At every factor, compares models on the same targets.

    With `controls`, each with its control, and with the optimum if it is known. With `pairs`, each with every other, or
    only with the `reference`. Runs of one model with different seeds are replicates. Runs of two models with the same
    seed form a pair, and only shared seeds count: such runs read the same windows in the same order, and have the same
    initial weights except for what their encodings add. How much that correlates them need not be known, because only
    the differences of pairs matter (see `Estimate.interval`).
    """
    for setting in summed:
        for model, own in setting.models.items():
            for other, column in ((CONTROL, "control_loss"), (OPTIMUM, "optimum_loss")) if controls else ():
                found = difference(own, "loss", own, column, own.seeds)
                if found is not None:
                    yield _found(setting, model, other, found, own.seeds, own.runs < 2, confidence, least)
        for model, other in _pairs(setting.models, reference) if pairs else ():
            yield from _pair(setting, model, other, confidence, least)


def of_pairs(
    summed: Iterable[ComparisonGroup],
    pairs: Iterable[tuple[str, str]],
    confidence: float = 0.95,
    *,
    least: float = LEAST,
) -> Iterator[Comparison]:
    """The first model of each pair compared with the second, at every factor that both reach."""
    pairs = list(pairs)
    for setting in summed:
        for model, other in pairs:
            if model in setting.models and other in setting.models:
                yield from _pair(setting, model, other, confidence, least)


def with_best(
    summed: Iterable[ComparisonGroup], confidence: float = 0.95, *, least: float = LEAST
) -> Iterator[Comparison]:
    """At every factor, compares every other model with the one that has the lowest mean loss."""
    for setting in summed:
        best = min(setting.models, key=lambda model: setting.models[model].mean())
        for model, other in _pairs(setting.models, best):
            yield from _pair(setting, model, other, confidence, least)


def _pair(setting: ComparisonGroup, model: str, other: str, confidence: float, least: float) -> Iterator[Comparison]:
    """The comparison of two models, unless their clusters differ."""
    ours, theirs = setting.models[model], setting.models[other]
    both = shared(ours.seeds, theirs.seeds)
    if not both and ours.seeds:
        yield _found(setting, model, other, None, (), False, confidence, least)
    elif (estimated := difference(ours, "loss", theirs, "loss", both)) is not None:
        one_run = min(ours.runs, theirs.runs, len(both)) < 2
        yield _found(setting, model, other, estimated, both, one_run, confidence, least)


def _pairs(models: Collection[str], reference: str | None) -> Iterable[tuple[str, str]]:
    if reference is None:
        return combinations(models, 2)
    return [(model, reference) for model in models if model != reference and reference in models]


def check_correction(by: str) -> None:
    """Raises UserError on an unknown correction."""
    if by not in CORRECTIONS:
        raise UserError(f"unknown correction '{by}'; {did_you_mean(by, CORRECTIONS)}")


def corrected(found: Sequence[Comparison], by: str) -> list[Comparison]:
    """Corrects comparisons for their number by `holm`, or not at all by `none`.

    Those without a p value do not count: infinite ones, and those with too few clusters or no difference. Raises
    UserError on an unknown correction.
    """
    check_correction(by)
    if by == "none":
        return list(found)
    counting = [one for one in found if one.p is not None]
    p = dict(zip(map(id, counting), holm([one.p for one in counting if one.p is not None]), strict=True))
    return [replace(one, corrected=p.get(id(one)), compared=max(1, len(counting))) for one in found]


def table(found: Sequence[Comparison], confidence: float) -> pd.DataFrame:
    """Comparisons as text, pair by pair, with a row per factor; only a pair's first row has the names."""
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for one in found:
        pairs.setdefault((one.model, one.other), []).append(one)
    rows = []
    several = any(len(one.by_seed) > 1 for one in found)
    advised = any(one.advice() for one in found)
    by_holm = any(one.corrected is not None for one in found)
    for (model, other), group in pairs.items():
        for at, one in enumerate(group):
            names = {"model": model, "other": other} if at == 0 else {"model": "", "other": ""}
            rows.append(names | _cells(one, f"{confidence:.0%} interval", several, by_holm, advised))
    return pd.DataFrame(rows)


def _cells(one: Comparison, interval_name: str, several: bool, by_holm: bool, advised: bool) -> dict[str, str]:
    found = one.difference
    return {
        "ev": f"{one.factor:g}",
        "difference": f"{found.mean:+.3f}" if found is not None else "gone" if one.gone else "n/a",
        interval_name: "" if found is None or found.low is None else f"[{found.low:+.3f}, {found.high:+.3f}]",
        "verdict": one.verdict(),
        **({"p (Holm)": p_text(one.corrected)} if by_holm else {}),
        **({"needs about": one.advice()} if advised else {}),
        **({"by seed": ", ".join(f"{mean:+.3f}" for mean in one.by_seed)} if several else {}),
        "seeds": ", ".join(map(str, one.seeds)),
    }


def p_text(p: float | None) -> str:
    """`0.034`, `<0.001`, or an empty string for None."""
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def against(found: Iterable[Comparison], other: str, order: Sequence[str]) -> pd.DataFrame:
    """`Model`, the difference to `other` at each length as text, and the number of seeds; models in this order.

    MARK follows significant differences; the caller corrects them.
    """
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in order}
    group = [one for one in found if one.other == other and one.difference is not None]
    for one in group:
        assert one.difference is not None
        cells[one.model][f"ev={one.factor:g}"] = one.difference.text() + (f" {MARK}" if one.sure() else "")
    for one in group:
        cells[one.model]["Seeds"] = str(max(1, len(one.seeds)))  # an unknown seed is one
    return pd.DataFrame([row for row in cells.values() if len(row) > 1]).fillna("n/a")


def marked(found: Sequence[Comparison]) -> str:
    """Explains MARK in a table of these corrected comparisons, and what their intervals are over."""
    count = sum(one.corrected is not None for one in found)
    least = max((one.least for one in found), default=LEAST)
    said = (
        f"{MARK} marks a difference that is sure: at least {least:g} nats, and its interval excludes zero also after "
        f"Holm's correction for the number of comparisons in this table, {count}. The intervals themselves are not "
        f"corrected. {resampled(found)}"
    )
    if any(one.one_run for one in found):
        said += " If a model has one seed, interval and mark are about this run: another seed may give another order."
    return said


def below_optimum(found: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons in which a model is significantly below the optimum (see BELOW_OPTIMUM).

    Significance is over these runs only, because seeing what should be predicted is a fault of the program, not chance.
    """
    return [
        one
        for one in found
        if one.other == OPTIMUM and one.these_runs is not None and one.these_runs.verdict(LEAST_BELOW) == BETTER
    ]


def resampled(found: Sequence[Comparison]) -> str:
    """A sentence on what intervals are over: `Intervals are over 136 to 140 stretches, and 2 seeds.`"""
    counts: dict[str, list[int]] = {}
    for one in found:
        if one.difference is not None:
            counts.setdefault(one.clusters, []).append(one.difference.clusters)
    ranges = {name: sorted({min(group), max(group)}) for name, group in sorted(counts.items())}
    over = ", ".join(f"{' to '.join(map(str, group))} {name}" for name, group in ranges.items()) or "nothing"
    seeds = sorted({len(one.by_seed) for one in found if one.difference is not None})
    if seeds and seeds[-1] > 1:
        over += f", and {' or '.join(map(str, seeds))} seeds"
    return f"Intervals are over {over}."


def _found(
    setting: ComparisonGroup,
    model: str,
    other: str,
    found: Estimate | None,
    seeds: tuple[int, ...],
    one_run: bool,
    confidence: float,
    least: float,
) -> Comparison:
    """The comparison from an estimate of the difference; None if no seed is shared."""
    one = Comparison(
        setting.protocol, setting.factor, model, other, None, setting.clusters, seeds, least,
        one_run=one_run, confidence=confidence, estimate=found,
    )  # fmt: skip
    if found is None:
        return one
    with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
        interval, of_runs = found.interval(confidence), found.of_these_runs().interval(confidence)
        return replace(one, difference=interval, by_seed=found.by_seed, these_runs=of_runs, p=found.p())
