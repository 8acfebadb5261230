"""Identifying the run that rows belong to, as folders can be renamed, copied or trained again.

A run is identified by its training and weights, which are columns of every table except that of documents, whose rows
belong to rows of losses.
"""

from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa


class Trained(NamedTuple):
    """The columns that identify a checkpoint. A run is identified by its last one.

    Every evaluation includes the last checkpoint, so all tables of a run agree on it. seed: None if unknown.
    """

    config_hash: str
    seed: int | None
    step: int
    weights_sha256: str


def trained(rows: pa.Table) -> set[Trained]:
    """The checkpoints of the rows."""
    names = list(Trained._fields)
    columns = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for column in rows.select(names).columns
    ]
    found = pa.table(columns, names=names).group_by(names).aggregate([])
    return {Trained(**row) for row in found.to_pylist()}


def run_of(checkpoints: Collection[Trained]) -> Trained | None:
    """The last of the checkpoints, which identifies their run; None if they come from several trainings."""
    trainings = {(one.config_hash, one.seed) for one in checkpoints}
    one_training = len(trainings) == 1 and len({one.step for one in checkpoints}) == len(checkpoints)
    return max(checkpoints, key=lambda one: one.step) if one_training else None
