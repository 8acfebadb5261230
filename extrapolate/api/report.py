"""xt.report"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from extrapolate.api.rows import Folders, WhichRows, folders_of, only
from extrapolate.api.settings import RowArguments
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress
from extrapolate.specs import arguments
from extrapolate.specs.settings import Flag, public

if TYPE_CHECKING:  # importing it takes seconds, and the command line reads the signature
    from extrapolate.reports import Written

_REPORT, _CHECK = "The report", "Checked against an earlier one"


@public(WhichRows)
def report(
    runs: Folders = "ckpt",
    out: Annotated[str | Path, Flag("the folder to write", _REPORT)] = "report",
    *,
    baseline: Annotated[
        str | None, Flag("training times are relative to this encoding's", _REPORT, usual="rope")
    ] = None,
    check: Annotated[
        str | Path | None,
        Flag("an earlier report, or its evals.parquet: exit code 1 if a loss is significantly worse, or gone", _CHECK),
    ] = None,
    tolerance: Annotated[
        float | None, Flag("for `check`: nats by which a loss may be worse", _CHECK, usual="0.02")
    ] = None,
    leaderboard: Annotated[bool, Flag("rank the models at each length, with an interval for each", _REPORT)] = False,
    threshold: Annotated[
        float | None, Flag("the accuracy that passes a probe, for effective lengths", _REPORT, usual="0.85")
    ] = None,
    progress: Progress = QUIET,
    **which: Unpack[RowArguments],
) -> "Written":
    """Writes tables, plots and a page on evaluated runs, and returns the tables.

    It reads only Parquet files and needs no model.

    runs: evaluated runs, their folders, or folders of them. out: the report's folder; a report in it is replaced once
    the new one is complete. baseline: the encoding to compare losses and training times with (default `rope`). seq_len,
    corpus, precision, split: use only rows with these values, if runs differ in them. check: an earlier report, or a
    folder or an `evals.parquet` of other evaluated runs, to compare with; the result's `checked` lists the losses that
    are significantly worse than theirs, by more than `tolerance` (nats, default 0.02). leaderboard: rank the models at
    each length, with intervals. threshold: the accuracy that passes a probe, for effective lengths (default 0.85).

    Raises UserError if there is nothing to report, rows cannot be compared, or `out` holds anything other than a
    report.
    """
    from extrapolate.reports import write_report
    from extrapolate.reports.baseline import TOLERANCE

    for parameter, value in (("tolerance", tolerance), ("threshold", threshold)):
        if value is not None:
            arguments.check(parameter, value, arguments.NUMBER)
    if tolerance is not None and check is None:
        raise UserError("`tolerance` says how much worse than a baseline a loss may be: name the baseline with `check`")
    try:
        written = write_report(
            folders_of(runs),
            arguments.path("out", out),
            baseline,
            only(which),
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
