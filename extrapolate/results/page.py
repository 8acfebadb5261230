"""What every column of every table means: docs/results.md, and the list that `extrapolate columns` prints."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from extrapolate.errors import UserError
from extrapolate.results.columns import INT, REAL, TEXT, Column, Group
from extrapolate.results.tables import EVAL_DOCUMENTS, EVALS, PROBES
from extrapolate.specs import did_you_mean


@dataclass(frozen=True)
class Described:
    """One table: its files, what a row of it is, its groups of columns, and the table whose columns it does not repeat.

    A table of few columns has one group, without a name.
    """

    name: str
    files: str
    row: str
    groups: tuple[Group, ...]
    base: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all groups."""
        return tuple(column for group in self.groups for column in group.columns)

    def own(self) -> list[Group]:
        """The groups, with the columns that its base does not have; without those that it has whole."""
        shared = () if self.base is None else table(self.base).columns
        left = [replace(group, columns=tuple(c for c in group.columns if c not in shared)) for group in self.groups]
        return [group for group in left if group.columns]

    def shared(self) -> list[Column]:
        """The columns that are as in its base."""
        own = [column for group in self.own() for column in group.columns]
        return [column for column in self.columns if column not in own]


def _plain(*columns: Column) -> tuple[Group, ...]:
    return (Group("", "", columns),)


_CURVE = (
    Column("model", TEXT, meaning="The model's name in tables."),
    Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
    Column("length", INT, "tokens", meaning="The evaluation length."),
    Column("clusters", INT, meaning="How many clusters of targets the intervals come from."),
    Column("cluster", TEXT, meaning="What a cluster is: `documents`, or `stretches` where there are few of those."),
    Column("seeds", INT, meaning="How many runs were averaged."),
)
_TOO_FEW = "there are too few clusters"

METRICS = _plain(
    Column("step", INT, "optimiser steps", meaning="The step that has just ended, counted from 1."),
    Column("tokens", INT, "tokens", meaning="How many tokens were trained on so far."),
    Column("loss", REAL, "nats per target", False, "The step's training loss.", "a row of the validation"),
    Column("lr", REAL, "", False, "The step's learning rate.", "a row of the validation"),
    Column("grad_norm", REAL, "", False, "The gradient's norm, before it is clipped.", "a row of the validation"),
    Column("tokens_per_s", REAL, "tokens per second", False, "The step's speed.", "a row of the validation"),
    Column("val_loss", REAL, "nats per target", False, "The loss on the validation split.", "a row of a step"),
)
_SEEDS = Column("Seeds", INT, meaning="How many seeds the means are over.")
_BY_EV = (
    Column("Model", TEXT, meaning="The model's name. Runs that differ in the seed alone are one model."),
    Column(
        "Loss (ev=K)", REAL, "nats per target", False,
        "The mean loss over seeds at K times the training length; a column for every K.",
        "the encoding ends before this length",
    ),
)  # fmt: skip
LOSS_BY_EV = _plain(
    *_BY_EV,
    Column(
        "Training time", REAL, "ratio", False, "The training time divided by the baseline's (RoPE, or `--baseline`).",
        "there is no baseline, the model was trained on another machine, or its training time is not known",
    ),
    _SEEDS,
)  # fmt: skip
OPTIMUM_BY_EV = _plain(
    *_BY_EV,
    Column(
        "Gain captured (ev=K)", REAL, "ratio", False,
        "The share of what longer windows offer that the model took; the row `optimum` has the least possible losses.",
        "the row is `optimum`, or windows of this length offer nothing",
    ),
    Column("Seeds", INT, "", False, _SEEDS.meaning, "the row is `optimum`"),
)  # fmt: skip
LOSS_BY_POSITION = _plain(
    Column("position", INT, "tokens", meaning="Where a bucket of L/2 inputs begins in the window."),
    Column("loss", REAL, "nats per target", False, "The bucket's loss.", "the encoding ends before this length"),
    Column("control_loss", REAL, "nats per target", meaning="The control's loss on the same targets."),
    Column("difference", REAL, "nats per target", False, "The loss minus the control's.", "the loss is empty"),
    Column(
        "low", REAL, "nats per target", False,
        "The lower end of a 95 % band around the difference that holds for all buckets beyond L at once.",
        f"the bucket begins before L, the loss is empty, or {_TOO_FEW}",
    ),
    Column("high", REAL, "nats per target", False, "The upper end of the same band.", "`low` is empty"),
    Column("n_targets", INT, "targets", meaning="How many tokens were scored."),
    *_CURVE,
)  # fmt: skip
FAILURE_LENGTHS = _plain(
    *_CURVE,
    Column(
        "fails_from", INT, "tokens", False,
        "The failure length: where the first bucket begins whose loss is surely above the control's, by 0.01 or more.",
        f"no bucket is, or {_TOO_FEW}",
    ),
    Column(
        "holds_to", INT, "tokens", False,
        "Up to where, from L on, every bucket is surely less than 0.01 above the control.",
        f"the first bucket beyond L is not, or {_TOO_FEW}",
    ),
)  # fmt: skip

TABLES = (
    Described(
        "evals", "`evals.parquet`, of a run and of a report", "a run, an extension, a protocol and a length",
        EVALS.groups,
    ),
    Described(
        "eval_documents", "`eval_documents.parquet`, of a run and of a report",
        "a row of `evals`, a document, a stretch of it, and a position in the window", EVAL_DOCUMENTS.groups, "evals",
    ),
    Described(
        "eval_probes", "`eval_probes.parquet` of a run, `probes.parquet` of a report",
        "a run, an extension, a probe, a length and a depth", PROBES.groups, "evals",
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

The metadata of every file says which version of extrapolate wrote it (`extrapolate_version`), and the number of the
file's format (`extrapolate_format`; files of the first format do not say it). Commands of a later version read the
tables of an earlier one: a column that they lack is empty, and words that were changed are translated. Where a file's
format is newer, or adding rows would lose a column, a command refuses the file and names the version that wrote it.
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
    for group in one.own():
        if group.name:
            yield f"**{group.name}**: {group.meaning}\n"
        yield "| column | type | unit | what it holds | empty where |"
        yield "|---|---|---|---|---|"
        for c in group.columns:
            yield f"| `{c.name}` | {kind(c)} | {c.unit} | {c.meaning} | {c.empty} |"
        yield ""
    if shared := one.shared():
        yield f"And as in [{one.base}](#{one.base}): {', '.join(f'`{c.name}`' for c in shared)}.\n"
