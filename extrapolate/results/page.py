"""What every column of every table means: docs/results.md, and the list that `extrapolate columns` prints."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from extrapolate.errors import UserError
from extrapolate.reports.sections.base import in_order
from extrapolate.results.columns import INT, REAL, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.tables import EVAL_DOCUMENTS, EVAL_TARGETS, EVALS, INSPECTIONS, PROBES, TASKS
from extrapolate.specs import did_you_mean

METRICS = plain(
    Column("step", INT, "optimiser steps", meaning="The step that has just ended, counted from 1."),
    Column("tokens", INT, "tokens", meaning="How many tokens were trained on so far."),
    Column("loss", REAL, "nats per target", False, "The step's training loss.", "a row of the validation"),
    Column("lr", REAL, "", False, "The step's learning rate.", "a row of the validation"),
    Column("grad_norm", REAL, "", False, "The gradient's norm, before it is clipped.", "a row of the validation"),
    Column(
        "others",
        REAL,
        "share",
        False,
        "How much of the time in which the step wanted to compute other programs took.",
        "a row of the validation, or the system does not tell",
    ),
    Column(
        "tokens_per_s",
        REAL,
        "tokens per second",
        False,
        "The step's speed.",
        "a row of the validation, or other trainings of a study ran beside",
    ),
    Column("val_loss", REAL, "nats per target", False, "The loss on the validation split.", "a row of a step"),
)
_EVALS = Described(
    "evals", "`evals.parquet`, of a run and of a report", "a run, an extension, a protocol and a length", EVALS.groups
)
TABLES = (
    _EVALS,
    Described(
        "eval_documents", "`eval_documents.parquet`, of a run and of a report",
        "a row of `evals`, a document, a stretch of it, and a position in the window", EVAL_DOCUMENTS.groups, _EVALS,
    ),
    Described(
        "eval_targets", "`eval_targets.parquet` of a run, where `eval-lengths --keep-losses` was asked for",
        "a row of `evals` that has a loss, and a target", EVAL_TARGETS.groups, _EVALS,
    ),
    Described(
        "eval_probes", "`eval_probes.parquet` of a run, `probes.parquet` of a report",
        "a run, an extension, a probe, a length and a depth", PROBES.groups, _EVALS,
    ),
    Described(
        "eval_tasks", "`eval_tasks.parquet`, of a run and of a report",
        "a run, an extension, a length, and a metric of a task of lm-eval", TASKS.groups, _EVALS,
    ),
    Described(
        "inspections", "`inspections.parquet`, of a run and of a report",
        "a run, an extension, a length, and a quantity of a measurement at one layer, head and place",
        INSPECTIONS.groups, _EVALS,
    ),
    Described(
        "metrics", "`metrics.jsonl` of a run, and once it is trained `metrics.parquet`",
        "a step of the training, or a validation", METRICS,
    ),
    *(table for section in in_order() for table in section.tables),
)  # fmt: skip

INTRODUCTION = """\
# Tables and their columns

Made from the code by `extrapolate columns --markdown`. `extrapolate columns evals` prints the columns of one table.
[json.md](json.md) has the keys of what commands print with `--json`.

Training and evaluation write their tables into the run's folder, `extrapolate report` into the folder of the report.
All are Parquet files. Those of an evaluation say each column's unit and meaning in the metadata of its field too. A
value that is empty is `null`: there is nothing to measure. `NaN` in a column `loss` is a measured value: the model has
diverged.

The metadata of every file has the version of extrapolate that wrote it (`extrapolate_version`), and the number of the
file's format (`extrapolate_format`). A command refuses a file of another format, and one to which it cannot add rows
without losing a column. A column that a file lacks is empty, unless every row needs it.

Every page of a file has Parquet's own checksum, and so has the footer: its CRC-32 is in the 4 bytes before it. A
command refuses a file if a checksum is wrong. Other programs can read all of these files. If one of them, such as
pandas, writes a file again, extrapolate reads it if its columns are right.
"""

EXAMPLES = """\
## Load them in pandas

The examples read a folder `ckpt` of runs that were trained and evaluated with

```
extrapolate train --pe rope --seq-len 64 --out ckpt/rope
extrapolate train --pe none --seq-len 64 --out ckpt/none
extrapolate eval-lengths ckpt --factors 1,2,4
```

Loss by length, a row for each model. Compare only rows of one protocol, precision, split and `targets_hash`:

```python
from pathlib import Path

import pandas as pd

evals = pd.concat(pd.read_parquet(path) for path in Path("ckpt").glob("*/evals.parquet"))
chosen = evals.query("protocol == 'fixed-target' and precision == 'fp32' and split == 'test'")
assert chosen["targets_hash"].nunique() == 1
print(chosen.pivot_table(index="model", columns="factor", values=["loss", "control_loss"]))
```

What a row's documents say. Sums over documents are weighted by their targets, and give the row's own loss again:

```python
import pandas as pd

key = ["run", "extension", "protocol", "factor", "split", "step", "precision", "targets_hash"]
evals = pd.read_parquet("ckpt/rope/evals.parquet")
documents = pd.read_parquet("ckpt/rope/eval_documents.parquet")
documents["total"] = documents["loss"] * documents["n_targets"]
sums = documents.groupby([*key, "document"])[["total", "n_targets"]].sum().reset_index()
sums["document_loss"] = sums["total"] / sums["n_targets"]
joined = sums.merge(evals[[*key, "model", "loss"]], on=key, validate="many_to_one")
print(joined[["model", "protocol", "factor", "document", "document_loss", "loss"]])
```

A training curve:

```python
import matplotlib.pyplot as plt
import pandas as pd

metrics = pd.read_parquet("ckpt/rope/metrics.parquet")
steps, validations = metrics.dropna(subset="loss"), metrics.dropna(subset="val_loss")
plt.plot(steps["tokens"], steps["loss"], label="training")
plt.plot(validations["tokens"], validations["val_loss"], "o-", label="validation")
plt.xlabel("training tokens")
plt.ylabel("loss, nats per token")
plt.legend()
plt.savefig("curve.png")
```
"""


def table(name: str) -> Described:
    """A table by its name, with or without `.parquet`. Raises UserError if there is none."""
    known = {one.name: one for one in TABLES}
    name = name.removesuffix(".parquet")
    if name not in known:
        raise UserError(f"unknown table '{name}'; {did_you_mean(name, known)}")
    return known[name]


def kind(column: Column) -> str:
    """A column's type in words."""
    return _kind(column.type)


def _kind(type: pa.DataType) -> str:
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_list(type):
        inside = type.value_type
        return "list of objects" if pa.types.is_struct(inside) else f"list of {_kind(inside)}s"
    for test, text in (
        (pa.types.is_string, "text"),
        (pa.types.is_integer, "whole number"),
        (pa.types.is_floating, "number"),
        (pa.types.is_boolean, "true or false"),
    ):
        if test(type):
            return text
    return "time"


def rows(one: Described) -> Iterator[dict[str, str]]:
    """What `extrapolate columns --json` prints of a table: a row for each column."""
    for group in one.groups:
        for c in group.columns:
            yield {
                "table": one.name, "group": group.name, "column": c.name, "type": kind(c), "unit": c.unit,
                "meaning": c.meaning, "empty": c.empty,
            }  # fmt: skip


def column_lines(columns: Iterable[Column]) -> Iterator[str]:
    """A table of Markdown that says what each column is."""
    yield "| column | type | unit | what it holds | empty where |"
    yield "|---|---|---|---|---|"
    for c in columns:
        yield f"| `{c.name}` | {kind(c)} | {c.unit} | {c.meaning} | {c.empty} |"


def results_page() -> str:
    """docs/results.md."""
    return "\n".join([INTRODUCTION, *(line for one in TABLES for line in _section(one)), EXAMPLES])


def _section(one: Described) -> Iterator[str]:
    yield f"## {one.name}\n"
    yield f"{one.files}. One row stands for {one.row}.\n"
    for group in one.own():
        if group.name:
            yield f"**{group.name}**: {group.meaning}\n"
        yield from column_lines(group.columns)
        yield ""
    if one.base is not None and (shared := one.shared()):
        whole = [group for group in one.groups if group.name and group in one.base.groups]
        rest = [c for c in shared if not any(c in group.columns for group in whole)]
        yield f"As in [{one.base.name}](#{one.base.name}):\n"
        if whole:
            yield f"- the groups {', '.join(f'**{group.name}**' for group in whole)}"
        if rest:
            yield f"- {', '.join(f'`{c.name}`' for c in rest)}"
        yield ""
