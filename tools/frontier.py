"""Makes docs/results/frontier.md, and the README's table, from the rows in docs/results/frontier/ and beside it.

The page also has the text in tools/frontier.md.

python tools/frontier.py [KIND RUNS ...] first adds the rows of evaluated runs, or of folders of them. KIND is `models`
for runs of examples/studies/frontier.toml, `extensions` for some of them evaluated with extensions, `novels` for all of
them evaluated on other books, and `adamw`, `twice-as-long`, `twice-as-wide`, `rates` or `optimum` for runs at this
scale of the study.
"""

import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from frontier_tables import (
    BESIDE,
    FIRST,
    KINDS,
    LONGEST,
    PROTOCOL,
    TRAININGS,
    Rows,
    beside_first,
    extended,
    known_optimum,
    learning_rates,
    needles,
    other_books,
    ranked,
    rows,
    table,
    trained_otherwise,
)
from studies import RESULTS

import extrapolate as xt
from extrapolate import files, results
from extrapolate.names import DOCUMENTS_TABLE, PROBES_TABLE, TEXT_TABLE
from extrapolate.reports.load_tables import Part, load_tables
from extrapolate.reports.page import Table
from extrapolate.reports.sections.learning_rates import FILE, tables_of
from extrapolate.reports.sections.overview import RANK
from extrapolate.statistics.documents import as_frame
from extrapolate.statistics.sums import clusters_of

KEPT, PICTURE, README_PICTURE = KINDS["models"], "studies/frontier.png", "studies/frontier-ten.png"
NOTES = Path(__file__).parent / "frontier.md"
README, FIRST_TABLE = RESULTS.parents[1] / "README.md", re.compile(r"^\| Model \|.*?\n\n", re.MULTILINE | re.DOTALL)
IN_README = ("Stick-breaking", "FoX", "KERPLE", "RNoPE", "ALiBi", "FIRE", "NoPE", "T5", "ExPE", "RoPE")
BEGINNING = """\
# Every encoding on English books

`python tools/frontier.py` generates this page from the kept results of the study
[`examples/studies/frontier.toml`](../../examples/studies/frontier.toml), in `docs/results/frontier/` and beside it:
{models} models of about {parameters} million parameters, {runs} runs in all, each trained on {tokens} tokens at a
training length of L = {seq_len}. The text is long English books, of which {documents} are held out for testing; a
quarter of the training windows ask for a [needle](../probes.md). All have the same sizes, the same
[stack](../training.md) and the same learning rate; nothing was tuned for an encoding. Trained on {machine}, {dates},
with commits {commits}. What each encoding costs is on [another page](cost.md).

**A million tokens are few, and the order still changes with more.** RoPE and ExPE were also trained on 12 million, with
the first seed (AMD EPYC without AVX-512, 2026-11-28, commit 937b1c3baaef). On the same targets, RoPE's loss then rises
from 3.648 at 1x to 4.616 at 4x and 4.874 at 16x, ExPE's from 3.688 to 3.738 and 4.045. In the table below, the two are
too close to call at 16x; after twelve times the tokens ExPE is better there by 0.83 nats [0.78, 0.89], an interval over
documents. Both then find fewer needles at 16x than here, 0.05 and 0.13. So this page says what a million tokens teach.
The rows are in `docs/results/budget/`, and this trains ExPE:

```sh
extrapolate train --pe expe --seq-len 64 --data data/books --tokens 12000000 --probes needle=0.25 --precision fp32
```

Put [your own encoding](../writing-an-encoding.md) into the table: it is trained as the others were, with all three
seeds, and reported with these rows. For `examples/my_encoding.py:LogBias` that took 9 minutes on two cores, tokenising
included (AMD EPYC with AVX-512, 2026-11-27, commit 14127c0f), and an estimated 16 on an older one. The second command
makes the report; the third trains all {runs} runs again, which takes about five hours on such cores.

```sh
extrapolate sweep examples/studies/frontier.toml --pe my_file.py:MyEncoding
extrapolate report docs/results/frontier sweeps/frontier-my_file-MyEncoding --out report
extrapolate sweep examples/studies/frontier.toml
```
"""
TABLE = """\
Sorted by the loss at {longest}x. Losses are nats per token by `fixed-target`, which scores the same tokens
after contexts of every length; means over the seeds. **Worst** is the highest loss of a seed at {longest}x.

A **key token** ends a sequence of four tokens that also occurs more than L tokens back, and not within the last L. A
model that copies from there predicts it ([protocols](../protocols.md)). The column is the loss of {key}
such tokens at {longest}x, minus that at 1x, with its 95 % interval: below 0, the model gains from what lies beyond L.

**Needle** is the share of needles found at 1x, 4x and {longest}x; at 4x and {longest}x, of those that lie more than L
tokens before the question, {needles} per model and seed. Guessing finds 0.06. Parentheses hold the shares of the seeds
with the fewest and the most.
"""
RANKS = f"""\
Models are ranked by their mean loss at each length; 1 is the lowest. {RANK} A bracket is stricter than the bold \
sentences at the top of the page: it holds for all comparisons of its model at once.
"""
PICTURED = """\
Lines are means over seeds, and the thin coloured ones are single seeds. Named are the models with the lowest losses at
16x, and RoPE; the grey lines are the others. The best control is the lowest loss of any model at 1x.
"""


def main(kind: str = "models", *runs: str) -> None:
    """Adds rows, and writes the page and its picture."""
    with tempfile.TemporaryDirectory() as temporary:
        work, kept = Path(temporary), KINDS[kind]
        if new := unknown(kept, map(Path, runs)):
            keep(kept, new)
        answer = xt.report(KEPT, work / "report").answer
        xt.report(few(work / "few"), work / "report-few")
        for name, picture in (("report", PICTURE), ("report-few", README_PICTURE)):
            shutil.copyfile(work / name / f"loss_by_ev.{PROTOCOL}.png", RESULTS / picture)
    notes, more = NOTES.read_text(encoding="utf-8").strip(), beside(rows(KEPT).losses)
    files.write_text(RESULTS / "frontier.md", page(rows(KEPT), answer, notes, more))
    readme = README.read_text(encoding="utf-8")
    new = Table(in_readme(table(rows(KEPT)))).markdown().strip() + "\n\n"
    files.write_text(README, FIRST_TABLE.sub(lambda _: new, readme, count=1))


def unknown(kept: Path, runs: Iterable[Path]) -> list[Path]:
    """The evaluated runs at and below some folders that have rows which are not kept yet."""

    def settings(part: Part) -> set[tuple[str, str]]:
        found = part.tables[TEXT_TABLE].select(["weights_sha256", "extension"]).to_pylist()
        return {(row["weights_sha256"], row["extension"]) for row in found}

    def parts(*folders: Path) -> list[Part]:
        return [part for every in (load_tables(folders).runs.values() if folders else ()) for part in every]

    known = {one for part in parts(*([kept] if kept.exists() else [])) for one in settings(part)}
    return [part.folder for part in parts(*runs) if settings(part) - known]


def keep(kept: Path, runs: Sequence[Path]) -> None:
    """Adds the rows of runs to those that are kept."""
    found = load_tables([*([kept] if kept.exists() else []), *runs])
    rates = tables_of(found, set(found.runs))
    with files.new_folder(kept, check=lambda folder: None) as folder:
        for file in (TEXT_TABLE, PROBES_TABLE):
            if new := found.rows(file):
                results.write(folder / file, new, results.KEPT[file])
        documents = without_positions(found.documents())
        results.write_columns(folder / DOCUMENTS_TABLE, documents, results.EVAL_DOCUMENTS)
        if rates:
            results.write_frame(folder / FILE, pd.concat(rates, ignore_index=True))


def without_positions(documents: pa.Table) -> pa.Table:
    """Sums each document's losses over the positions in its windows, which makes the file about a tenth of the size.

    Stretches stay separate if they are resampled.
    """
    rows = as_frame(documents)
    weights = {
        name: "n_key" if name.startswith("key_") else "n_targets" for name in map(str, rows) if name.endswith("loss")
    }
    stretches = "block" in clusters_of(rows)[1]
    by = ["run", *results.EVALS.key, "model", "length", "document", *(["block"] if stretches else [])]
    numbers = rows[["n_targets", "n_bytes", "n_key"]].astype(float)
    sums = numbers.assign(**{name: rows[name].astype(float) * numbers[weight] for name, weight in weights.items()})
    total = sums.groupby([rows[name] for name in by], observed=True, dropna=False).sum(min_count=1).reset_index()
    total = total.assign(**{name: total[name] / total[weight].replace(0, np.nan) for name, weight in weights.items()})
    total = total.assign(position=0, bucket=total["length"], **({} if stretches else {"block": 0}))
    return pa.Table.from_pandas(total[list(rows)], preserve_index=False)


def few(folder: Path) -> Path:
    """A new folder with the rows of the models that the README has."""
    folder.mkdir()
    for path in KEPT.glob("*.parquet"):
        pq.write_table(pq.read_table(path, filters=[("model", "in", IN_README)]), folder / path.name)
    return folder


def page(kept: Rows, answer: str, notes: str, more: Sequence[str]) -> str:
    """The page, from the kept rows, the report's answer, the text written by hand, and other parts."""
    parts = [
        beginning(kept.losses),
        f"**{answer}**",
        notes,
        "## The table",
        explained(kept),
        linked(kept),
        f"![Loss against length]({PICTURE})",
        PICTURED,
        *more,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def beginning(losses: pd.DataFrame) -> str:
    """The facts of all rows."""

    def values(column: str) -> str:
        return ", ".join(map(str, sorted(set(losses[column]))))

    first, last = (f"{losses['evaluated_at'].agg(which):%Y-%m-%d}" for which in ("min", "max"))
    return BEGINNING.format(
        models=losses["model"].nunique(),
        runs=losses["weights_sha256"].nunique(),
        tokens=f"{losses['tokens'].max():,}",
        seq_len=values("seq_len"),
        parameters=f"{losses['parameters'].mean() / 1e6:.1f}",
        documents=losses["n_documents"].max(),
        machine=" and on ".join(sorted(set(losses["training_machine"]))),
        dates=first if first == last else f"{first} to {last}",
        commits=values("training_commit"),
    )


def explained(kept: Rows) -> str:
    """What the table's columns are."""
    losses = kept.losses
    asked = int(needles(kept.probes).query("factor == @LONGEST").groupby("run")["n_answers"].sum().max())
    key = int(losses.loc[(losses["factor"] == LONGEST) & (losses["protocol"] == PROTOCOL), "n_key"].max())
    return TABLE.format(longest=LONGEST, needles=asked, key=key)


def linked(kept: Rows) -> str:
    """The table in Markdown, with each model's name leading to its encoding in the catalogue."""
    found = Table(table(kept)).markdown()
    for model, encoding in kept.losses.groupby("model")["encoding"].first().items():
        found = found.replace(f"\n| {model} |", f"\n| [{model}](../encodings.md#{encoding}) |")
    return found


def beside(losses: pd.DataFrame) -> list[str]:
    """The parts of the page about differences, about the same models under other conditions, and about ranks."""
    rates = KINDS["rates"]
    return [
        "## Differences",
        BESIDE.format(first=FIRST, longest=LONGEST),
        Table(beside_first(rows(KEPT))).markdown(),
        *extended(KINDS["extensions"]),
        *other_books(losses, rows(KINDS["novels"]).losses),
        *trained_otherwise(rows(KEPT), {scale: rows(KINDS[scale]) for scale in TRAININGS if KINDS[scale].exists()}),
        *learning_rates(rows(KEPT), rows(rates), pd.read_parquet(rates / FILE)),
        *known_optimum(rows(KINDS["optimum"]).losses),
        "## Ranks",
        textwrap.fill(RANKS, 120),
        Table(ranked(rows(KEPT))).markdown(),
    ]


def in_readme(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns of the page's table that the README has."""
    few = shown[shown["Model"].isin(IN_README)]
    few = few.replace({column: {r" \(.*": ""} for column in few if column.startswith("Needle")}, regex=True)
    return few[["Model", "1x", "2x", "4x", "8x", "16x", "Needle 1x", "Needle 16x"]]


if __name__ == "__main__":
    main(*sys.argv[1:])
