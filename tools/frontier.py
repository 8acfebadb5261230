"""Makes docs/results/frontier.md, and the README's table, from the rows in docs/results/frontier/.

The page also has the text in tools/frontier.md.

python tools/frontier.py [RUNS ...] first adds the rows of evaluated runs of examples/studies/frontier.toml, or of
folders of them.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from studies import RESULTS, below, chapters

import extrapolate as xt
from extrapolate import files
from extrapolate.reports.page import Table
from extrapolate.statistics.intervals import FEWEST_SEEDS, estimate

KEPT, PICTURE, README_PICTURE = RESULTS / "frontier", "studies/frontier.png", "studies/frontier-ten.png"
NOTES = Path(__file__).parent / "frontier.md"
PROTOCOL, LONGEST = "fixed-target", 16
README, FIRST_TABLE = RESULTS.parents[1] / "README.md", re.compile(r"^\| Model \|.*?\n\n", re.MULTILINE | re.DOTALL)
IN_README = ("Stick-breaking", "FoX", "KERPLE", "RNoPE", "ALiBi", "FIRE", "NoPE", "T5", "ExPE", "RoPE")
BEGINNING = """\
# Every encoding on English books

`python tools/frontier.py` generates this page from the rows in `docs/results/frontier/`, the results of
[`examples/studies/frontier.toml`](../../examples/studies/frontier.toml): {models} models of about {parameters} million
parameters, {runs} runs in all, each trained on {tokens} tokens at L = {seq_len}. The text is long English books, of
which {documents} are held out for testing; a quarter of the training windows ask for a [needle](../probes.md). Trained
on {machine}, {dates}, with commits {commits}.

Put your own encoding into the table: it is trained as the others were, with all three seeds, and reported with these
rows. For `examples/my_encoding.py:LogBias` that took 7 minutes on two cores (AMD EPYC, 2026-11-26, commit
af83a90febee).

```sh
extrapolate sweep examples/studies/frontier.toml --pe my_file.py:MyEncoding --trust-code
extrapolate report docs/results/frontier sweeps/frontier-my_file-MyEncoding --leaderboard --out report
```
"""
TABLE = """\
Sorted by the loss at {longest}x. Losses are nats per token by `fixed-target`, which scores the same tokens
after contexts of every length; means over the seeds. **Worst** is the highest loss of a seed at {longest}x.

A **key token** ends a sequence of four tokens that the text had before, more than L tokens back, but not within the
last L, so copying from there predicts it ([protocols](../protocols.md)). The column is the loss of {key} such tokens at
{longest}x, minus that with a context cut back to L, with its 95 % interval: below 0, the model gains from what lies
beyond.

**Needle** is the share of needles found at 1x, 4x and {longest}x, of {needles} per model, seed and length. Guessing
finds 0.06; the 95 % interval of a share around 0.5 is about ±{margin:.2f} for one seed.
"""
RANKS = """\
`ev` is the evaluation length divided by L.
"""
PICTURED = """\
The best control is the lowest loss of any model whose context is cut back to L.
"""


class Rows(NamedTuple):
    """Of all runs: losses by length, probes, and losses by document."""

    losses: pd.DataFrame
    probes: pd.DataFrame
    documents: pd.DataFrame


def main(runs: Iterable[Path]) -> None:
    """Adds rows, and writes the page and its picture."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if new := unknown(runs):
            xt.merge([*([KEPT] if KEPT.exists() else []), *new], work / "merged", totals=True)
            shutil.rmtree(KEPT, ignore_errors=True)
            shutil.copytree(work / "merged", KEPT)
        answer = xt.report(KEPT, work / "report", leaderboard=True).answer
        xt.report(few(work / "few"), work / "report-few")
        for name, picture in (("report", PICTURE), ("report-few", README_PICTURE)):
            shutil.copyfile(work / name / f"loss_by_ev.{PROTOCOL}.png", RESULTS / picture)
        report = (work / "report" / "report.md").read_text(encoding="utf-8")
    notes = NOTES.read_text(encoding="utf-8").strip()
    kept = rows()
    files.write_text(RESULTS / "frontier.md", page(kept, answer, notes, chapters(report)["Leaderboard"]))
    readme = README.read_text(encoding="utf-8")
    new = Table(in_readme(table(kept))).markdown().strip() + "\n\n"
    files.write_text(README, FIRST_TABLE.sub(lambda _: new, readme, count=1))


def unknown(runs: Iterable[Path]) -> list[Path]:
    """The evaluated runs at and below some folders whose weights have no rows yet."""
    known = set(pd.read_parquet(KEPT / "evals.parquet")["weights_sha256"]) if KEPT.exists() else set()
    found = [path.parent for folder in runs for path in sorted(folder.rglob("evals.parquet"))]
    return [run for run in found if not set(pd.read_parquet(run / "evals.parquet")["weights_sha256"]) & known]


def few(folder: Path) -> Path:
    """A new folder with the rows of the models that the README has."""
    folder.mkdir()
    for path in KEPT.glob("*.parquet"):
        pq.write_table(pq.read_table(path, filters=[("model", "in", IN_README)]), folder / path.name)
    return folder


def rows() -> Rows:
    """All that is kept."""
    return Rows(*(pd.read_parquet(KEPT / f"{name}.parquet") for name in ("evals", "eval_probes", "eval_documents")))


def page(kept: Rows, answer: str, notes: str, leaderboard: str) -> str:
    """The page, from the kept rows, the report's answer and leaderboard, and the text written by hand."""
    parts = [
        beginning(kept.losses),
        f"**{answer}**",
        notes,
        "## The table",
        explained(kept),
        linked(kept),
        f"![Loss against length]({PICTURE})",
        PICTURED,
        "## Ranks",
        RANKS,
        ranks(leaderboard),
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
        machine=values("training_machine"),
        dates=first if first == last else f"{first} to {last}",
        commits=values("training_commit"),
    )


def explained(kept: Rows) -> str:
    """What the table's columns are."""
    losses = kept.losses
    needles = int(kept.probes.groupby(["run", "factor"])["n_answers"].sum().max())
    key = int(losses.loc[(losses["factor"] == LONGEST) & (losses["protocol"] == PROTOCOL), "n_key"].max())
    return TABLE.format(longest=LONGEST, needles=needles, key=key, margin=0.98 / needles**0.5)


def ranks(leaderboard: str) -> str:
    """The part of a report's leaderboard for the page's protocol."""
    parts = re.split(r"^## .*, protocol (.*)\n", leaderboard, flags=re.MULTILINE)
    return below(dict(zip(parts[1::2], parts[2::2], strict=True))[PROTOCOL])


def table(kept: Rows) -> pd.DataFrame:
    """A row for each model, the lowest loss at the greatest length first."""
    own = kept.losses[kept.losses["protocol"] == PROTOCOL]
    mean = own.pivot_table(index="model", columns="factor", values="loss", dropna=False)
    worst = own[own["factor"] == LONGEST].groupby("model")["loss"].max()
    found = kept.probes.pivot_table(index="model", columns="factor", values="accuracy")
    columns = {f"{factor:g}x": mean[factor].map(_number) for factor in mean}
    columns |= {"Worst": worst.map(_number), "Key tokens": pd.Series(gains(kept))}
    columns |= {f"Needle {factor}x": found[factor].map(_share) for factor in (1, 4, LONGEST)}
    seeds = own.groupby("model")["seed"].nunique()
    if max(seeds) == 1:
        del columns["Worst"]
    if len(set(seeds)) > 1:
        columns["Seeds"] = seeds
    shown = pd.DataFrame(columns).loc[mean.sort_values(LONGEST).index]
    return shown.fillna("n/a").rename_axis("Model").reset_index()


def linked(kept: Rows) -> str:
    """The table in Markdown, with each model's name leading to its encoding in the catalogue."""
    found = Table(table(kept)).markdown()
    for model, encoding in kept.losses.groupby("model")["encoding"].first().items():
        found = found.replace(f"\n| {model} |", f"\n| [{model}](../encodings.md#{encoding}) |")
    return found


def gains(kept: Rows) -> dict[str, str]:
    """By model: the loss of key tokens at the greatest length minus their control's, with its interval."""
    here = kept.documents[(kept.documents["protocol"] == PROTOCOL) & (kept.documents["factor"] == LONGEST)]
    here = here[here["loss"].notna()]  # a model that does not reach this length has none
    gain = here["n_key"] * (here["key_loss"] - here["key_control_loss"])
    found = {}
    for model, mine in here.assign(gain=gain.fillna(0)).groupby("model"):
        sums = mine.pivot_table(index="run", columns="document", values=["gain", "n_key"], aggfunc="sum")
        gained = estimate(sums["gain"].to_numpy(), sums["n_key"].iloc[0].to_numpy())
        found[str(model)] = (gained if len(sums) >= FEWEST_SEEDS else gained.of_these_runs()).interval().text()
    return found


def in_readme(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns of the page's table that the README has."""
    few = shown[shown["Model"].isin(IN_README)]
    return few[["Model", "1x", "2x", "4x", "8x", "16x", "Needle 1x", "Needle 16x"]]


def _number(value: float) -> str:
    return "n/a" if pd.isna(value) else f"{value:.3f}"


def _share(value: float) -> str:
    return "n/a" if pd.isna(value) else f"{value:.2f}"


if __name__ == "__main__":
    main(map(Path, sys.argv[1:]))
