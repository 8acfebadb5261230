"""What every column of every table means: docs/results.md, and the list that `extrapolate columns` prints."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from extrapolate.errors import UserError
from extrapolate.results.tables import EVAL_DOCUMENTS, EVALS, PROBES, Column
from extrapolate.specs import did_you_mean


@dataclass(frozen=True)
class Described:
    """One table: its files, what a row of it is, its columns, and the table that has the columns it does not repeat."""

    name: str
    files: str
    row: str
    columns: tuple[Column, ...]
    base: str | None = None

    def own(self) -> list[Column]:
        """The columns that its base does not have."""
        shared = () if self.base is None else table(self.base).columns
        return [column for column in self.columns if column not in shared]

    def shared(self) -> list[Column]:
        """The columns that are as in its base."""
        return [column for column in self.columns if column not in self.own()]


_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()
_CURVE = (
    Column("model", _TEXT, meaning="The model's name in tables."),
    Column("factor", _REAL, meaning="The evaluation length divided by the training length L."),
    Column("length", _INT, "tokens", meaning="The evaluation length."),
    Column("clusters", _INT, meaning="How many clusters of targets the intervals come from."),
    Column("cluster", _TEXT, meaning="What a cluster is: `documents`, or `stretches` where there are few of those."),
    Column("seeds", _INT, meaning="How many runs were averaged."),
)
_TOO_FEW = "there are too few clusters"

METRICS = (
    Column("step", _INT, "optimiser steps", meaning="The step that has just ended, counted from 1."),
    Column("tokens", _INT, "tokens", meaning="How many tokens were trained on so far."),
    Column("loss", _REAL, "nats per target", False, "The step's training loss.", "a row of the validation"),
    Column("lr", _REAL, "", False, "The step's learning rate.", "a row of the validation"),
    Column("grad_norm", _REAL, "", False, "The gradient's norm, before it is clipped.", "a row of the validation"),
    Column("tokens_per_s", _REAL, "tokens per second", False, "The step's speed.", "a row of the validation"),
    Column("val_loss", _REAL, "nats per target", False, "The loss on the validation split.", "a row of a step"),
)
_SEEDS = Column("Seeds", _INT, meaning="How many seeds the means are over.")
_BY_EV = (
    Column("Model", _TEXT, meaning="The model's name. Runs that differ in the seed alone are one model."),
    Column(
        "Loss (ev=K)", _REAL, "nats per target", False,
        "The mean loss over seeds at K times the training length; a column for every K.",
        "the encoding ends before this length",
    ),
)  # fmt: skip
LOSS_BY_EV = (
    *_BY_EV,
    Column(
        "Training time", _REAL, "ratio", False, "The training time divided by the baseline's (RoPE, or `--baseline`).",
        "there is no baseline, the model was trained on another machine, or its training time is not known",
    ),
    _SEEDS,
)  # fmt: skip
OPTIMUM_BY_EV = (
    *_BY_EV,
    Column(
        "Gain captured (ev=K)", _REAL, "ratio", False,
        "The share of what longer windows offer that the model took; the row `optimum` has the least possible losses.",
        "the row is `optimum`, or windows of this length offer nothing",
    ),
    Column("Seeds", _INT, "", False, _SEEDS.meaning, "the row is `optimum`"),
)  # fmt: skip
LOSS_BY_POSITION = (
    Column("position", _INT, "tokens", meaning="Where a bucket of L/2 inputs begins in the window."),
    Column("loss", _REAL, "nats per target", False, "The bucket's loss.", "the encoding ends before this length"),
    Column("control_loss", _REAL, "nats per target", meaning="The control's loss on the same targets."),
    Column("difference", _REAL, "nats per target", False, "The loss minus the control's.", "the loss is empty"),
    Column(
        "low", _REAL, "nats per target", False,
        "The lower end of a 95 % band around the difference that holds for all buckets beyond L at once.",
        f"the bucket begins before L, the loss is empty, or {_TOO_FEW}",
    ),
    Column("high", _REAL, "nats per target", False, "The upper end of the same band.", "`low` is empty"),
    Column("n_targets", _INT, "targets", meaning="How many tokens were scored."),
    *_CURVE,
)  # fmt: skip
FAILURE_LENGTHS = (
    *_CURVE,
    Column(
        "fails_from", _INT, "tokens", False,
        "The failure length: where the first bucket begins whose loss is surely above the control's, by 0.01 or more.",
        f"no bucket is, or {_TOO_FEW}",
    ),
    Column(
        "holds_to", _INT, "tokens", False,
        "Up to where, from L on, every bucket is surely less than 0.01 above the control.",
        f"the first bucket beyond L is not, or {_TOO_FEW}",
    ),
)  # fmt: skip

TABLES = (
    Described(
        "evals", "`evals.parquet`, of a run and of a report", "a run, an extension, a protocol and a length",
        EVALS.columns,
    ),
    Described(
        "eval_documents", "`eval_documents.parquet`, of a run and of a report",
        "a row of `evals`, a document, a stretch of it, and a position in the window", EVAL_DOCUMENTS.columns, "evals",
    ),
    Described(
        "eval_probes", "`eval_probes.parquet` of a run, `probes.parquet` of a report",
        "a run, an extension, a probe, a length and a depth", PROBES.columns, "evals",
    ),
    Described(
        "metrics", "`metrics.jsonl` of a run, and once it is trained `metrics.parquet`",
        "a step of the training, or a validation", METRICS,
    ),
    Described(
        "loss_by_ev", "`loss_by_ev.parquet` of a report for `windows`, `loss_by_ev.PROTOCOL.parquet` for the others",
        "a model", LOSS_BY_EV,
    ),
    Described(
        "optimum_by_ev", "`optimum_by_ev.parquet`, `optimum_by_ev.PROTOCOL.parquet` of a report on `synthetic:` text",
        "a model, and the optimum first", OPTIMUM_BY_EV, "loss_by_ev",
    ),
    Described(
        "loss_by_position", "`loss_by_position.parquet` of a report, protocol `windows`",
        "a model, a length and a bucket of L/2 positions", LOSS_BY_POSITION,
    ),
    Described(
        "failure_lengths", "`failure_lengths.parquet` of a report, protocol `windows`", "a model and a length beyond L",
        FAILURE_LENGTHS, "loss_by_position",
    ),
)  # fmt: skip

INTRODUCTION = """\
# Tables and their columns

Made from the code by `extrapolate columns --markdown`. `extrapolate columns evals` prints the columns of one table.

Training and evaluation write their tables into the run's folder, `extrapolate report` into the folder of the report.
All are Parquet files. Those of an evaluation say each column's unit and meaning in the metadata of its field too. A
value that is empty is `null`: there is nothing to measure. `NaN` in a column `loss` is a measured value: the model has
diverged.
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
    """A table by its name, with or without `.parquet`. Raises UserError where there is none."""
    known = {one.name: one for one in TABLES}
    name = name.removesuffix(".parquet")
    if name not in known:
        raise UserError(f"unknown table '{name}'; {did_you_mean(name, known)}")
    return known[name]


def kind(column: Column) -> str:
    """A column's type in words."""
    for test, text in (
        (pa.types.is_string, "text"),
        (pa.types.is_integer, "whole number"),
        (pa.types.is_floating, "number"),
    ):
        if test(column.type):
            return text
    return "time"


def results_page() -> str:
    """docs/results.md."""
    return "\n".join([INTRODUCTION, *(line for one in TABLES for line in _section(one)), EXAMPLES])


def _section(one: Described) -> Iterator[str]:
    yield f"## {one.name}\n"
    yield f"{one.files}. One row stands for {one.row}.\n"
    yield "| column | type | unit | what it holds | empty where |"
    yield "|---|---|---|---|---|"
    for c in one.own():
        yield f"| `{c.name}` | {kind(c)} | {c.unit} | {c.meaning} | {c.empty} |"
    yield ""
    if shared := one.shared():
        yield f"And as in [{one.base}](#{one.base}): {', '.join(f'`{c.name}`' for c in shared)}.\n"
