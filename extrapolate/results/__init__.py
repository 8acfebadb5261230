"""The tables of results: their columns, and reading and writing them."""

from extrapolate.results.columns import Column, Group, Table
from extrapolate.results.parquet import (
    check,
    merge,
    merge_columns,
    read,
    read_columns,
    read_frame,
    write,
    write_columns,
    write_frame,
)
from extrapolate.results.tables import EVAL_DOCUMENTS, EVAL_TARGETS, EVALS, INSPECTIONS, KEPT, PROBES, TASKS

__all__ = [
    "EVALS", "EVAL_DOCUMENTS", "EVAL_TARGETS", "INSPECTIONS", "KEPT", "PROBES", "TASKS", "Column", "Group", "Table",
    "check", "merge", "merge_columns", "read", "read_columns", "read_frame", "write", "write_columns",
    "write_frame",
]  # fmt: skip
