"""The rows of documents that belong to rows of losses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from extrapolate.errors import UserError
from extrapolate.statistics.sums import SETTING, clusters_of

TOLERANCE = 1e-6  # by which the losses of documents may miss their mean: rounding
_KEYS = ["run", "extension", "step", "precision", "split", *SETTING]
_TOLD = ["seed", "model", "plan_hash"]  # by the rows of losses


def as_frame(data: pa.Table) -> pd.DataFrame:
    """Columns as `results.read_columns` returns them as a frame. Texts are categories, in the order in which they sort:
    a row holds a small number in the place of each, and groups come in the order of texts.
    """
    found = data.unify_dictionaries().to_pandas()
    for name in found.select_dtypes("category"):
        found[name] = found[name].cat.reorder_categories(sorted(found[name].cat.categories))
    return found


def document_rows(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The documents' rows that belong to the rows given, with the seed and `plan_hash`; without those of no loss.

    Raises UserError if a protocol has losses and no documents, or documents do not add up to a row's loss.
    """
    found = of_documents(rows, documents)
    check_sums(rows, found)
    lacking = set(rows.loc[rows["loss"].notna(), "protocol"]) - set(found["protocol"].unique())
    if lacking:
        raise UserError(
            f"eval_documents.parquet holds no document of the protocol {sorted(lacking)[0]}, which evals.parquet has: "
            "evaluate again"
        )
    return found


def check_sums(rows: pd.DataFrame, found: pd.DataFrame) -> None:
    """Raises UserError if the two tables of a run contradict each other: one was changed after the evaluation."""
    group, keys = numbered(found, _KEYS)
    summed = pd.DataFrame({"total": found["loss"] * found["n_targets"], "targets": found["n_targets"]}).groupby(group)
    both = keys.merge(summed.sum(), left_on="group", right_index=True).merge(rows, on=_KEYS)
    both["mean"] = both["total"] / both["targets"]
    with np.errstate(invalid="ignore", over="ignore"):  # infinite losses
        agrees = np.isclose(both["mean"].astype(float), both["loss"].astype(float), rtol=TOLERANCE, atol=TOLERANCE)
    wrong = both[(both["targets"] != both["n_targets"]) | ~(agrees | ~np.isfinite(both["mean"]))]
    if len(wrong):
        one = wrong.iloc[0]
        raise UserError(
            f"{one['run']}: evals.parquet and eval_documents.parquet contradict each other ({one['model']} at "
            f"{one['factor']:g}x, {one['protocol']}: {one['loss']:.4f} of {one['n_targets']:,} targets, by documents "
            f"{one['mean']:.4f} of {one['targets']:,}): evaluate again"
        )


def of_documents(rows: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """As `document_rows`, where some rows, or all, may have no documents.

    A row of losses has thousands of documents' rows: they are numbered by group, and texts are compared once a group.
    """
    if documents.empty:
        return pd.DataFrame(columns=[*_KEYS, *_TOLD])
    group, keys = numbered(documents, _KEYS)
    told = keys.merge(rows[[*_KEYS, *_TOLD]].drop_duplicates(_KEYS), on=_KEYS).set_index("group")
    told = told[_TOLD].astype({"model": "category", "plan_hash": "category"})
    kept = group.isin(told.index) & documents["loss"].notna()
    at = told.index.get_indexer(pd.Index(group[kept]))
    own = documents if kept.all() else documents[kept]  # millions of rows are not copied without need
    return own.drop(columns=_TOLD, errors="ignore").assign(**{name: told[name].array.take(at) for name in _TOLD})


def numbered(documents: pd.DataFrame, by: list[str]) -> tuple["pd.Series[int]", pd.DataFrame]:
    """The number of each row's group, and a frame with a row a group: its values of `by`, and its number, `group`."""
    group = documents.groupby(by, observed=True).ngroup()
    keys = documents.loc[~group.duplicated(), by].assign(group=group)
    return group, keys.astype({name: str for name in by if keys[name].dtype == "category"})


def belonging(documents: pa.Table, rows: Iterable[Mapping[str, Any]], key: Sequence[str]) -> pa.Table:
    """Those of the documents' rows, as columns, that are equal to a row of losses in the columns of `key`."""
    group, keys = numbered(as_frame(documents), list(key))
    groups = {tuple(values): number for *values, number in keys.itertuples(index=False, name=None)}
    wanted = {tuple(row[name] for name in key) for row in rows}
    return documents.filter(pa.array(group.isin([groups[values] for values in wanted & groups.keys()])))


def without_positions(documents: pa.Table) -> pa.Table:
    """Each document's losses summed over the positions in its windows, which `has_positions` tells from others.

    Stretches stay apart if they are what is resampled.
    """
    rows = as_frame(documents)
    counts = ["n_targets", "n_bytes", "n_key"]
    weights = {
        name: "n_key" if name.startswith("key_") else "n_targets" for name in map(str, rows) if name.endswith("loss")
    }
    apart = ["document", "block"] if "block" in clusters_of(rows)[1] else ["document"]
    by = [name for name in [*_KEYS, "model", "length"] if name not in apart] + apart
    numbers = rows[counts].astype(float)
    sums = numbers.assign(**{name: rows[name].astype(float) * numbers[weight] for name, weight in weights.items()})
    total = sums.groupby([rows[name] for name in by], observed=True, dropna=False).sum(min_count=1).reset_index()
    total = total.assign(**{name: total[name] / total[weight].replace(0, np.nan) for name, weight in weights.items()})
    total = total.assign(position=0, bucket=total["length"], **({} if "block" in apart else {"block": 0}))
    return pa.Table.from_pandas(total[list(rows)], preserve_index=False)


def has_positions(documents: pd.DataFrame, seq_len: int) -> bool:
    """Whether the losses are by position in the window: a bucket of positions is never longer than L."""
    return bool((documents["bucket"] <= seq_len).all())
