"""The meaning of every column of every table, for docs/results.md and `extrapolate columns`."""

from collections.abc import Iterator

from extrapolate.catalogue.printed import json_section
from extrapolate.errors import UserError
from extrapolate.reports.sections.base import in_order
from extrapolate.results.columns import INT, REAL, Column
from extrapolate.results.described import Described, kind, plain, section
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
        "others", REAL, "share", False, "The share of the step's time spent waiting for other programs.",
        f"{_VALIDATION}, or the system does not report it",
    ),
    Column(
        "tokens_per_s", REAL, "tokens per second", False, "The speed of the step.",
        f"{_VALIDATION}, or other cells of a study ran at the same time",
    ),
    Column("val_loss", REAL, "nats per target", False, "The loss on the validation split.", "the row is of a step"),
)  # fmt: skip
_EVALS = Described(
    "evals", "`evals.parquet` of a run and of a report", "run, extension, protocol and length", EVALS.groups
)
TABLES = (
    _EVALS,
    Described(
        "eval_documents", "`eval_documents.parquet` of a run and of a report",
        "row of `evals`, document, stretch of it, and position in the window", EVAL_DOCUMENTS.groups, _EVALS,
    ),
    Described(
        "eval_targets", "`eval_targets.parquet` of a run, with `eval-lengths --keep-losses`",
        "row of `evals` that has a loss, and target", EVAL_TARGETS.groups, _EVALS,
    ),
    Described(
        "eval_probes", "`eval_probes.parquet` of a run, `probes.parquet` of a report",
        "run, extension, probe, length and depth", PROBES.groups, _EVALS,
    ),
    Described(
        "eval_tasks", "`eval_tasks.parquet` of a run and of a report",
        "run, extension, length, and metric of a task of lm-eval", TASKS.groups, _EVALS,
    ),
    Described(
        "inspections", "`inspections.parquet` of a run and of a report",
        "run, extension, length, quantity, layer, head and place", INSPECTIONS.groups, _EVALS,
    ),
    Described(
        "metrics", "`metrics.jsonl` of a run, and `metrics.parquet` once it is trained",
        "training step or validation", METRICS,
    ),
    *(table for section in in_order() for table in section.tables),
)  # fmt: skip

INTRODUCTION = """\
# Tables and their columns

Made from the code by `extrapolate columns --markdown`; `extrapolate columns evals` prints the columns of one table. The
keys of what commands print with `--json` are [at the end](#json-output).

Training and evaluation write Parquet tables into the run's folder, `extrapolate report` into the report's. Each column
has its type and unit in parentheses; a name that ends in `(ev=K)` stands for one column per factor K. An empty value is
`null`. A `loss` of `NaN` is not empty: the model has diverged.

The metadata of a file holds the version of extrapolate that wrote it (`extrapolate_version`) and the number of its
format (`extrapolate_format`). A command refuses a file in another format, or with a wrong checksum: Parquet's own of
every page, or the CRC-32 of the footer in the 4 bytes before it. It never adds rows if a column would be lost. A
missing column is read as empty, unless every row needs it. A file that another program, such as pandas, has written
again is read if its columns are right.
"""

EXAMPLES = """\
## Load them in pandas

The examples read runs that were trained and evaluated with

```
extrapolate train --pe rope --seq-len 64 --out ckpt/rope
extrapolate train --pe none --seq-len 64 --out ckpt/none
extrapolate eval-lengths ckpt --factors 1,2,4
```

Loss by length, with a row per model. Compare only rows of one protocol, precision, split and `targets_hash`:

```python
from pathlib import Path

import pandas as pd

evals = pd.concat(pd.read_parquet(path) for path in Path("ckpt").glob("*/evals.parquet"))
chosen = evals.query("protocol == 'fixed-target' and precision == 'fp32' and split == 'test'")
assert chosen["targets_hash"].nunique() == 1
print(chosen.pivot_table(index="model", columns="factor", values=["loss", "control_loss"]))
```

Loss by document. The mean over documents, weighted by their targets, is the row's loss:

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


def rows(one: Described) -> Iterator[dict[str, str]]:
    """The rows that `extrapolate columns --json` prints for a table, one per column."""
    for group in one.groups:
        for c in group.columns:
            yield {
                "table": one.name, "group": group.name, "column": c.name, "type": kind(c), "unit": c.unit,
                "meaning": c.meaning, "empty": c.empty,
            }  # fmt: skip


def results_page() -> str:
    """docs/results.md."""
    tables = (line for one in TABLES for line in section(one, f"## {one.name}", "row"))
    return "\n".join([INTRODUCTION, EXAMPLES, *tables, *json_section()])
