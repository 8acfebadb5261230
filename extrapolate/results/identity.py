"""Which run rows are of: a folder can be renamed, or trained again.

A run is what it was trained as, with its weights. Nothing is written for it: every row but those of documents has
these columns, and the rows of documents belong to rows of losses.
"""

from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa


class Trained(NamedTuple):
    """What a row says of the training of its checkpoint. A run is known by that of its last one.

    Every evaluation has the last checkpoint, so that all tables of a run agree in it. seed: None where it is not known.
    """

    config_hash: str
    seed: int | None
    step: int
    weights_sha256: str


def trained(rows: pa.Table) -> set[Trained]:
    """Every checkpoint that rows are of."""
    columns = [rows[name].cast(pa.string()) if _is_text(rows[name]) else rows[name] for name in Trained._fields]
    found = pa.table(columns, names=list(Trained._fields)).group_by(list(Trained._fields)).aggregate([])
    return {Trained(**row) for row in found.to_pylist()}


def _is_text(column: pa.ChunkedArray) -> bool:
    return pa.types.is_dictionary(column.type)


def run_of(checkpoints: Collection[Trained]) -> Trained | None:
    """The run that checkpoints are of, its last one; None where they are of several trainings."""
    trainings = {(one.config_hash, one.seed) for one in checkpoints}
    one_training = len(trainings) == 1 and len({one.step for one in checkpoints}) == len(checkpoints)
    return max(checkpoints, key=lambda one: one.step) if one_training else None
