"""Tables of how models use position, from rows of INSPECTIONS.

Each table is about one run, extension, split and set of windows: runs are not averaged, because their heads differ.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from extrapolate.statistics.comparable import disambiguate_extensions

PLACES = ("own", "previous", "first")
LEAST = 0.5  # the least score of a head that attends to a place
NAMES = {"own": "its own token", "previous": "the previous token", "first": "the first token"}
MOST_HEADS = 5  # in a table, unless more attend by position alone
# Each row of the first table: its name, the measurement, the quantity, and whether to take the value at `at` = L.
SUMMARY = (
    ("Loss", "truncation", "loss", False),
    ("Gain from context beyond L, nats", "truncation", "gain", True),
    ("Predictions changed by it (TV)", "truncation", "tv", True),
    ("Receptive field, tokens", "receptive-field", "receptive_field", False),
    ("Attention beyond L", "attention", "beyond", False),
    ("the same, spread evenly", "attention", "uniform_beyond", False),
    ("Attention on the first token", "attention", "first", False),
    ("the same, spread evenly", "attention", "uniform_first", False),
    ("Attention on the first four tokens", "sinks", "first_four", False),
    ("Largest score of a query", "sinks", "largest_score", False),
    ("Stable rank of the keys", "sinks", "key_rank", False),
    ("Entropy of attention, nats", "attention", "entropy", False),
    ("the same, spread evenly", "attention", "uniform_entropy", False),
)

# The columns of the tables of sizes.
SIZES = {
    "embedding": "Token embedding",
    "added": "Added to it",
    "stream": "Stream",
    "value_input": "W_v reads",
    "query": "Query",
    "key": "Key",
    "value": "Value",
    "score": "Score (deviation)",
    "attention_output": "Attention adds",
    "feed_forward_output": "Feed-forward adds",
    "logit": "Logit (deviation)",
}


def by_model(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """A title and the rows of each run, extension, split and set of windows, of the run's last checkpoint."""
    frame = rows.astype({"value": float, "error": float, "at": float, "layer": "Int64", "head": "Int64"})
    frame = disambiguate_extensions(frame[frame["step"] == frame.groupby("run")["step"].transform("max")])
    splits, windows = (frame[column].nunique() > 1 for column in ("split", "targets_hash"))
    for key, group in frame.groupby(["run", "model", "split", "targets_hash"], sort=False):
        run, model, split, targets = map(str, key)
        of_windows = f"{group['n_windows'].max()} windows, {targets[:6]}"
        told = [run, *([split] if splits else []), *([of_windows] if windows else [])]
        yield f"{model} ({', '.join(told)})", group


def tables_of(group: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The tables of one model that have rows, each after what it shows."""
    known = group["value"].notna()
    near = f"{group.loc[known, 'factor'].min():g}x"
    for what, table in (
        ("by evaluation length", summary(group)),
        (f"the heads that attend most by position, at {near}", heads(group)),
        (f"use of frequencies at {near}, mean over layers and heads", frequencies(group)),
        ("attention by distance in tokens, mean over layers and heads", at_each_place(group, "attention", "mass")),
        (
            "change of predictions (TV) where the context is cut, by what is left",
            at_each_place(group, "truncation", "tv"),
        ),
        ("rise of the loss without the tokens at a distance, nats", at_each_place(group, "removal", "rise")),
        ("share of the gradient in the last tokens", at_each_place(group, "receptive-field", "cumulative")),
        (f"sizes (root mean square) at {near}, by layer", sizes(group)),
    ):
        if len(table):
            yield what, table


def measured(group: pd.DataFrame, measurement: str) -> pd.DataFrame:
    """The rows of one measurement that have a value."""
    return group[(group["measurement"] == measurement) & group["value"].notna()]


def values(group: pd.DataFrame, measurement: str, quantity: str) -> pd.DataFrame:
    """The rows of one quantity of a measurement that have a value."""
    found = measured(group, measurement)
    return found[found["quantity"] == quantity]


def nearest(found: pd.DataFrame) -> pd.DataFrame:
    """The rows at the least factor."""
    return found[found["factor"] == found["factor"].min()]


def reasons(group: pd.DataFrame) -> list[str]:
    """Why values are missing, a sentence for each reason."""
    lacking = group[group["value"].isna()]
    if lacking.empty:
        return []  # there may be no column of reasons
    return [
        f"Not measured at {', '.join(f'{factor:g}x' for factor in sorted(set(some['factor'])))}: "
        f"{', '.join(sorted(set(some['measurement'])))}. {reason}."
        for reason, some in lacking.groupby("reason")
    ]


def summary(group: pd.DataFrame) -> pd.DataFrame:
    """A column for each factor, a row for each of SUMMARY (means over layers and heads), and one that counts heads."""
    lines = []
    for name, measurement, quantity, cut in SUMMARY:
        found = values(group, measurement, quantity)
        wanted = found["at"] == found["seq_len"] if cut else found["at"].isna()
        if len(found := found[wanted]):
            cells = {factor: _cell(some) for factor, some in found.groupby("factor")}
            lines.append(pd.Series(cells, name=name))
    if len(found := positional(group)):
        counts = found.groupby("factor")["alone"].agg(lambda alone: f"{alone.sum()} of {len(alone)}")
        lines.append(counts.rename("Heads that attend by position alone"))
    return _by_factor(pd.concat(lines, axis=1).T, "At each length") if lines else pd.DataFrame()


def _cell(found: pd.DataFrame) -> str:
    """The mean over layers and heads, or a single value with its standard error."""
    if len(found) > 1:
        return f"{found['value'].mean():.3f}"
    value, error = found[["value", "error"]].iloc[0]
    if found["quantity"].iloc[0] == "receptive_field":
        return f"{value:.0f}"
    return f"{value:.3f}" + ("" if pd.isna(error) else f" ± {error:.3f}")


def positional(group: pd.DataFrame) -> pd.DataFrame:
    """For every layer and head at every factor, the place with the highest score in random tokens, and its scores.

    `alone`: whether the head attends there by position alone, which means that both scores are at least LEAST.
    """
    found = measured(group, "heads")
    if found.empty:
        return pd.DataFrame()
    wide = found.pivot(index=["factor", "layer", "head"], columns="quantity", values="value").reset_index()
    random = wide[[f"{place}_random" for place in PLACES]].to_numpy(dtype=float)
    text = wide[list(PLACES)].to_numpy(dtype=float)
    best = random.argmax(axis=1)
    rows = np.arange(len(wide))
    wide["in text"], wide["in random tokens"] = text[rows, best], random[rows, best]
    wide["place"] = [NAMES[PLACES[at]] for at in best]
    wide["alone"] = np.minimum(text[rows, best], random[rows, best]) >= LEAST
    return wide


def heads(group: pd.DataFrame) -> pd.DataFrame:
    """The heads with the highest scores at the least factor: MOST_HEADS, or more if more attend by position alone."""
    found = positional(group)
    if found.empty:
        return found
    found = nearest(found)
    least = found[["in text", "in random tokens"]].min(axis=1)
    count = max(MOST_HEADS, int(found["alone"].sum()))
    found = found.assign(least=least).sort_values("least", ascending=False, kind="stable").head(count)
    return pd.DataFrame(
        {
            "Layer": found["layer"].astype(str),
            "Head": found["head"].astype(str),
            "Attends to": found["place"],
            "Score in text": found["in text"].map("{:.2f}".format),
            "Score in random tokens": found["in random tokens"].map("{:.2f}".format),
            "Overlap": found["overlap"].map("{:.2f}".format),
            "By position alone": found["alone"].map({True: "yes", False: "no"}),
        }
    ).reset_index(drop=True)


def frequencies(group: pd.DataFrame) -> pd.DataFrame:
    """A row for each frequency at the least factor: means over layers and heads."""
    found = nearest(measured(group, "frequencies"))
    if found.empty:
        return pd.DataFrame()
    wide = found.pivot_table(index="at", columns="quantity", values="value", aggfunc="mean").reset_index()
    return pd.DataFrame(
        {
            "Frequency": wide["at"].map("{:.0f}".format),
            "Radians a token": wide["radians"].map("{:.2g}".format),
            "Turns in L": (wide["radians"] * found["seq_len"].iloc[0] / (2 * np.pi)).map("{:.2g}".format),
            "Query norm": wide["query_norm"].map("{:.2f}".format),
            "Key norm": wide["key_norm"].map("{:.2f}".format),
            "Share of the scores": wide["score_share"].map("{:.3f}".format),
        }
    )


def at_each_place(group: pd.DataFrame, measurement: str, quantity: str) -> pd.DataFrame:
    """A row for each `at`, a column for each factor: means over layers and heads."""
    found = values(group, measurement, quantity).dropna(subset="at")
    if found.empty:
        return pd.DataFrame()
    wide = found.pivot_table(index="at", columns="factor", values="value", aggfunc="mean")
    shown = wide.map(lambda value: "" if pd.isna(value) else f"{value:.3f}")
    shown.index = [f"{at:.0f}" for at in wide.index]
    return _by_factor(shown, "Tokens")


def _by_factor(table: pd.DataFrame, first: str) -> pd.DataFrame:
    """The table with its index as the first column, and with headers for its factors."""
    table = table[sorted(table.columns)].fillna("").rename(columns="ev={:g}".format)
    return table.rename_axis(index=first, columns=None).reset_index()


def sizes(group: pd.DataFrame) -> pd.DataFrame:
    """A row for each layer, and one for what belongs to no layer, at the least factor."""
    found = nearest(measured(group, "scale"))
    if found.empty:
        return found
    layers = found["layer"].map(str, na_action="ignore").fillna("none")
    wide = found.assign(layer=layers).pivot(index="layer", columns="quantity", values="value")
    return _by_quantity(wide, "Layer")


def sizes_of_models(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each model, at its least factor, which its name has if they differ: means over layers."""
    nearby = {title: nearest(measured(group, "scale")) for title, group in by_model(rows)}
    found = {title: some for title, some in nearby.items() if len(some)}
    if len({some["factor"].iloc[0] for some in found.values()}) > 1:
        found = {f"{title}, at {some['factor'].iloc[0]:g}x": some for title, some in found.items()}
    means = {title: some.groupby("quantity")["value"].mean() for title, some in found.items()}
    return _by_quantity(pd.DataFrame(means).T, "Model") if means else pd.DataFrame()


def _by_quantity(wide: pd.DataFrame, first: str) -> pd.DataFrame:
    shown = wide.reindex(columns=list(SIZES)).map(lambda value: "" if pd.isna(value) else f"{value:.3f}")
    shown = shown.loc[:, (shown != "").any()].rename(columns=SIZES)
    return shown.rename_axis(index=first, columns=None).reset_index()
