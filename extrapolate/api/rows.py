"""xt.rows, xt.report and xt.compare: the calls that read the rows of evaluated runs."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Unpack

from extrapolate.api.settings import RowArguments
from extrapolate.errors import UserError
from extrapolate.progress import QUIET, Progress, warn
from extrapolate.specs import arguments, did_you_mean
from extrapolate.specs.settings import Flag, public

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signatures
    import pandas as pd

    from extrapolate.reports import Written
    from extrapolate.reports.load_tables import LoadedTables
    from extrapolate.runs.run import Run
    from extrapolate.statistics.comparison import Comparison

Folders: TypeAlias = "str | Path | Run | Iterable[str | Path | Run]"
PANEL, REPORT, HOW = "Which rows", "The report", "How to compare"
_rows = partial(Flag, panel=PANEL)


@dataclass(frozen=True)
class WhichRows:
    """The values to select rows by, if runs differ in them."""

    seq_len: Annotated[int | None, _rows("only runs of this training length")] = None
    corpus: Annotated[str | None, _rows("only rows of this corpus hash")] = None
    precision: Annotated[str | None, _rows("only rows of this evaluation precision")] = None
    split: Annotated[str | None, _rows("only rows of this split")] = None


def only(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that rows must have, by column."""
    columns = {"corpus": "corpus_hash"}
    return {columns.get(name, name): value for name, value in given.items() if value is not None}


def folders_of(runs: Any, name: str = "runs") -> list[Path]:
    """The folders of runs. Raises UserError, which names the argument, if something is neither a run nor a path."""
    named = arguments.several(name, runs, ((str, os.PathLike), "a run or a folder"))  # Run would import torch
    return [Path(one) for one in named]


def rows(runs: Folders = "ckpt", table: str = "losses", *, progress: Progress = QUIET) -> "pd.DataFrame":
    """Returns the rows that evaluated runs keep, as one table: docs/results.md describes the columns.

    runs: evaluated runs, their folders, folders of them, or of kept tables, such as a report's. table: `losses`,
    `documents` (the same losses by document), `targets` (by token, as `keep_losses` keeps them), `probes`, `tasks` or
    `inspections`. Rows of weights that are no longer in a run's folder are left out.

    Raises UserError if nothing was evaluated, or a file is damaged.
    """
    import pandas as pd

    from extrapolate.names import INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE
    from extrapolate.reports.load_tables import TEXT, load_tables
    from extrapolate.results import EVAL_DOCUMENTS

    files = {"losses": TEXT, "probes": PROBES_TABLE, "tasks": TASKS_TABLE, "inspections": INSPECTIONS_TABLE}
    known = [*files, "documents", "targets"]
    if table not in known:
        raise UserError(f"there is no table '{table}'; {did_you_mean(table, known)}")
    found = load_tables(folders_of(runs))
    for message in found.left_out:
        warn(progress, message)
    if table in files:
        return pd.DataFrame(found.rows(files[table]))
    columns = found.documents().cast(EVAL_DOCUMENTS.schema()) if table == "documents" else found.targets()
    return pd.DataFrame(columns.to_pandas())


@public(WhichRows)
def report(
    runs: Folders = "ckpt",
    out: Annotated[str | Path, Flag("the folder to write", REPORT)] = "report",
    *,
    baseline: Annotated[
        str | None, Flag("training times are relative to this encoding's", REPORT, usual="rope")
    ] = None,
    progress: Progress = QUIET,
    **which: Unpack[RowArguments],
) -> "Written":
    """Writes tables, plots and a page on evaluated runs, and returns the tables.

    It reads only Parquet files and needs no model.

    runs: evaluated runs, their folders, or folders of them. out: the report's folder; a report in it is replaced once
    the new one is complete. baseline: the encoding to compare losses and training times with (default `rope`). seq_len,
    corpus, precision, split: use only rows with these values, if runs differ in them.

    Raises UserError if there is nothing to report, rows cannot be compared, or `out` holds anything other than a
    report.
    """
    from extrapolate.reports import write_report

    try:
        written = write_report(
            folders_of(runs),
            arguments.path("out", out),
            baseline,
            only(which),
        )
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; {out} is as it was")
        raise
    for warning in written.warnings:
        progress.say(warning)
    return written


@public(WhichRows)
def compare(
    runs: Folders,
    before: "Folders | None" = None,
    *,
    against: Annotated[str | None, Flag("only compare with this model, by its name in tables", HOW)] = None,
    extensions: Annotated[bool, Flag("also compare the extensions that were evaluated", HOW)] = False,
    confidence: Annotated[float, Flag("how sure the intervals are: 0.95 is 95 %", HOW, least=0.5, most=0.999)] = 0.95,
    least_difference: Annotated[float, Flag("nats; a smaller difference does not matter", HOW, least=0.0)] = 0.01,
    correct: Annotated[
        str, Flag("holm: correct verdicts for the number of comparisons; none: leave them as they are", HOW)
    ] = "none",
    progress: Progress = QUIET,
    **which: Unpack[RowArguments],
) -> "pd.DataFrame":
    """Compares evaluated runs pair by pair, and each with its control, at every length and on the same targets.

    With `before`, each model is compared only with itself in earlier runs: `other` is `RoPE, before`. A model is also
    `worse` if a loss that it had before is gone, or one of its seeds.

    Returns a row per protocol, factor and pair: the difference in loss (`model` minus `other`, nats per token), overall
    and for each seed, its interval and p value, a verdict, and the seeds that both have. `model` is `better` or `worse`
    if the interval excludes zero and the difference is at least `least_difference` nats (default 0.01), `equivalent` if
    the whole interval is closer to zero than `least_difference`, and otherwise `undecided`. Intervals cover documents
    and seeds. If a model has one seed, they cover only documents, and the verdict ends in "(this run)".

    runs: evaluated runs, their folders, or folders of them. before: the same, of an earlier state, or the folder of a
    report on it. against: compare only with this model, such as `RoPE`. extensions: also compare what was applied at
    inference. confidence: the level of the intervals. correct: `holm` corrects verdicts for the number of comparisons,
    so that the probability of one or more false ones is at most 1 - `confidence`; `none` does not. Intervals are not
    corrected. seq_len, corpus, precision, split: use only rows with these values, if runs differ in them.

    Raises UserError if nothing was evaluated, or rows cannot be compared.
    """
    import pandas as pd

    found = comparisons_of(runs, before, against, extensions, confidence, least_difference, correct, progress, **which)
    return pd.DataFrame([one.row() for one in found])


def comparisons_of(
    runs: Folders,
    before: "Folders | None",
    against: str | None,
    extensions: bool,
    confidence: float,
    least_difference: float,
    correct: str,
    progress: Progress,
    **which: Any,
) -> "list[Comparison]":
    """As `compare`, as objects."""
    import pyarrow as pa

    from extrapolate.statistics import comparison
    from extrapolate.statistics.comparable import of_all_checkpoints
    from extrapolate.statistics.comparison import BELOW_OPTIMUM, below_optimum
    from extrapolate.statistics.documents import as_frame
    from extrapolate.statistics.regression import BEFORE, since

    comparison.check_correction(correct)  # before seconds of work
    if against is not None and before is not None:
        raise UserError("earlier runs are compared with the same models of today, so leave `against` out")
    restricted = only(which)
    gathered, losses = _losses_of(folders_of(runs), progress)
    if before is None:
        rows, warnings = comparison.comparable_rows(losses, as_frame(gathered.documents()), extensions, restricted)
        for message in gathered.unseen(of_all_checkpoints(losses, restricted), "losses on text", restricted):
            warn(progress, message)
        models = set(rows["model"].astype(str))
        if against is not None and against not in models:
            raise UserError(f"no model is called '{against}' here; {did_you_mean(against, models)}")
        alone = against is not None
        made = comparison.comparisons(rows, confidence, controls=not alone, reference=against, least=least_difference)
        found = list(made)
    else:
        earlier, old = _losses_of(folders_of(before, "before"), progress, BEFORE)
        documents = as_frame(pa.concat_tables([gathered.documents(), earlier.documents()]))
        found, warnings = since(losses, old, documents, extensions, restricted, confidence, least=least_difference)
    for warning in warnings:
        warn(progress, f"warning: {warning}")
    found = comparison.corrected(found, correct)
    for one in below_optimum(found):
        where = f"{one.model} is below the optimum at {one.factor:g}x under {one.protocol}"
        warn(progress, f"warning: {where}. {BELOW_OPTIMUM}")
    return found


def _losses_of(folders: list[Path], progress: Progress, ending: str = "") -> "tuple[LoadedTables, pd.DataFrame]":
    """The evaluated runs in these folders, with this ending of their names, and their rows of losses."""
    from extrapolate.reports.load_tables import load_tables
    from extrapolate.statistics.comparable import frame_of

    found = load_tables(folders)
    found = replace(found, runs={f"{name}{ending}": parts for name, parts in found.runs.items()})
    for message in found.left_out:
        warn(progress, message)
    evals = found.evals()
    if not evals:
        raise UserError("these runs have no losses on text, which are what is compared: evaluate them")
    return found, frame_of(evals)
