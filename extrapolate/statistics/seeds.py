"""The seeds that a comparison is based on: models are compared only on seeds that they share."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from extrapolate.statistics import student_t


def seeds_of(rows: pd.DataFrame) -> tuple[int, ...]:
    """The known training seeds of rows, in order. Imported checkpoints have none."""
    return tuple(sorted(int(seed) for seed in rows["seed"].dropna().unique()))


def shared(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds that both models have; if those of one are unknown, all of the other."""
    if not first or not second:
        return first or second
    return tuple(seed for seed in first if seed in second)


def of_seeds(rows: pd.DataFrame, seeds: Iterable[int]) -> pd.DataFrame:
    """The rows with these seeds or an unknown one."""
    return rows[rows["seed"].isna() | rows["seed"].isin(list(seeds))]


def on_shared_seeds(
    rows: pd.DataFrame, what: str, at: Sequence[str] = ("factor",), more: str = "factors and extensions"
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the seeds that every model has at every length, and a warning if that leaves out rows.

    Means over different seeds would show the seeds rather than the models. If no seed is shared by all models, all rows
    are kept, and the warning says so. `what` begins the warning. at: the columns that, with the model, separate means;
    more: what else to evaluate alike, in words.
    """
    known = rows.loc[rows["seed"].notna(), ["model", *at, "seed"]]
    held = {key: seeds_of(mine) for key, mine in known.groupby(["model", *at], dropna=False)}
    common = set.intersection(*map(set, held.values())) if held else set()
    if all(set(seeds) == common for seeds in held.values()):
        return rows, []
    models = {str(model): in_words(seeds_of(mine)) for model, mine in known.groupby("model", sort=False)}
    having = "; ".join(f"{model}: {seeds}" for model, seeds in models.items())
    if not common:
        return rows, [
            f"{what}: no seed is shared by all models at all lengths ({having}); differences between rows are also "
            "differences between seeds. Train and evaluate every model with the same seeds"
        ]
    return of_seeds(rows, common), [
        f"{what}: models have different seeds at some lengths ({having}); shown is {in_words(tuple(sorted(common)))}, "
        f"which all have. To show more, evaluate every model with the same seeds, {more}"
    ]


def between_tables(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """A warning if tables show different seeds of a model. tables: by their names in words."""
    held: dict[str, dict[str, str]] = {}
    for what, rows in tables.items():
        for model, mine in rows.groupby("model", sort=False):
            if seeds := seeds_of(mine):
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
        for (_, tokens), mine in own.groupby(["step", "tokens"]):
            if lacks_runs(mine, own):
                lacking.setdefault(str(model), []).append(f"{tokens:,}")
    if not lacking:
        return []
    who = "; ".join(f"{model} at {', '.join(tokens)} tokens" for model, tokens in lacking.items())
    return [
        f"{what}: left out checkpoints at which not all seeds of a model were evaluated ({who}); evaluate every run "
        "with the same `checkpoint` and `factors`"
    ]


def lacks_runs(mine: pd.DataFrame, own: pd.DataFrame) -> bool:
    """Whether the rows of a checkpoint lack a run of the model's, at any of their lengths."""
    return bool(mine.groupby("factor")["run"].nunique().min() < own["run"].nunique())


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
