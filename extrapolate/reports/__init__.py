"""From the rows of evaluations to tables, plots and a page. Reads Parquet and nothing else: no model is needed."""

from extrapolate.reports.write import Written, write_report

__all__ = ["Written", "write_report"]
