"""Makes docs/results/budget.md: how verdicts change with the tokens of training.

From the rows in docs/results/budget/, of runs of examples/studies/budget.toml, and from those in
docs/results/frontier/, which have 1 million tokens. The page also has the text in tools/budget.md.

python tools/budget.py [RUNS ...] first adds the rows of evaluated runs, or of folders of them.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pandas as pd
from frontier import KINDS, LONGEST, PROTOCOL, Rows, keep, needles, rows, unknown
from matplotlib.figure import Figure
from studies import RESULTS

from extrapolate import files
from extrapolate.reports.page import Table
from extrapolate.reports.styles import COLOURS
from extrapolate.results.verdicts import ORDERED
from extrapolate.statistics.comparison import Comparison, comparable_rows, of_pairs
from extrapolate.statistics.sums import settings

KEPT, PICTURE, NOTES = RESULTS / "budget", "studies/budget.png", Path(__file__).parent / "budget.md"
FIRST = "RoPE"
MODELS = (FIRST, "ExPE", "ALiBi", "NoPE", "KERPLE", "Stick-breaking")
SHOWN = (4, LONGEST)  # factors
LADDER = 3  # models at least, for a budget to count in the table of verdicts
BEGINNING = """\
# How many tokens until verdicts stop changing?

`python tools/budget.py` generates this page from kept rows. {runs} runs of [the
study](../../examples/studies/budget.toml) were trained on {budgets} million tokens of English books at L = 64, each
with its whole schedule. The models of a million tokens are those of [every encoding on English books](frontier.md).
Trained on {machine}, {dates}, with commits {commits}, in fp32.
"""
VERDICTS = """\
## Verdicts from one budget to the next

All pairs of the models that both budgets have. A verdict is **kept** if both budgets call the same model better, or
both call neither; **reversed** if they call different models better; the others became decided or undecided.
"""
BRANCHES = """\
## Half a budget, and a run of its own

Where there are both a model that a longer run keeps of half its budget and a run of that budget with the same seed: the
loss of the first minus that of the second, nats.
"""


def main(*runs: str) -> None:
    """Adds rows, and writes the page and its picture."""
    if new := unknown(KEPT, map(Path, runs)):
        keep(KEPT, new)
    files.write_text(RESULTS / "budget.md", page(all_rows(), RESULTS / PICTURE))


def page(every: Rows, drawn: Path) -> str:
    """The page; draws its picture."""
    chosen = {millions: of_budget(every, millions) for millions in budgets(every)}
    found = {millions: list(compared(here)) for millions, here in chosen.items()}
    picture(found).savefig(drawn, dpi=150)
    parts = [
        beginning(every.losses[every.losses["run"].isin(rows(KEPT).losses["run"])]),
        NOTES.read_text(encoding="utf-8").strip(),
        f"![Difference from {FIRST} against tokens]({PICTURE})",
        f"Loss at {LONGEST}x minus {FIRST}'s, nats, with its 95 % interval over documents, and over seeds where there "
        "are several. Below 0, the model is better.",
        "## Losses and differences by budget",
        Table(losses_by_budget(chosen, found)).markdown(),
        VERDICTS.strip(),
        Table(verdicts(found)).markdown(),
        BRANCHES.strip(),
        Table(branches(every)).markdown(),
    ]
    return "\n\n".join(parts) + "\n"


def all_rows() -> Rows:
    """The rows of both folders, of MODELS and of weights whose learning rate had fallen, with `millions` of tokens."""
    joined = Rows(*(pd.concat(both) for both in zip(rows(KINDS["models"]), rows(KEPT), strict=True)))
    own = joined.losses[joined.losses["model"].isin(MODELS) & ~joined.losses["annealed"].eq(False)]
    own = own.assign(millions=(own["tokens"] / 1e6).map(lambda millions: float(f"{millions:.2g}")))
    steps = own[["run", "step"]].drop_duplicates()
    return Rows(own, *(part.merge(steps, on=["run", "step"]) for part in joined[1:]))


def budgets(every: Rows) -> list[float]:
    """The budgets, in millions of tokens, that some run has."""
    return sorted(set(every.losses.loc[at_end(every.losses), "millions"]))


def at_end(losses: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows are of the end of their run, rather than of half of it."""
    return losses["step"] == losses.groupby("run")["step"].transform("max")


def of_budget(every: Rows, millions: float) -> Rows:
    """The rows of the runs of one budget."""
    own = every.losses[at_end(every.losses) & (every.losses["millions"] == millions)]
    steps = own[["run", "step"]].drop_duplicates()
    return Rows(own, *(part.merge(steps, on=["run", "step"]) for part in every[1:]))


def compared(here: Rows) -> Iterator[Comparison]:
    """Every model against those before it in MODELS, at every factor shown."""
    documents, _ = comparable_rows(here.losses, here.documents, extensions=False)
    documents = documents[(documents["protocol"] == PROTOCOL) & documents["factor"].isin(SHOWN)]
    return of_pairs(settings(documents), [(other, one) for one, other in combinations(MODELS, 2)])


def between(found: list[Comparison], model: str, other: str, factor: float) -> Comparison | None:
    """The comparison of two models, in this order."""
    return next((one for one in found if (one.model, one.other, one.factor) == (model, other, factor)), None)


def beginning(losses: pd.DataFrame) -> str:
    """The facts of the study's rows."""
    last = losses.groupby("run")["tokens"].max()
    first, end = (f"{losses['evaluated_at'].agg(which):%Y-%m-%d}" for which in ("min", "max"))
    return BEGINNING.strip().format(
        runs=len(last),
        budgets=", ".join(f"{millions:g}" for millions in sorted({round(tokens / 1e6) for tokens in last})),
        machine=" and on ".join(sorted(set(losses["training_machine"]))),
        dates=first if first == end else f"{first} to {end}",
        commits=", ".join(sorted(set(losses["training_commit"]))),
    )


def losses_by_budget(chosen: dict[float, Rows], found: dict[float, list[Comparison]]) -> pd.DataFrame:
    """A row for each model and budget: losses, differences from FIRST, and needles."""
    lines = []
    for model in MODELS:
        for millions, here in chosen.items():
            own = here.losses[(here.losses["model"] == model) & (here.losses["protocol"] == PROTOCOL)]
            if own.empty:
                continue
            mean = own.groupby("factor")["loss"].mean()
            line = {"Model": model, "Million tokens": f"{millions:g}", "Seeds": str(own["seed"].nunique())}
            line |= {f"{factor}x": f"{mean[factor]:.3f}" for factor in (1, *SHOWN)}
            for factor in SHOWN:
                one = between(found[millions], model, FIRST, factor)
                line[f"Less {FIRST}, {factor}x"] = one.difference.text() if one and one.difference else ""
            share = needles(here.probes[here.probes["model"] == model]).groupby("factor")["accuracy"].mean()
            line[f"Needle {LONGEST}x"] = f"{share[LONGEST]:.2f}" if LONGEST in share else ""
            lines.append(line)
    return pd.DataFrame(lines)


def verdicts(found: dict[float, list[Comparison]]) -> pd.DataFrame:
    """How many verdicts are kept from each budget to the next, and which pairs are reversed."""
    lines = []
    ladder = {
        millions: every for millions, every in found.items() if len(every) >= len(SHOWN) * LADDER * (LADDER - 1) / 2
    }
    for factor in SHOWN:
        for (before, first), (after, then) in pairwise(ladder.items()):
            counts: Counter[str] = Counter()
            turned = []
            for model, other in combinations(MODELS, 2):
                pair = [between(every, other, model, factor) for every in (first, then)]
                both = [one.word if one.word in ORDERED else None for one in pair if one is not None]
                if len(both) < 2:
                    continue
                kind = "Kept" if both[0] == both[1] else "Reversed" if None not in both else "Changed"
                counts[kind] += 1
                turned += [f"{model}, {other}"] if kind != "Kept" else []
            lines.append(
                {"Factor": f"{factor}x", "Million tokens": f"{before:g} to {after:g}"}
                | {kind: str(counts[kind]) for kind in ("Kept", "Reversed", "Changed")}
                | {"Not kept": "; ".join(turned)}
            )
    return pd.DataFrame(lines)


def branches(every: Rows) -> pd.DataFrame:
    """The loss of half of a longer run less that of a run with this budget, at the factors shown."""
    own = every.losses[every.losses["protocol"] == PROTOCOL]
    end, key = at_end(own), ["model", "seed", "millions", "factor"]
    half = own["step"] == own.groupby("run")["step"].transform("max") // 2  # the oldest runs kept a quarter too
    both = own[half].merge(own[end], on=key, suffixes=("", "_own"))
    both = both.assign(change=both["loss"] - both["loss_own"])
    shown = both.pivot_table(index=["model", "seed", "millions"], columns="factor", values="change")
    shown = shown[[factor for factor in (1, *SHOWN) if factor in shown]].map("{:+.3f}".format)
    names = {"model": "Model", "seed": "Seed", "millions": "Million tokens"}
    return shown.rename(columns="{:g}x".format).reset_index().rename(columns=names).astype(str)


def picture(found: dict[float, list[Comparison]]) -> Figure:
    """The difference of each model from FIRST at the greatest length, against the tokens."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=COLOURS[0], label=FIRST)
    for colour, model in zip(COLOURS[1:], MODELS[1:], strict=True):
        points = []
        for millions, every in found.items():
            one = between(every, model, FIRST, LONGEST)
            if one is not None and (of := one.difference) is not None:
                points.append((millions, of.mean, of.low, of.high))
        if points:
            x, mean, low, high = zip(*points, strict=True)
            axes.plot(x, mean, "o-", color=colour, label=model)
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ticks = list(found)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{millions:g}" for millions in ticks])
    axes.set_xlabel("million tokens of training")
    axes.set_ylabel(f"loss at {LONGEST}x minus {FIRST}'s, nats")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
