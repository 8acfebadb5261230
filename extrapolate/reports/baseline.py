"""Checks whether losses got worse than in a baseline: an earlier report, or other rows that were kept."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.folders import listed
from extrapolate.reports.gather import DOCUMENTS, TEXT, gather, in_file
from extrapolate.results.verdicts import BETTER, TOO_FEW, UNDECIDED, WORSE, Verdict
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import (
    COMPARABLE,
    check_replicates,
    comparable,
    frame_of,
    last_checkpoints,
    strict_mean,
    told_apart,
)
from extrapolate.statistics.comparison import Comparison
from extrapolate.statistics.documents import as_frame, check_sums, of_documents
from extrapolate.statistics.intervals import FEWEST
from extrapolate.statistics.seeds import in_words, of_seeds, seeds_of, shared
from extrapolate.statistics.sums import settings

TOLERANCE = 0.02  # nats: retraining on another machine can change a loss by this much without a cause
BEFORE = ", before"  # ends the name of a model of the baseline
_KEY = list(results.EVALS.key)
_PLACE = ["protocol", "factor", "model"]


@dataclass(frozen=True)
class Baseline:
    """The rows that a report is checked against: those of `evals.parquet`, and of `eval_documents.parquet` if any.

    named: the path as it was given. left_out: what was left out, in words.
    """

    named: str
    evals: list[dict[str, Any]]
    documents: pd.DataFrame
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked:
    """The losses of a report beside those of a baseline.

    rows: a row for each protocol, factor and model that both or only the baseline have: the losses `before` and `now`
    and their `difference`, means over the seeds that both have, nats per target; `low` and `high`, the ends of its 95 %
    interval; `p_corrected`, its p value after Holm's correction for the number of rows; the number of `seeds`;
    `seeds_gone`, the baseline's seeds that have no row now, as text, None if there are none; and a `verdict`, for which
    `tolerance`, nats, is the least difference that matters. Without an interval, the difference alone decides. A loss
    that is gone counts as worse, whether it is that of all seeds (there is no `now`) or of one. notes: what was not
    compared, and why.
    """

    baseline: str
    tolerance: float
    rows: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def worse(self) -> pd.DataFrame:
        """The rows that are worse, with the largest difference first."""
        mine = self.rows[self.rows["verdict"] == WORSE]
        return mine.sort_values("difference", ascending=False, na_position="first")

    def summary(self) -> str:
        """The result in one sentence."""
        count = len(self.rows)
        losses = f"{count} {'loss' if count == 1 else 'losses'}"
        if (worse := self.worse).empty:
            return f"None of {losses} is worse than in {self.baseline} (tolerance {self.tolerance:g} nats)."
        named = listed([f"{row.model} at {row.factor:g}x ({row.protocol}) {_text(row)}" for row in worse.itertuples()])
        some_gone = (worse["now"].isna() | worse["seeds_gone"].notna()).any()
        verb, gone = "is" if len(worse) == 1 else "are", ", or gone" if some_gone else ""
        return (
            f"{len(worse)} of {losses} {verb} worse than in {self.baseline} by more than {self.tolerance:g} nats"
            f"{gone}: {named}."
        )


def _text(row: Any) -> str:
    if math.isnan(row.now):
        return "gone"
    return f"{row.difference:+.3f}" + ("" if pd.isna(row.seeds_gone) else f" ({row.seeds_gone} gone)")


def check_tolerance(tolerance: float) -> None:
    """Raises UserError if it is not a finite number of 0 or more."""
    if not 0 <= tolerance < math.inf:
        raise UserError(f"`tolerance={tolerance}` is no tolerance: it is in nats, 0 or more")


def read_baseline(path: Path, out: Path) -> Baseline:
    """Reads the rows at a path: an `evals.parquet`, or a folder that `report` accepts, such as an earlier report.

    Raises UserError if there are none, they are damaged, or they are in `out`, which the report replaces.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; name an earlier report, or evaluated runs")
    if out.resolve() in (path.resolve(), *path.resolve().parents):
        raise UserError(
            f"the baseline {path} is in {out}, which this report replaces: what is worse would be the next baseline. "
            "Copy it to another place, or choose another `out`"
        )
    if path.name == DOCUMENTS and not path.is_dir():
        raise UserError(f"{path} holds the rows of documents: name the {TEXT} beside it, or their folder")
    gathered = gather([path]) if path.is_dir() else in_file(path)
    has_documents = path.is_dir() or path.name == TEXT
    documents = as_frame(gathered.documents(missing=True)) if has_documents else pd.DataFrame()
    return Baseline(str(path), gathered.evals(), documents, gathered.left_out)


def checked(
    baseline: Baseline,
    tolerance: float,
    evals: list[dict[str, Any]],
    shown: pd.DataFrame,
    documents: pd.DataFrame,
) -> Checked:
    """Compares the losses that a report shows with a baseline's, on the same targets and the same seeds.

    evals: the rows of `evals.parquet` that the report was made from. shown: the ones that it shows. documents: their
    rows by document. Raises UserError if the baseline shares no loss with them.
    """
    there, before = _named_alike(evals, shown, baseline)
    pairs, left = _pairs(there.merge(shown[_KEY], on=_KEY), before, there)
    notes = [f"not checked, for they are {reason}: {listed(places)}" for reason, places in left.items()]
    notes += [f"in {baseline.named}, {text}" for text in _of_other_rows(frame_of(baseline.evals), shown)]
    if all(pair.now.empty for pair in pairs):
        raise UserError(f"{baseline.named} shares no loss with this report ({'; '.join(notes)}): name another baseline")
    of_both = [pair for pair in pairs if not pair.now.empty]
    compared = _compared(of_both, documents, baseline.documents, tolerance)
    rows = pd.DataFrame([pair.row(compared.get(pair.place), tolerance) for pair in pairs])
    notes += [f"in {baseline.named}, {text}" for text in baseline.left_out]
    return Checked(baseline.named, tolerance, rows, (*notes, *_caveats(of_both, rows)))


@dataclass(frozen=True)
class _Pair:
    """The rows of one protocol, factor and model, now and before, for the seeds that both have, on the same targets.

    now: empty if the model is gone. gone: the baseline's seeds that have no row now.
    """

    place: tuple[Hashable, ...]
    now: pd.DataFrame
    before: pd.DataFrame
    seeds: tuple[int, ...]
    gone: tuple[int, ...]

    def row(self, compared: Comparison | None, tolerance: float) -> dict[str, Any]:
        """The row of `Checked.rows`."""
        before, now = strict_mean(self.before["loss"]), strict_mean(self.now["loss"])
        interval = None if compared is None else compared.difference
        difference = now - before if interval is None else interval.mean
        verdict: Verdict = WORSE if math.isnan(now) else TOO_FEW if compared is None else compared.word
        if verdict == TOO_FEW:
            verdict = WORSE if difference > tolerance else BETTER if difference < -tolerance else UNDECIDED
        if self.gone:
            verdict = WORSE
        return {
            **dict(zip(_PLACE, self.place, strict=True)), "before": before, "now": now, "difference": difference,
            "low": interval and interval.low, "high": interval and interval.high,
            "p_corrected": compared and compared.corrected, "seeds": max(1, len(self.seeds)),
            "seeds_gone": in_words(self.gone) if self.gone else None, "verdict": verdict,
        }  # fmt: skip


def _named_alike(
    evals: list[dict[str, Any]], shown: pd.DataFrame, baseline: Baseline
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows now, including those that are not shown, and before, on one corpus, with the same name for a model.

    Only the two together decide whether sizes are part of the names.
    """
    same = {column: shown[column].iloc[0] for column in COMPARABLE}
    before = frame_of(baseline.evals) if baseline.evals else pd.DataFrame()
    try:
        if before.empty:
            raise UserError("it has no losses on text")
        last = comparable(before, same)
        for _, rows in last.groupby(["protocol", "targets_hash"]):
            check_replicates(rows)
    except UserError as error:
        raise UserError(f"{baseline.named} cannot be the baseline: {error}") from error
    now = frame_of(evals)
    there = comparable(now, same)
    raw = [frame.merge(rows[_KEY], on=_KEY) for frame, rows in ((now, there), (before, last))]
    both = told_apart(pd.concat(raw, ignore_index=True))
    return both.iloc[: len(there)], both.iloc[len(there) :]


def _of_other_rows(before: pd.DataFrame, shown: pd.DataFrame) -> Iterator[str]:
    """Names the baseline's models that have rows of another corpus, length, split or precision than the report."""
    for values, rows in last_checkpoints(before).groupby(list(COMPARABLE), dropna=False):
        there = zip(COMPARABLE, values, strict=True)
        if other := [f"{column} {value}" for column, value in there if str(value) != str(shown[column].iloc[0])]:
            yield f"not checked, for they have {' and '.join(other)}: {listed(sorted(set(rows['model'])))}"


def _pairs(now: pd.DataFrame, before: pd.DataFrame, there: pd.DataFrame) -> tuple[list[_Pair], dict[str, list[str]]]:
    """The pairs that can be compared, and the rest by reason. there: the rows now, including those not shown."""
    pairs: list[_Pair] = []
    left: dict[str, list[str]] = {}
    rows_before = dict(iter(before.groupby(_PLACE)))
    seeds_there = {place: seeds_of(rows) for place, rows in there.groupby(_PLACE)}
    for place, ours in now.groupby(_PLACE):
        protocol, factor, model = place
        where = f"{model} at {factor:g}x ({protocol})"
        theirs = rows_before.pop(place, None)
        if theirs is None or theirs["loss"].isna().all():
            if ours["loss"].notna().any():
                left.setdefault("not in the baseline", []).append(where)
            continue
        theirs = theirs[theirs["targets_hash"].isin(ours["targets_hash"])]
        seeds = shared(seeds_of(ours), seeds_of(theirs))
        if theirs.empty:
            left.setdefault("on other targets than in the baseline", []).append(where)
        elif not seeds and seeds_of(ours):
            left.setdefault("of other seeds than in the baseline", []).append(where)
        else:
            had = seeds_of(theirs[theirs["loss"].notna()]) if seeds_of(ours) else ()
            gone = tuple(seed for seed in had if seed not in seeds_there[place])
            pairs.append(_Pair(place, of_seeds(ours, seeds), of_seeds(theirs, seeds), seeds, gone))
    for place, theirs in rows_before.items():
        if theirs["loss"].notna().any():
            pairs.append(_Pair(place, now[:0], theirs, seeds_of(theirs), seeds_of(theirs)))
    return pairs, left


def _compared(
    pairs: Sequence[_Pair], documents: pd.DataFrame, documents_before: pd.DataFrame, tolerance: float
) -> dict[tuple[Hashable, ...], Comparison]:
    """The Holm-corrected differences with their intervals, by place, if both sides have documents of all their runs."""
    seeds = {pair.place: pair.seeds for pair in pairs}
    now = of_documents(pd.concat([pair.now for pair in pairs]), documents)
    rows_before = pd.concat([pair.before for pair in pairs])
    before = of_documents(rows_before, documents_before)
    if len(before):
        check_sums(rows_before, before)
    if now.empty or before.empty:
        return {}
    both = pd.concat([now, before.assign(model=before["model"].astype(str) + BEFORE)])
    models = [str(model) for model in dict.fromkeys(pair.place[-1] for pair in pairs)]
    found = [
        one
        for one in comparison.of_pairs(settings(both), [(model, model + BEFORE) for model in models], least=tolerance)
        if one.difference is not None
        and math.isfinite(one.difference.mean)
        and one.seeds == seeds.get((one.protocol, one.factor, one.model))
    ]
    return {(one.protocol, one.factor, one.model): one for one in comparison.corrected(found, "holm")}


def _caveats(pairs: Sequence[_Pair], rows: pd.DataFrame) -> Iterator[str]:
    """What the reader must know about the rows."""
    for column, what in (
        ("config_hash", "trained with other settings"),
        ("extension_sha256", "extended by other code"),
    ):
        changed = {
            str(one.place[-1]): None
            for one in pairs
            if set(one.now[column].fillna("")) != set(one.before[column].fillna(""))
        }
        if changed:
            yield f"{what} than in the baseline: {listed(list(changed))}"
    if count := int((rows["low"].isna() & rows["difference"].notna()).sum()):
        yield (
            f"{count} of {len(rows)} differences have no interval, and are judged by the tolerance alone: an interval "
            f"needs {DOCUMENTS} beside the baseline's {TEXT}, and at least {FEWEST} documents or stretches"
        )
