"""xt.report"""

from pathlib import Path

from extrapolate.api.compare import Folders, folders_of
from extrapolate.progress import QUIET, Progress
from extrapolate.reports import Written, write_report


def report(
    runs: Folders = "ckpt",
    out: str | Path = "report",
    *,
    baseline: str | None = None,
    seq_len: int | None = None,
    corpus: str | None = None,
    precision: str | None = None,
    split: str | None = None,
    progress: Progress = QUIET,
) -> Written:
    """Writes tables, plots and a page on evaluated runs, and returns the tables and what the reader should know.

    runs: evaluated runs, their folders, or folders of them. out: the report's folder; the report in it is replaced
    when the new one is whole. baseline: training times are relative to this encoding's (default `rope`). seq_len,
    corpus, precision, split: only such rows, where runs differ in them. It reads Parquet alone: no model is needed.

    Raises UserError where there is nothing to report, rows cannot be compared, or `out` holds something else.
    """
    only = {"seq_len": seq_len, "corpus_hash": corpus, "precision": precision, "split": split}
    given = {name: value for name, value in only.items() if value is not None}
    try:
        written = write_report(folders_of(runs), Path(out), baseline, given)
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; {out} is as it was")
        raise
    for warning in written.warnings:
        progress.say(warning)
    return written
