"""xt.report"""

from pathlib import Path

from extrapolate.api import arguments
from extrapolate.api.compare import Folders, folders_of
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress
from extrapolate.reports import Written, write_report
from extrapolate.reports.baseline import TOLERANCE


def report(
    runs: Folders = "ckpt",
    out: str | Path = "report",
    *,
    baseline: str | None = None,
    seq_len: int | None = None,
    corpus: str | None = None,
    precision: str | None = None,
    split: str | None = None,
    check: str | Path | None = None,
    tolerance: float | None = None,
    leaderboard: bool = False,
    threshold: float | None = None,
    progress: Progress = QUIET,
) -> Written:
    """Writes tables, plots and a page on evaluated runs, and returns the tables.

    runs: evaluated runs, their folders, or folders of them. out: the report's folder; the report in it is replaced
    when the new one is whole. baseline: training times are relative to this encoding's (default `rope`). seq_len,
    corpus, precision, split: only such rows, where runs differ in them. It reads Parquet alone: no model is needed.
    check: an earlier report, or another folder or `evals.parquet` of evaluated runs. `checked` of what is returned says
    which losses are surely worse than there, by more than `tolerance` (nats, default 0.02).
    leaderboard: rank the models at each length, with an interval of each rank. threshold: the accuracy with which a
    model passes a probe, for effective lengths (default 0.85).

    Raises UserError if there is nothing to report, rows cannot be compared, or `out` holds something else.
    """
    for parameter, value in (("tolerance", tolerance), ("threshold", threshold)):
        if value is not None:
            arguments.check(parameter, value, arguments.NUMBER)
    if tolerance is not None and check is None:
        raise UserError("`tolerance` says how much worse than a baseline a loss may be: name the baseline with `check`")
    only = {"seq_len": seq_len, "corpus_hash": corpus, "precision": precision, "split": split}
    given = {name: value for name, value in only.items() if value is not None}
    try:
        written = write_report(
            folders_of(runs),
            arguments.path("out", out),
            baseline,
            given,
            check=None if check is None else arguments.path("check", check),
            tolerance=TOLERANCE if tolerance is None else tolerance,
            leaderboard=leaderboard,
            threshold=threshold,
        )
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; {out} is as it was")
        raise
    for warning in written.warnings:
        progress.say(warning)
    return written
