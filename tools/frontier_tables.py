"""The tables of docs/results/frontier.md, from kept rows, and what is said of them."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from studies import RESULTS

from extrapolate.names import AS_TRAINED
from extrapolate.reports.page import Table
from extrapolate.runs.training_config import RATES
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import CONTROL, comparable_rows, comparisons
from extrapolate.statistics.intervals import FEWEST_SEEDS, estimate
from extrapolate.statistics.ranks import ranks_of
from extrapolate.statistics.sums import settings

TRAININGS = {"adamw": "AdamW", "twice-as-long": "L = 128", "twice-as-wide": "256 channels"}  # the study's scales
KINDS = {  # of rows, and where they are kept
    "models": RESULTS / "frontier",
    "extensions": RESULTS / "frontier-extensions",
    "novels": RESULTS / "frontier-novels",
    **{scale: RESULTS / f"frontier-{scale}" for scale in (*TRAININGS, "rates", "optimum")},
}
PROTOCOL, LONGEST, FIRST = "fixed-target", 16, "RoPE"
BESIDE = """\
**Rise** is the loss at {longest}x minus that at 1x. The other columns are differences in loss from {first} at each
length; below 0, the model is better. All are in nats, each with its own 95 % interval over documents and seeds.
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
{runs} of these runs on {documents} English novels that were used for no choice. They are those of 33 novels that the
corpus above does not contain: each shares at most 200 sequences of ten words with any of its books. The models with
SSMax or QK-norm, RoPE with a base of 500,000 and p-RoPE with p = 0.25 were trained later, and are not among them.

{tokens} tokens are scored at every length; there are too few novels for intervals. Spearman's rank correlation of the
models' losses on both texts is {near:.3f} at 1x and {far:.3f} at {longest}x. **Rise** is the loss at {longest}x minus
that at 1x. Models whose place at {longest}x differs by {moved} or more: {movers}.

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
TRAINED_OTHERWISE = """\
Some of these models were trained again: {first}, ExPE, and the best of each family. Correlations are Spearman's, of the
losses at {longest}x with those above. AdamW replaces Muon, which by default trains the matrices of the blocks, and has
its own default learning rate. The commands below each table train, and add the rows to this page.
"""
COMMANDS = """\
```sh
extrapolate sweep examples/studies/frontier.toml --scale {scale} {encodings} --out sweeps/{scale}
python tools/frontier.py {scale} sweeps/{scale}/runs
```
"""
CHOSEN_RATES = """\
{first} and {others} others, each trained with three learning rates and the first seed. **Validation** is the loss at
the end of the training, and **Best** the rate with the lowest. The last columns are of that rate; the first are those
of the table at the top, with the study's {default:g}, for this seed. Where both rates are the same, they differ because
the processors do.

```sh
extrapolate sweep examples/studies/frontier.toml --scale rates {encodings} --out sweeps/rates
python tools/frontier.py rates sweeps/rates/runs
```
"""
OPTIMUM = """\
The same models trained on [Markov chains](../synthetic.md), a new one in every document, with as many tokens {seeds}.
**Gain captured** is the share of what a context of {longest} L could lower the loss by from 1x that the model takes: 1
if it uses all of its context, 0 if none, and negative if the context harms it. Losses are those of the same targets.

```sh
extrapolate sweep examples/studies/frontier.toml --scale optimum {encodings} --out sweeps/optimum
python tools/frontier.py optimum sweeps/optimum/runs
```
"""


class Rows(NamedTuple):
    """Of all runs: losses by length, probes, and losses by document."""

    losses: pd.DataFrame
    probes: pd.DataFrame
    documents: pd.DataFrame


def rows(kept: Path) -> Rows:
    """All that is kept there."""
    found = {path.stem: pd.read_parquet(path) for path in kept.glob("*.parquet")}
    return Rows(found["evals"], found.get("probes", pd.DataFrame()), found["eval_documents"])


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


def needles(probes: pd.DataFrame) -> pd.DataFrame:
    """The rows of needles at L, and of those out of reach for a model that sees the last L tokens alone."""
    return probes[(probes["factor"] == 1) | (probes["depth"] < 1)]


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


def beside_first(kept: Rows) -> pd.DataFrame:
    """Of every model the rise to the greatest length, and the differences from FIRST, the lowest there first."""
    documents = at(kept, (1, 2, 4, LONGEST))
    pairs = comparisons(documents, controls=False, reference=FIRST)
    controls = comparisons(documents[documents["factor"] == LONGEST], pairs=False)
    found = [
        {"Model": one.model, "factor": "Rise" if one.other == CONTROL else f"{one.factor:g}x", "of": one.difference}
        for one in (*pairs, *controls)
        if one.difference is not None
    ]
    shown = pd.DataFrame(found).pivot(index="Model", columns="factor", values="of")
    far = shown[f"{LONGEST}x"].map(lambda of: 0.0 if pd.isna(of) else of.mean)  # of FIRST itself
    far[shown["Rise"].isna()] = float("inf")  # what does not reach that length
    columns = ["Rise", "1x", "2x", "4x", f"{LONGEST}x"]
    texts = shown.loc[far.sort_values().index, columns].map(lambda of: "" if pd.isna(of) else of.text())
    return texts.reset_index()


def ranked(kept: Rows) -> pd.DataFrame:
    """The rank of every model at each length, with its interval, the first at the greatest length first."""
    own = kept.losses[kept.losses["protocol"] == PROTOCOL]
    mean = own.groupby(["factor", "model"])["loss"].agg(strict_mean)
    found = {one.factor: ranks_of(one, mean[one.factor]) for one in settings(at(kept, own["factor"].unique()))}
    texts = {f"{factor:g}x": {model: rank.text() for model, rank in here.items()} for factor, here in found.items()}
    order = mean[LONGEST].sort_index().sort_values(kind="stable").index  # a model without a loss there comes last
    return pd.DataFrame(texts).loc[order].fillna("n/a").rename_axis("Model").reset_index()


def at(kept: Rows, factors: Sequence[float], extensions: bool = False) -> pd.DataFrame:
    """The rows by document at these lengths, of the page's protocol."""
    documents, _ = comparable_rows(kept.losses, kept.documents, extensions)
    return documents[(documents["protocol"] == PROTOCOL) & documents["factor"].isin(factors)]


def extended(kept: Path) -> list[str]:
    """What extensions change, in Markdown."""
    own = rows(kept)
    plain = own.losses[own.losses["extension"] == AS_TRAINED].groupby("run")["model"].first()
    of = own.losses.assign(plain=own.losses["run"].map(plain)).groupby("model")["plain"].first()
    documents = at(own, (LONGEST,), extensions=True)
    changes = {
        one.model: one.difference.text()
        for model in dict.fromkeys(of)
        for one in comparisons(documents, controls=False, reference=model)
        if of[one.model] == model and one.difference is not None
    }
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
    here, there = (of_models(one) for one in (losses[losses["model"].isin(found["model"])], found))
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


def trained_otherwise(kept: Rows, others: Mapping[str, Rows]) -> list[str]:
    """The same models trained at other scales of the study, beside those of the page, in Markdown."""
    parts = ["## Trained otherwise", TRAINED_OTHERWISE.format(first=FIRST, longest=LONGEST)]
    for scale, other in others.items():
        name, theirs = TRAININGS[scale], by_encoding(other)
        own, far = by_encoding(of_same_seeds(kept, other)).loc[sorted(theirs.index)], f"{LONGEST}x"
        ranks, their_ranks = (frame[far].astype(float).rank() for frame in (own, theirs))
        both = own.loc[ranks.sort_values().index].join(theirs.drop(columns="Model").add_suffix(f", {name}"))
        encodings = " ".join(f"--pe {encoding}" for encoding in own.index)
        seeds = other.losses["seed"].nunique()
        parts += [
            f"### {name}: rank correlation {ranks.corr(their_ranks):.2f}, {seeds} seed{'s' * (seeds > 1)}",
            Table(both).markdown(),
            COMMANDS.format(scale=scale, encodings=encodings),
        ]
    return parts


def learning_rates(kept: Rows, chosen: Rows, tried: pd.DataFrame) -> list[str]:
    """Models with the best of several learning rates beside the same with the study's, in Markdown."""
    same = of_same_seeds(kept, chosen)
    own, theirs = (by_encoding(one).drop(columns="Needle 1x") for one in (same, chosen))
    losses = tried.pivot(index="Model", columns="Learning rate", values="Validation loss")
    best = losses.idxmin(axis=1).map("{:g}".format)
    losses = losses.map(_number).rename(columns="Validation, {:g}".format).assign(Best=best)
    both = own.loc[theirs.index].join(losses).join(theirs.drop(columns="Model").add_suffix(", best rate"))
    far = both[f"{LONGEST}x"].astype(float)
    text = CHOSEN_RATES.format(
        first=FIRST, others=len(both) - 1, default=RATES["muon"],
        encodings=" ".join(f"--pe {one}" for one in both.index),
    )  # fmt: skip
    return ["## Learning rates", text, Table(both.loc[far.sort_values().index]).markdown()]


def known_optimum(losses: pd.DataFrame) -> list[str]:
    """Losses on text whose lowest possible loss is known, and the share of the possible gain, in Markdown."""
    own = losses[losses["protocol"] == PROTOCOL]
    mean = own.pivot_table(index="model", columns="factor", values="loss")
    best = own.groupby("factor")["optimum_loss"].first()
    captured = (mean[1] - mean[LONGEST]) / (best[1] - best[LONGEST])
    shown = mean.sort_values(LONGEST).rename(columns="{:g}x".format).map(_number)
    shown["Gain captured"] = captured.map("{:.2f}".format)
    shown.loc["optimum"] = [*best.map(_number), ""]
    seeds = own["seed"].nunique()
    text = OPTIMUM.format(
        seeds="and one seed" if seeds == 1 else f"and {seeds} seeds", longest=LONGEST,
        encodings=" ".join(f"--pe {one}" for one in sorted(own["encoding"].unique())),
    )  # fmt: skip
    return ["## Text with a known optimum", text, Table(shown.rename_axis("Model").reset_index()).markdown()]


def of_same_seeds(kept: Rows, other: Rows) -> Rows:
    """The losses and probes of the runs whose seeds the others have."""
    seeds = set(other.losses["seed"])
    losses, probes = (part[part["seed"].isin(seeds)] for part in (kept.losses, kept.probes))
    return kept._replace(losses=losses, probes=probes)


def by_encoding(kept: Rows) -> pd.DataFrame:
    """Of each encoding's plain model: its name, and its losses and needles at L and at the greatest length."""
    found = table(kept).assign(short=lambda frame: frame["Model"].str.len()).sort_values("short")
    encoding = kept.losses.groupby("model")["encoding"].first()
    found.index = pd.Index(found["Model"].map(encoding), name="encoding")
    return found[~found.index.duplicated()][["Model", "1x", f"{LONGEST}x", "Needle 1x", f"Needle {LONGEST}x"]]


def of_models(losses: pd.DataFrame) -> pd.DataFrame:
    """Of each model, the mean loss at L, at the greatest length, and how much more that is than its control."""
    own = losses[losses["protocol"] == PROTOCOL]
    mean = own.groupby(["model", "factor"])[["loss", "control_loss"]].mean().unstack()
    far = mean["loss"][LONGEST]
    return pd.DataFrame({"1x": mean["loss"][1], f"{LONGEST}x": far, "Rise": far - mean["control_loss"][LONGEST]})


def _number(value: float) -> str:
    return "n/a" if pd.isna(value) else f"{value:.3f}"


def _shares(of_seeds: pd.Series) -> str:
    mean, least, most = (f"{share:.2f}" for share in (of_seeds.mean(), of_seeds.min(), of_seeds.max()))
    return "n/a" if of_seeds.isna().any() else mean if least == most else f"{mean} ({least} to {most})"
