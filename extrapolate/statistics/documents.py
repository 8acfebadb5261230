"""The documents' rows that belong to rows of losses, for all targets or only some."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from extrapolate.errors import UserError
from extrapolate.statistics.sums import LOSSES, SETTING

TOLERANCE = 1e-6  # for rounding, when documents' losses are compared with their mean
_KEYS = ["run", "extension", "step", "precision", "split", *SETTING]
_TOLD = ["seed", "model", "plan_hash"]  # taken from the rows of losses
RULE = ["key_context", "key_within"]  # the columns that say how key tokens were chosen


def as_frame(data: pa.Table) -> pd.DataFrame:
    """A frame of the columns that `results.read_columns` returns. Texts are categories in alphabetical order."""
    found = data.unify_dictionaries().to_pandas()
    for name in found.select_dtypes("category"):
        found[name] = found[name].cat.reorder_categories(sorted(found[name].cat.categories))
    return found


def document_rows(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The documents' rows that belong to rows of losses and have a loss, with `seed`, `model` and `plan_hash`.

    Raises UserError if losses lack their documents, or documents do not add up to a row's loss.
    """
    found = of_documents(rows, documents)
    check_sums(rows, found)
    setting = ["run", "extension", "protocol"]
    there = set(found[setting].drop_duplicates().astype(str).itertuples(index=False, name=None))
    for one in rows.loc[rows["loss"].notna(), setting].drop_duplicates().itertuples(index=False, name=None):
        if one not in there:
            run, extension, protocol = one
            raise UserError(f"{run}: {protocol}, {extension}: losses without those by document: evaluate again")
    return found


def check_sums(rows: pd.DataFrame, found: pd.DataFrame) -> None:
    """Raises UserError if a run's two tables contradict each other because one was changed after the evaluation."""
    group, keys = numbered(found, _KEYS)
    for what, count, loss in (("targets", "n_targets", "loss"), ("key tokens", "n_key", "key_loss")):
        weight = found[count].astype(float)
        sums = pd.DataFrame({"total": found[loss].astype(float).fillna(0.0) * weight, "by_documents": weight})
        both = keys.merge(sums.groupby(group).sum(), left_on="group", right_index=True).merge(rows, on=_KEYS)
        both = both[both[count].notna()]
        said, mean = both[loss].astype(float), both["total"] / both["by_documents"]
        with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
            agrees = np.isclose(mean, said, rtol=TOLERANCE, atol=TOLERANCE) | ~np.isfinite(mean)
        wrong = (both["by_documents"] != both[count]) | ~agrees
        if wrong.any():
            at = int(both.index[wrong][0])
            one = both.loc[at]
            raise UserError(
                f"{one['run']}: losses and those by document contradict each other ({one['model']} at "
                f"{one['factor']:g}x, {one['protocol']}: {said[at]:.4f} of {one[count]:,.0f} {what}, by documents "
                f"{mean[at]:.4f} of {one['by_documents']:,.0f}): evaluate again"
            )


def of_documents(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """Like `document_rows`, but rows may have no documents.

    Documents' rows are numbered by group, so that texts are compared only once per group, which may have thousands.
    """
    group, keys = numbered(documents, _KEYS)
    told = keys.merge(rows[[*_KEYS, *_TOLD]].drop_duplicates(_KEYS), on=_KEYS).set_index("group")
    told = told[_TOLD].astype({"model": "category", "plan_hash": "category"})
    kept = group.isin(told.index) & documents["loss"].notna()
    at = told.index.get_indexer(pd.Index(group[kept]))
    own = documents if kept.all() else documents[kept]  # avoids copying millions of rows
    return own.drop(columns=_TOLD, errors="ignore").assign(**{name: told[name].array.take(at) for name in _TOLD})


def numbered(documents: pd.DataFrame, by: list[str]) -> tuple["pd.Series[int]", pd.DataFrame]:
    """The number of each row's group, and a frame of the groups: their values of `by`, and their number, `group`."""
    group = documents.groupby(by, observed=True).ngroup()
    keys = documents.loc[~group.duplicated(), by].assign(group=group)
    return group, keys.astype({name: str for name in by if keys[name].dtype == "category"})


def belonging(documents: pa.Table, rows: Iterable[Mapping[str, Any]], key: Sequence[str]) -> pa.Table:
    """The documents' rows, as columns, that equal a row of losses in the columns of `key`."""
    group, keys = numbered(as_frame(documents), list(key))
    groups = {tuple(values): number for *values, number in keys.itertuples(index=False, name=None)}
    wanted = {tuple(row[name] for name in key) for row in rows}
    return documents.filter(pa.array(group.isin([groups[values] for values in wanted & groups.keys()])))


def has_positions(documents: pd.DataFrame, seq_len: int) -> bool:
    """Whether losses are by position in the window, in buckets of one size: then none is longer than L."""
    return documents["bucket"].nunique() == 1 and bool((documents["bucket"] <= seq_len).all())


def of_key_tokens(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that have key tokens, with the number and losses (nats per target) of these instead of all targets."""
    found = {name: rows[f"key_{name}"].astype(float) for name in LOSSES}
    return rows.assign(**found, n_targets=rows["n_key"].astype(int))[rows["n_key"] > 0]


def of_others(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that have other targets than key tokens, with the number and losses (nats per target) of these."""
    n_key, count = rows["n_key"].astype(int), rows["n_targets"] - rows["n_key"].astype(int)
    found = {}
    for name in LOSSES:
        of_key = np.where(n_key > 0, rows[f"key_{name}"].astype(float), 0.0) * n_key
        found[name] = (rows[name].astype(float) * rows["n_targets"] - of_key) / count.where(count > 0)
    return rows.assign(**found, n_targets=count)[count > 0]


def same_rule(rows: pd.DataFrame) -> bool:
    """Whether all rows of losses have the same key tokens."""
    return bool(rows["n_key"].notna().all()) and len(rows[[*RULE, "n_key"]].drop_duplicates()) == 1
