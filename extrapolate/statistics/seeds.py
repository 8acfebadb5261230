"""The seeds that a comparison is based on: models are compared only on seeds that they share."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from extrapolate.folders import join_names
from extrapolate.statistics import student_t


def seeds_of(rows: pd.DataFrame) -> tuple[int, ...]:
    """The known training seeds of rows, in order. Imported checkpoints have none."""
    return tuple(sorted(int(seed) for seed in rows["seed"].dropna().unique()))


def shared(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds that both models have; if those of one are unknown, all of the other."""
    if not first or not second:
        return first or second
    return tuple(seed for seed in first if seed in second)


def on_own_seeds(
    rows: pd.DataFrame, what: str, at: Sequence[str] = ("factor",), more: str = "factors and extensions"
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the seeds that each model has at all of its lengths, and warnings.

    Means over different seeds would show the seeds rather than the lengths. A model without such a seed keeps all rows.
    Models may differ in their seeds, since two of them are compared on those that both have. `what` begins a warning.
    at: the columns that, with the model, separate means; more: what else to evaluate alike, in words.
    """
    known = rows.loc[rows["seed"].notna(), ["model", *at, "seed"]]
    own: dict[str, tuple[int, ...]] = {}
    fewer, none = [], []
    for name, group in known.groupby("model", sort=False):
        model, held = str(name), [set(seeds_of(there)) for _, there in group.groupby([*at], dropna=False)]
        common = set.intersection(*held)
        own[model] = tuple(sorted(common)) or seeds_of(group)
        if not common:
            none.append(model)
        elif common != set.union(*held):
            fewer.append(f"{model}: shown is {in_words(own[model])}")
    kept = rows["seed"].isna()
    for model, seeds in own.items():
        kept |= (rows["model"] == model) & rows["seed"].isin(seeds)
    alike = f"evaluate every run with the same {more}"
    warnings = [f"{what}: some seeds were not evaluated at every length ({'; '.join(fewer)}); {alike}"] if fewer else []
    if none:
        warnings.append(
            f"{what}: no seed of {join_names(none)} was evaluated at every length, so its differences between lengths "
            f"are also differences between seeds; {alike}"
        )
    if len(set(own.values())) > 1:
        having = "; ".join(f"{model}: {in_words(seeds)}" for model, seeds in own.items())
        warnings.append(
            f"{what}: models have different seeds ({having}); each is shown with its own, and two are compared on the "
            "seeds that both have"
        )
    return rows[kept], warnings


def between_tables(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """A warning if tables show different seeds of a model. tables: by their names in words."""
    held: dict[str, dict[str, str]] = {}
    for what, rows in tables.items():
        for model, group in rows.groupby("model", sort=False):
            if seeds := seeds_of(group):
                held.setdefault(str(model), {})[what] = in_words(seeds)
    unlike = {model: said for model, said in held.items() if len(set(said.values())) > 1}
    if not unlike:
        return []
    who = "; ".join(
        f"{model}: {', '.join(f'{what} {text}' for what, text in said.items())}" for model, said in unlike.items()
    )
    return [f"tables show different seeds of the same model ({who}): evaluate every run alike"]


def incomplete_checkpoints(rows: pd.DataFrame, what: str) -> list[str]:
    """A warning if only some runs of a model have rows of a checkpoint, or of a length there: it then has no mean.

    `what` begins the warning. rows: all checkpoints of one protocol; imported ones have no known tokens.
    """
    lacking: dict[str, list[str]] = {}
    known = rows[rows["tokens"].notna()]
    for model, own in known.groupby("model", sort=False):
        for (_, tokens), group in own.groupby(["step", "tokens"]):
            if lacks_runs(group, own):
                lacking.setdefault(str(model), []).append(f"{tokens:,}")
    if not lacking:
        return []
    who = "; ".join(f"{model} at {', '.join(tokens)} tokens" for model, tokens in lacking.items())
    return [
        f"{what}: left out checkpoints at which not all seeds of a model were evaluated ({who}); evaluate every run "
        "with the same `checkpoint` and `factors`"
    ]


def lacks_runs(group: pd.DataFrame, own: pd.DataFrame) -> bool:
    """Whether the rows of a checkpoint lack a run of the model's, at any of their lengths."""
    return bool(group.groupby("factor")["run"].nunique().min() < own["run"].nunique())


def counts(rows: pd.DataFrame) -> "pd.Series[int]":
    """The number of seeds of each model; an unknown seed counts as one."""
    return rows.groupby("model")["seed"].nunique(dropna=False)


def bands(rows: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """`model`, `factor`, `low`, `high`: the interval of each mean loss over seeds, nats per target.

    Student's t over the seeds' losses, with one degree of freedom less than seeds. The interval is about other seeds on
    these targets. There is none for a single seed, or if a loss is missing or infinite.
    """
    found = rows.groupby(["model", "factor"])["loss"].agg(["mean", "std", "count", "size"])
    found = found[(found["count"] > 1) & (found["count"] == found["size"]) & np.isfinite(found["std"])]
    t = [student_t.quantile((1 - confidence) / 2, int(count) - 1) for count in found["count"]]
    reach = np.array(t) * found["std"] / np.sqrt(found["count"])
    return pd.DataFrame({"low": found["mean"] - reach, "high": found["mean"] + reach}).reset_index()


def around(rows: pd.DataFrame, at: str = "factor") -> pd.DataFrame:
    """The range over seeds, by model and one column: `least` and `most`, nats per target."""
    losses = rows.groupby(["model", at])["loss"]
    return pd.DataFrame({"least": losses.min(), "most": losses.max()})


def in_words(seeds: tuple[int, ...]) -> str:
    """`seed 0`, `seeds 0, 1`, `seed unknown`."""
    if not seeds:
        return "seed unknown"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
