"""Makes docs/results/frontier.md, and the README's table, from the rows in docs/results/frontier/.

The page also has the text in tools/frontier.md.

python tools/frontier.py [KIND RUNS ...] first adds the rows of evaluated runs, or of folders of them. KIND is `models`
for runs of examples/studies/frontier.toml, and otherwise one of KINDS: some of these runs evaluated with extensions or
on other books, or runs at another scale of the study.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from studies import RESULTS

import extrapolate as xt
from extrapolate import files, results
from extrapolate.names import DOCUMENTS_TABLE, PROBES_TABLE, TEXT_TABLE
from extrapolate.reports.load_tables import RunTables, load_tables
from extrapolate.reports.page import Table
from extrapolate.reports.sections.learning_rates import FILE, tables_of
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.documents import as_frame
from extrapolate.statistics.sums import clusters_of

KINDS = {  # of rows, and where they are kept
    "models": RESULTS / "frontier",
    **{
        kind: RESULTS / f"frontier-{kind}"
        for kind in ("extensions", "novels", "adamw", "twice-as-long", "twice-as-wide", "rates", "optimum")
    },
}
KEPT, PICTURE, README_PICTURE = KINDS["models"], "studies/frontier.png", "studies/frontier-ten.png"
PROTOCOL, LONGEST = "fixed-target", 16
NOTES = Path(__file__).parent / "frontier.md"
README, FIRST_TABLE = RESULTS.parents[1] / "README.md", re.compile(r"^\| Model \|.*?\n\n", re.MULTILINE | re.DOTALL)
IN_README = ("Stick-breaking", "FoX", "KERPLE", "RNoPE", "ALiBi", "FIRE", "NoPE", "T5", "ExPE", "RoPE")
BEGINNING = """\
# Every encoding on English books

{models} models of about {parameters} million parameters, {runs} runs in all, each trained on {tokens} tokens of English
books at a training length of L = {seq_len}. All have the same sizes, the same [recipe](../training.md) and the same
learning rate; nothing was tuned for an encoding. A quarter of the training windows ask for a [needle](../probes.md),
and {documents} books are held out for testing. Trained on {machine}, {dates}, with commits {commits}.

`python tools/frontier.py` generates this page from the rows in `docs/results/frontier/`. The first command makes their
full report, with every interval, rank and curve. The next two put [your own encoding](../writing-an-encoding.md) beside
them: for `examples/my_encoding.py:LogBias` that took 9 minutes on two cores (AMD EPYC with AVX-512, 2026-11-27, commit
14127c0f). The last trains all {runs} runs again, which takes about five hours on such cores.

```sh
extrapolate report docs/results/frontier --out report
extrapolate sweep examples/studies/frontier.toml --pe my_file.py:MyEncoding
extrapolate report docs/results/frontier sweeps/frontier-my_file-MyEncoding --out report
extrapolate sweep examples/studies/frontier.toml
```
"""
PICTURED = """\
Lines are means over seeds, and the thin coloured ones are single seeds. Named are the models with the lowest losses at
16x, and RoPE; the grey lines are the others. The best control is the lowest loss of any model at 1x.
"""
TABLE = """\
Losses are nats per token by `fixed-target` ([protocols](../protocols.md)), which scores the same tokens after contexts
of every length; means over three seeds, the lowest at {longest}x first. **Needle** is the share of needles found at 1x
and {longest}x; at {longest}x, of those that lie more than L tokens before the question, {needles} per model and seed.
Guessing finds 0.06. Parentheses hold the seeds with the fewest and the most.
"""


class Rows(NamedTuple):
    """Of all runs: losses by length, probes, and losses by document."""

    losses: pd.DataFrame
    probes: pd.DataFrame
    documents: pd.DataFrame


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
    files.write_text(RESULTS / "frontier.md", page(rows(KEPT), answer, NOTES.read_text(encoding="utf-8")))
    readme = README.read_text(encoding="utf-8")
    new = Table(in_readme(table(rows(KEPT)))).markdown().strip() + "\n\n"
    files.write_text(README, FIRST_TABLE.sub(lambda _: new, readme, count=1))


def rows(kept: Path) -> Rows:
    """All that is kept there."""
    found = {path.stem: pd.read_parquet(path) for path in kept.glob("*.parquet")}
    return Rows(found["evals"], found.get("probes", pd.DataFrame()), found["eval_documents"])


def unknown(kept: Path, runs: Iterable[Path]) -> list[Path]:
    """The evaluated runs at and below some folders that have rows which are not kept yet."""

    def settings(part: RunTables) -> set[tuple[str, str]]:
        found = part.tables[TEXT_TABLE].select(["weights_sha256", "extension"]).to_pylist()
        return {(row["weights_sha256"], row["extension"]) for row in found}

    def parts(*folders: Path) -> list[RunTables]:
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


def page(kept: Rows, answer: str, notes: str) -> str:
    """The page, from the kept rows, the report's answer, and the text written by hand."""
    asked = int(needles(kept.probes).query("factor == @LONGEST").groupby("run")["n_answers"].sum().max())
    parts = [
        beginning(kept.losses),
        f"**{answer}**",
        notes,
        "## Loss by length",
        f"![Loss against length]({PICTURE})",
        PICTURED,
        TABLE.format(longest=LONGEST, needles=asked),
        linked(kept),
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


def table(kept: Rows) -> pd.DataFrame:
    """A row for each model, the lowest loss at the greatest length first."""
    own = kept.losses[kept.losses["protocol"] == PROTOCOL]
    mean = own.groupby(["model", "factor"])["loss"].agg(strict_mean).unstack().sort_values(LONGEST)
    found = needles(kept.probes).groupby(["model", "seed", "factor"])["accuracy"].mean().unstack()
    columns = {f"{factor:g}x": mean[factor].map("{:.3f}".format, na_action="ignore") for factor in mean}
    columns["Needle 1x"] = found[1].groupby("model").mean().map("{:.2f}".format, na_action="ignore")
    columns[f"Needle {LONGEST}x"] = found[LONGEST].groupby("model").apply(_shares)
    return pd.DataFrame(columns).loc[mean.index].fillna("n/a").rename_axis("Model").reset_index()


def _shares(of_seeds: pd.Series) -> str:
    mean, least, most = (f"{share:.2f}" for share in (of_seeds.mean(), of_seeds.min(), of_seeds.max()))
    return "n/a" if of_seeds.isna().any() else mean if least == most else f"{mean} ({least} to {most})"


def needles(probes: pd.DataFrame) -> pd.DataFrame:
    """The rows of needles at L, and of those out of reach for a model that sees the last L tokens alone."""
    return probes[(probes["factor"] == 1) | (probes["depth"] < 1)]


def linked(kept: Rows) -> str:
    """The table in Markdown, with each model's name leading to its encoding in the catalogue."""
    found = Table(table(kept)).markdown()
    for model, encoding in kept.losses.groupby("model")["encoding"].first().items():
        found = found.replace(f"\n| {model} |", f"\n| [{model}](../encodings.md#{encoding}) |")
    return found


def in_readme(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows of the page's table that the README has, without the shares of single seeds."""
    few = shown[shown["Model"].isin(IN_README)]
    return few.replace({column: {r" \(.*": ""} for column in few if column.startswith("Needle")}, regex=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
