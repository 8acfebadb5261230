"""Tables of benchmarks, from rows of TASKS."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from extrapolate.reports.published import PublishedTable
from extrapolate.statistics.comparable import (
    check_replicates,
    disambiguate,
    last_checkpoints,
    named_by_run,
    newest_of_most,
    of_one_parent,
    unequal_training,
)
from extrapolate.statistics.seeds import on_own_seeds


def comparable(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of last checkpoints that can be compared, and warnings about what was left out.

    If there are several sets of questions for a task, the one with most runs stays, or else the newest. Of each
    model, the seeds stay that it has in every task. If sizes or precisions differ, they are part of models' names.
    Raises UserError if runs of one model differ in more than their seed.
    """
    rows, said = _of_present_members(disambiguate(last_checkpoints(rows)))
    if rows["precision"].nunique() > 1:
        rows = rows.assign(model=rows["model"] + ", " + rows["precision"])
    same = newest_of_most(rows, ["task", "shots"])
    said += [
        f"task {task}: left out the runs that were asked other questions, or were scored otherwise "
        f"({', '.join(sorted(set(mine['run'])))}): ask every run with the same limit, and the same edition of the task"
        for task, mine in rows[~same].groupby("task")
    ]
    check_replicates(rows[same])
    shown, more = on_own_seeds(rows[same], "benchmarks", ("task", "shots", "length"), "tasks and lengths")
    return shown, [*said, *more, *unequal_training(shown), *of_one_parent(shown)]


def _of_present_members(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Without the scores of groups that have a task in another edition, or with another limit, than the run's row."""
    place = ["run", "extension", "shots", "length", "step", "precision"]
    hashes = rows.set_index([*place, "task"])["targets_hash"].to_dict()

    def is_stale(members: object, where: Sequence[object]) -> bool:
        known = (one.rsplit("=", 1) for one in members.split()) if isinstance(members, str) else ()
        return any(hashes.get((*where, task), then) != then for task, then in known)

    stale = [
        is_stale(members, where)
        for members, *where in zip(rows["members"], *(rows[name] for name in place), strict=True)
    ]
    said = [
        f"task {task}: left out the runs that were asked some of its tasks again, with other questions "
        f"({', '.join(sorted(set(mine['run'])))}): ask them {task} again"
        for task, mine in rows[stale].groupby("task")
    ]
    return rows[[not one for one in stale]], said


def printed(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """As `by_shots`, for what was just asked: runs are not averaged."""
    return by_shots(named_by_run(rows))


def by_shots(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """A title and a table for each number of examples, with a row for each model and length, a column for each metric.

    Tasks that were asked only as a part of a group are left out.
    """
    for shots, mine in asked(rows).groupby("shots"):
        yield f"benchmarks, {_examples(shots)} before each question", by_model(mine)


def asked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the tasks and groups that some run was asked by name."""
    return rows[rows["task"].isin(rows.loc[rows["group"].isna(), "task"])]


def by_model(rows: pd.DataFrame) -> pd.DataFrame:
    """`Model`, `Length`, a column for each task and metric, and `Seeds` if a model has several.

    Cells have the mean over seeds and the standard error of one seed over questions.
    """
    names = zip(rows["task"], rows["metric"], rows["filter"], strict=True)
    rows = rows.assign(
        column=[f"{task} {metric}" + ("" if found == "none" else f" ({found})") for task, metric, found in names]
    )
    lines, seeds = [], []
    for (model, length), mine in rows.groupby(["model", "length"], sort=False):
        cells = {column: _cell(found) for column, found in mine.groupby("column", sort=False)}
        lines.append({"Model": model, "Length": f"{length:,}"} | cells)
        seeds.append(mine["seed"].nunique(dropna=False))
    table = pd.DataFrame(lines).fillna("")
    return table.assign(Seeds=seeds) if max(seeds) > 1 else table


def _examples(shots: Any) -> str:
    return f"{shots or 'no'} example{'' if shots == 1 else 's'}"


def _cell(rows: pd.DataFrame) -> str:
    value, error = rows["value"].mean(), rows["stderr"].astype(float).mean()
    return _number(value) + ("" if pd.isna(error) else f" ± {_number(error)}")


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"  # a perplexity can be any


def beside(published: PublishedTable, rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows, and below them our models' accuracies (`acc`) on the same tasks.

    Empty if no model was asked any of the tasks.
    """
    ours = rows[(rows["metric"] == "acc") & rows["task"].isin([column.task for column in published.columns])]
    if ours.empty:
        return pd.DataFrame()
    lines = []
    for row in published.rows:
        values = zip(published.columns, row.values, strict=True)
        lines.append({"Model": f"{row.name} (paper)"} | {column.name: f"{value:.2f}" for column, value in values})
    for (model, length, shots), mine in ours.groupby(["model", "length", "shots"], sort=False):
        found = {column.name: mine.loc[mine["task"] == column.task, "value"] for column in published.columns}
        cells = {name: f"{values.mean():.3f}" if len(values) else "" for name, values in found.items()}
        lines.append({"Model": f"{model}, length {length:,}, {_examples(shots)}"} | cells)
    return pd.DataFrame(lines)


def caption(rows: pd.DataFrame) -> str:
    """How many questions were asked, and under which conditions."""

    def values(column: str) -> str:
        known = sorted(set(rows[column].dropna().tolist()))
        return ", ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in known)

    counts = rows.groupby("task", sort=False)[["n_questions", "n_cut"]].max().itertuples()
    asked = "; ".join(
        f"{task}: {count:,}" + (f", up to {cut:,} of them cut" if cut else "") for task, count, cut in counts
    )
    return (
        f"Questions ({asked}). A question that is longer than the length loses its first tokens. ± is one standard "
        "error over questions; models that differ only in their seed are averaged. Asked with lm-eval "
        f"{values('lm_eval_version')} in {values('precision')}, commit {values('commit') or 'unknown'} on "
        f"{values('machine')}, {rows['evaluated_at'].max():%Y-%m-%d}."
    )
