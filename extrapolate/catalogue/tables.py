"""The tables and columns that `extrapolate columns` describes."""

from collections.abc import Iterator

from extrapolate.errors import UserError
from extrapolate.reports.sections.base import in_order
from extrapolate.results.columns import INT, REAL, Column
from extrapolate.results.described import Described, kind, plain
from extrapolate.results.tables import EVAL_DOCUMENTS, EVAL_TARGETS, EVALS, INSPECTIONS, PROBES, TASKS
from extrapolate.specs import did_you_mean

_VALIDATION = "the row is of a validation"
METRICS = plain(
    Column("step", INT, "optimiser steps", meaning="The step that has just ended, from 1."),
    Column("tokens", INT, "tokens", meaning="The tokens trained on so far."),
    Column("loss", REAL, "nats per target", False, "The training loss of the step.", _VALIDATION),
    Column("lr", REAL, "", False, "The learning rate of the step.", _VALIDATION),
    Column("grad_norm", REAL, "", False, "The norm of the gradient before clipping.", _VALIDATION),
    Column(
        "cpu_taken_share", REAL, "share", False, "The share of the step's time spent waiting for other programs.",
        f"{_VALIDATION}, or the system does not report it",
    ),
    Column(
        "tokens_per_s", REAL, "tokens per second", False, "The speed of the step.",
        f"{_VALIDATION}, or other cells of a study ran at the same time",
    ),
    Column("val_loss", REAL, "nats per target", False, "The loss on the validation split.", "the row is of a step"),
)  # fmt: skip
_EVALS = Described(
    "evals",
    "`PROTOCOL/` in a run's results, `evals.parquet` of a report",
    "run, extension, protocol and length",
    EVALS.groups,
)
TABLES = (
    _EVALS,
    Described(
        "eval_documents", "`documents/PROTOCOL/` in a run's results, `eval_documents.parquet` of a report",
        "row of `evals`, document, stretch of it, and position in the window", EVAL_DOCUMENTS.groups, _EVALS,
    ),
    Described(
        "eval_targets", "`targets/PROTOCOL/` in a run's results, with `eval-lengths --keep-losses`",
        "row of `evals` that has a loss, and target", EVAL_TARGETS.groups, _EVALS,
    ),
    Described(
        "probes", "`probes/PROBE/` in a run's results, `probes.parquet` of a report",
        "run, extension, probe, length and depth", PROBES.groups, _EVALS,
    ),
    Described(
        "eval_tasks", "`tasks/TASK/` in a run's results, `eval_tasks.parquet` of a report",
        "run, extension, length, and metric of a task of lm-eval", TASKS.groups, _EVALS,
    ),
    Described(
        "inspections", "`inspections/MEASUREMENT/` in a run's results, `inspections.parquet` of a report",
        "run, extension, length, quantity, layer, head and place", INSPECTIONS.groups, _EVALS,
    ),
    Described(
        "metrics", "`metrics.jsonl` of a run, and `metrics.parquet` once it is trained",
        "training step or validation", METRICS,
    ),
    *(table for section in in_order() for table in section.tables),
)  # fmt: skip


def table(name: str) -> Described:
    """A table by its name, with or without `.parquet`. Raises UserError if there is none."""
    known = {one.name: one for one in TABLES}
    name = name.removesuffix(".parquet")
    if name not in known:
        raise UserError(f"unknown table '{name}'; {did_you_mean(name, known)}")
    return known[name]


def rows(one: Described) -> Iterator[dict[str, str]]:
    """The rows that `extrapolate columns --json` prints for a table, one per column."""
    for group in one.groups:
        for c in group.columns:
            yield {
                "table": one.name, "group": group.name, "column": c.name, "type": kind(c.type), "unit": c.unit,
                "meaning": c.meaning, "empty": c.empty,
            }  # fmt: skip
