"""The tables of results: their columns, and reading and writing them."""

from extrapolate.results.tables import EVAL_DOCUMENTS, EVALS, PROBES, Column, Table, merge, read, write

__all__ = ["EVALS", "EVAL_DOCUMENTS", "PROBES", "Column", "Table", "merge", "read", "write"]
