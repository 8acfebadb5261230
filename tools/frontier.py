"""Makes docs/results/frontier.md, and the README's table, from the rows in docs/results/frontier/ and beside it.

The page also has the text in tools/frontier.md.

python tools/frontier.py [KIND RUNS ...] first adds the rows of evaluated runs, or of folders of them. KIND is `models`
for runs of examples/studies/frontier.toml, `extensions` for some of them evaluated with extensions, and `novels` for
all of them evaluated on other books.
"""

import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from studies import RESULTS, below, chapters

import extrapolate as xt
from extrapolate import files
from extrapolate.names import AS_TRAINED
from extrapolate.reports.page import Table
from extrapolate.statistics.comparison import comparable_rows, comparisons
from extrapolate.statistics.intervals import FEWEST_SEEDS, estimate

KINDS = {
    "models": RESULTS / "frontier",
    "extensions": RESULTS / "frontier-extensions",
    "novels": RESULTS / "frontier-novels",
}
KEPT, PICTURE, README_PICTURE = KINDS["models"], "studies/frontier.png", "studies/frontier-ten.png"
NOTES = Path(__file__).parent / "frontier.md"
PROTOCOL, LONGEST, FIRST = "fixed-target", 16, "RoPE"
README, FIRST_TABLE = RESULTS.parents[1] / "README.md", re.compile(r"^\| Model \|.*?\n\n", re.MULTILINE | re.DOTALL)
IN_README = ("Stick-breaking", "FoX", "KERPLE", "RNoPE", "ALiBi", "FIRE", "NoPE", "T5", "ExPE", "RoPE")
BEGINNING = """\
# Every encoding on English books

`python tools/frontier.py` generates this page from the kept results of the study
[`examples/studies/frontier.toml`](../../examples/studies/frontier.toml), in `docs/results/frontier/` and beside it:
{models} models of about {parameters} million parameters, {runs} runs in all, each trained on {tokens} tokens at a
training length of L = {seq_len}. The text is long English books, of which {documents} are held out for testing; a
quarter of the training windows ask for a [needle](../probes.md). All have the same sizes, the same
[recipe](../training.md) and the same learning rate; nothing was tuned for an encoding. Trained on {machine}, {dates},
with commits {commits}. What each encoding costs is on [another page](cost.md).

Put [your own encoding](../writing-an-encoding.md) into the table: it is trained as the others were, with all three
seeds, and reported with these rows. For `examples/my_encoding.py:LogBias` that took 7 minutes on two cores (AMD EPYC,
2026-11-26, commit af83a90febee). The second command makes the report; the third trains all {runs} runs again, which
takes about five hours on such cores.

```sh
extrapolate sweep examples/studies/frontier.toml --pe my_file.py:MyEncoding --trust-code
extrapolate report docs/results/frontier sweeps/frontier-my_file-MyEncoding --leaderboard --out report
extrapolate sweep examples/studies/frontier.toml
```
"""
TABLE = """\
Sorted by the loss at {longest}x. Losses are nats per token by `fixed-target`, which scores the same tokens
after contexts of every length; means over the seeds. **Worst** is the highest loss of a seed at {longest}x.

A **key token** is the last of a sequence of four tokens that the text had before, more than L tokens back, but not
within the last L: who copies from there predicts it ([protocols](../protocols.md)). The column is the loss of {key}
such tokens at {longest}x, minus that at 1x, with its 95 % interval: below 0, the model gains from what lies beyond L.

**Needle** is the share of needles found at 1x, 4x and {longest}x; at 4x and {longest}x, of those that lie more than L
tokens before the question, {needles} per model and seed. Guessing finds 0.06. Parentheses hold the shares of the seeds
with the fewest and the most.
"""
BESIDE = """\
The differences in loss from {first}, nats, each with its own 95 % interval over documents and seeds; below 0, the model
is better.
"""
RANKS = """\
`ev` is the evaluation length divided by L.
"""
PICTURED = """\
Thick lines are means over seeds, thin ones single seeds. Named are the models with the lowest losses at 16x, and RoPE;
all others are grey. The best control is the lowest loss of any model whose context is cut back to L.
"""


EVALUATED = "extrapolate eval-lengths extended/{}-s[0-9] --protocol fixed-target --probes needle"
EXTENDED = """\
Methods applied at inference to the trained models of {models}, with their defaults
([extensions](../extensions.md)), sorted like the table above. **Change** is the difference in loss at {longest}x from
the same model without the method, with its 95 % interval over documents and seeds. These commands make the
rows, and then this page:

```sh
mkdir extended && cp -r {copied} extended/
{commands}
python tools/frontier.py extensions extended
```
"""
OTHER_BOOKS = """\
The same {runs} runs on {documents} English novels that were used for no choice. Of 33 novels, they are those that the
corpus above has in no edition: each shares at most 200 sequences of ten words with any of its books. {tokens} tokens
are scored at every length; there are too few novels for intervals. Spearman's rank correlation of the models' losses on
both texts is {near:.3f} at 1x and {far:.3f} at {longest}x. **Rise** is the loss at {longest}x minus that at 1x. Models
whose place at {longest}x differs by {moved} or more: {movers}.

Text of your own needs a column `split`, which is `test` for the books to score and must also name others for training
and validation:

```sh
extrapolate tokenize novels.parquet --tokenizer data/books/tokenizer.json --out data/novels
cp -r sweeps/frontier/runs others && rm others/*/eval*.parquet
extrapolate eval-lengths others --data data/novels --protocol fixed-target
python tools/frontier.py novels others
```
"""
MOVED = 3  # places


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
            xt.merge([*([kept] if kept.exists() else []), *new], work / "merged", totals=True)
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(work / "merged", kept)
        answer = xt.report(KEPT, work / "report", leaderboard=True).answer
        xt.report(few(work / "few"), work / "report-few")
        for name, picture in (("report", PICTURE), ("report-few", README_PICTURE)):
            shutil.copyfile(work / name / f"loss_by_ev.{PROTOCOL}.png", RESULTS / picture)
        report = (work / "report" / "report.md").read_text(encoding="utf-8")
    notes = NOTES.read_text(encoding="utf-8").strip()
    ranked, more = ranks(chapters(report)["Leaderboard"]), beside(rows(KEPT).losses)
    files.write_text(RESULTS / "frontier.md", page(rows(KEPT), answer, notes, more, ranked))
    readme = README.read_text(encoding="utf-8")
    new = Table(in_readme(table(rows(KEPT)))).markdown().strip() + "\n\n"
    files.write_text(README, FIRST_TABLE.sub(lambda _: new, readme, count=1))


def unknown(kept: Path, runs: Iterable[Path]) -> list[Path]:
    """The evaluated runs at and below some folders that have rows which are not kept yet."""

    def settings(folder: Path) -> set[tuple[str, str]]:
        found = pd.read_parquet(folder / "evals.parquet", columns=["weights_sha256", "extension"])
        return set(found.itertuples(index=False, name=None))

    known = settings(kept) if kept.exists() else set()
    found = [path.parent for folder in runs for path in sorted(folder.rglob("evals.parquet"))]
    return [run for run in found if settings(run) - known]


def few(folder: Path) -> Path:
    """A new folder with the rows of the models that the README has."""
    folder.mkdir()
    for path in KEPT.glob("*.parquet"):
        pq.write_table(pq.read_table(path, filters=[("model", "in", IN_README)]), folder / path.name)
    return folder


def rows(kept: Path) -> Rows:
    """All that is kept there."""
    found = {path.stem: pd.read_parquet(path) for path in kept.glob("*.parquet")}
    return Rows(found["evals"], found.get("eval_probes", pd.DataFrame()), found["eval_documents"])


def page(kept: Rows, answer: str, notes: str, more: Sequence[str], ranked: str) -> str:
    """The page, from the kept rows, the report's answer, the text written by hand, other parts, and the ranks."""
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
        "## Ranks",
        RANKS,
        ranked,
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
    asked = int(needles(kept.probes).query("factor == @LONGEST").groupby("run")["n_answers"].sum().max())
    key = int(losses.loc[(losses["factor"] == LONGEST) & (losses["protocol"] == PROTOCOL), "n_key"].max())
    return TABLE.format(longest=LONGEST, needles=asked, key=key)


def needles(probes: pd.DataFrame) -> pd.DataFrame:
    """The rows of needles at L, and of those out of reach for a model that sees the last L tokens alone."""
    return probes[(probes["factor"] == 1) | (probes["depth"] < 1)]


def ranks(leaderboard: str) -> str:
    """The part of a report's leaderboard for the page's protocol."""
    parts = re.split(r"^## .*, protocol (.*)\n", leaderboard, flags=re.MULTILINE)
    return below(dict(zip(parts[1::2], parts[2::2], strict=True))[PROTOCOL])


def beside_first(kept: Rows) -> pd.DataFrame:
    """Of every other model, the differences from FIRST at some lengths, the lowest at the greatest length first."""
    documents, _ = comparable_rows(kept.losses, kept.documents, extensions=False)
    documents = documents[(documents["protocol"] == PROTOCOL) & documents["factor"].isin((1, 4, LONGEST))]
    found = [
        {"Model": one.model, "factor": f"{one.factor:g}x", "mean": one.difference.mean, "text": one.difference.text()}
        for one in comparisons(documents, controls=False, reference=FIRST)
        if one.difference is not None
    ]
    shown = pd.DataFrame(found).pivot(index="Model", columns="factor", values=["text", "mean"])
    order = shown["mean", f"{LONGEST}x"].sort_values().index
    return shown["text"].loc[order, ["1x", "4x", f"{LONGEST}x"]].fillna("n/a").reset_index()


def table(kept: Rows) -> pd.DataFrame:
    """A row for each model, the lowest loss at the greatest length first."""
    own = kept.losses[kept.losses["protocol"] == PROTOCOL]
    mean = own.pivot_table(index="model", columns="factor", values="loss", dropna=False)
    worst = own[own["factor"] == LONGEST].groupby("model")["loss"].max()
    found = needles(kept.probes).groupby(["model", "seed", "factor"])["accuracy"].mean().unstack()
    columns = {f"{factor:g}x": mean[factor].map(_number) for factor in mean}
    columns |= {"Worst": worst.map(_number), "Key tokens": pd.Series(gains(kept))}
    columns |= {f"Needle {factor}x": found[factor].groupby("model").apply(_shares) for factor in (1, 4, LONGEST)}
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


def beside(losses: pd.DataFrame) -> list[str]:
    """The parts of the page about differences, and about the same models with extensions and on other books."""
    return [
        f"## Beside {FIRST}",
        BESIDE.format(first=FIRST),
        Table(beside_first(rows(KEPT))).markdown(),
        *extended(KINDS["extensions"]),
        *other_books(losses, rows(KINDS["novels"]).losses),
    ]


def extended(kept: Path) -> list[str]:
    """What extensions change, in Markdown."""
    own = rows(kept)
    plain = own.losses[own.losses["extension"] == AS_TRAINED].groupby("run")["model"].first()
    of = own.losses.assign(plain=own.losses["run"].map(plain)).groupby("model")["plain"].first()
    pairs = xt.compare(kept, extensions=True)
    pairs = pairs[(pairs["protocol"] == PROTOCOL) & (pairs["factor"] == LONGEST)]
    changes = {}
    for model, other, change, low, high in pairs[["model", "other", "difference", "low", "high"]].itertuples(
        index=False
    ):
        if other == of.get(model) != model:
            changes[model] = f"{change:+.3f} [{low:+.3f}, {high:+.3f}]"
        elif model == of.get(other) != other:
            changes[other] = f"{-change:+.3f} [{-high:+.3f}, {-low:+.3f}]"
    shown = table(own)
    shown.insert(6, "Change", shown["Model"].map(changes).fillna(""))
    shown = shown.drop(columns=["Worst", "Key tokens"])
    methods = own.losses[own.losses["extension"] != AS_TRAINED].groupby("encoding")["extension"].unique().explode()
    commands = [
        " \\\n  ".join(textwrap.wrap(" ".join([EVALUATED.format(encoding), *names]), 110, break_on_hyphens=False))
        for encoding, names in methods.map("--extend={}".format).groupby(level=0)
    ]
    copied = " ".join(f"sweeps/frontier/runs/{encoding}-s[0-9]" for encoding in methods.index.unique())
    text = EXTENDED.format(
        models=" and ".join(dict.fromkeys(of)), longest=LONGEST, commands="\n".join(commands), copied=copied
    )
    return ["## Extensions", text, Table(shown).markdown()]


def other_books(losses: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    """The same models' losses on other books beside those on the test books, in Markdown."""
    here, there = (of_models(one) for one in (losses, found))
    ranks = [one[f"{LONGEST}x"].rank() for one in (here, there)]
    places = (ranks[1] - ranks[0])[lambda change: change.abs() >= MOVED].sort_values()
    movers = ", ".join(f"{model} ({ranks[0][model]:.0f} to {ranks[1][model]:.0f})" for model in places.index)
    near, far = (here[column].rank().corr(there[column].rank()) for column in ("1x", f"{LONGEST}x"))
    text = OTHER_BOOKS.format(
        runs=found["weights_sha256"].nunique(), models=len(there), documents=found["n_documents"].max(), near=near,
        far=far, longest=LONGEST, moved=MOVED, movers=movers or "none", tokens=f"{found['n_targets'].max():,}",
    )  # fmt: skip
    both = here.join(there.add_suffix(", novels")).sort_values(f"{LONGEST}x").map(_number)
    return ["## Other books", text, Table(both.rename_axis("Model").reset_index()).markdown()]


def of_models(losses: pd.DataFrame) -> pd.DataFrame:
    """Of each model, the mean loss at L, at the greatest length, and how much more that is than its control."""
    own = losses[losses["protocol"] == PROTOCOL]
    mean = own.groupby(["model", "factor"])[["loss", "control_loss"]].mean().unstack()
    far = mean["loss"][LONGEST]
    return pd.DataFrame({"1x": mean["loss"][1], f"{LONGEST}x": far, "Rise": far - mean["control_loss"][LONGEST]})


def in_readme(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns of the page's table that the README has."""
    few = shown[shown["Model"].isin(IN_README)]
    few = few.replace({column: {r" \(.*": ""} for column in few if column.startswith("Needle")}, regex=True)
    return few[["Model", "1x", "2x", "4x", "8x", "16x", "Needle 1x", "Needle 16x"]]


def _number(value: float) -> str:
    return "n/a" if pd.isna(value) else f"{value:.3f}"


def _shares(of_seeds: pd.Series) -> str:
    mean, least, most = (f"{share:.2f}" for share in (of_seeds.mean(), of_seeds.min(), of_seeds.max()))
    return "n/a" if of_seeds.isna().any() else mean if least == most else f"{mean} ({least} to {most})"


if __name__ == "__main__":
    main(*sys.argv[1:])
