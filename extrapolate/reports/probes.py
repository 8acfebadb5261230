"""Tables of probes, from rows of PROBES: accuracies and margins by length, and by length and depth."""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports import tables
from extrapolate.statistics.comparable import (
    check_replicates,
    last_checkpoints,
    named_by_run,
    newest_of_most,
    of_other_text,
    strict_mean,
)
from extrapolate.statistics.seeds import on_own_seeds

CONTROL = ", cut back to L"
MAY_BE_MISSING = (
    "accuracy", "low", "high", "loss", "margin", "margin_stderr", "control_margin", "choice", "choice_chance",
)  # fmt: skip


def comparable(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of each run's last checkpoint that can be compared, and warnings about what was left out.

    If there are several sets of windows for a probe, factor and depth, the one with most runs stays, or else the
    newest. Of each model, the seeds stay that it has at every length. Raises UserError if runs of one model differ in
    more than their seed.
    """
    rows = last_checkpoints(rows)
    check_replicates(rows)
    same = newest_of_most(rows, ["probe", "factor", "depth"])
    warnings = [
        f"probe {probe}: left out rows on other windows ({', '.join(sorted(set(group['model'])))}); to compare them, "
        "evaluate every run with the same `trials`"
        for probe, group in rows[~same].groupby("probe")
    ]
    kept = []
    for probe, group in rows[same].groupby("probe", sort=False):
        shown, said = on_own_seeds(group, f"probe {probe}")
        kept.append(shown)
        warnings += said
    return pd.concat(kept), warnings


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as they were read: None if there is no value."""
    whole = rows.astype(object).where(rows.notna(), None)
    return [dict(zip(whole.columns, values, strict=True)) for values in whole.itertuples(index=False, name=None)]


def printed(rows: list[dict[str, Any]]) -> Iterator[tuple[pd.DataFrame, str]]:
    """What was just evaluated, as texts: for every probe a table by length, and one by length and depth."""
    frame = frame_of(rows) if rows else pd.DataFrame({"probe": []})
    for probe, group in frame.groupby("probe", sort=False):
        named = named_by_run(group)
        title = f"probe {probe}, accuracy (chance {chance(group)})"
        over = ", mean over depths" if has_depths(group) else ""
        yield tables.formatted(by_length(named)), title + over
        if has_margins(group):
            yield tables.formatted(by_length(named, "margin")), f"probe {probe}, margin in nats{over}"
        if has_depths(group):
            yield tables.formatted(by_depth(named)), f"{title}, by depth: 0 is farthest from the question"


def has_margins(rows: pd.DataFrame) -> bool:
    """Whether any row has a margin: earlier versions wrote none, and a probe without other candidates has none."""
    return bool(rows["margin"].notna().any())


def by_length(rows: pd.DataFrame, value: str = "accuracy", summary: Callable[..., Any] = strict_mean) -> pd.DataFrame:
    """`Model`, `Accuracy (ev=1)`, ..., `Seeds`: means over depths and seeds, or another summary of them.

    `rows` are one probe's; `value` is the column. Below each plain model comes its control, if that has the value.
    """
    shown, names = rows, list(dict.fromkeys(rows["model"]))
    if f"control_{value}" in rows:
        plain = rows[rows["extension"] == AS_TRAINED]
        control = plain.assign(**{"model": plain["model"] + CONTROL, value: plain[f"control_{value}"]})
        shown, names = pd.concat([rows, control]), [name for model in names for name in (model, model + CONTROL)]
    table = _pivot(shown, ["model"], value, summary)
    return table.sort_values("Model", key=lambda models: models.map(names.index), ignore_index=True)


def worst_seed(rows: pd.DataFrame) -> pd.DataFrame | None:
    """As `by_length`, without controls: the lowest accuracy of any seed; None if every model has one seed."""
    if rows.groupby("model")["seed"].nunique().max() < 2:
        return None
    each = rows.groupby(["model", "factor", "seed"], sort=False, dropna=False)["accuracy"].agg(strict_mean)
    return by_length(each.reset_index(), summary=lambda accuracies: accuracies.min(skipna=False))


def by_depth(rows: pd.DataFrame, value: str = "accuracy") -> pd.DataFrame:
    """`Model`, `Depth`, `Accuracy (ev=1)`, ..., `Seeds`: means over seeds. `rows` are one probe's."""
    table = _pivot(rows, ["model", "depth"], value)
    order = list(dict.fromkeys(rows["model"]))
    table = table.sort_values(
        ["Model", "Depth"],
        key=lambda column: column.map(order.index) if column.name == "Model" else column,
        ignore_index=True,
    )
    return table.assign(Depth=table["Depth"].map("{:g}".format))


def _pivot(rows: pd.DataFrame, index: list[str], value: str, summary: Callable[..., Any] = strict_mean) -> pd.DataFrame:
    table = rows.pivot_table(index=index, columns="factor", values=value, aggfunc=summary, dropna=False)
    table.columns = [f"{value.capitalize()} (ev={factor:g})" for factor in table.columns]
    table["Seeds"] = rows.groupby(index)["seed"].nunique(dropna=False)
    return table.reset_index().rename(columns={name: name.capitalize() for name in index})


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows of probes as a frame; missing numbers do not change a column's type."""
    return pd.DataFrame(rows).astype(dict.fromkeys(MAY_BE_MISSING, float))


def has_depths(rows: pd.DataFrame) -> bool:
    """Whether the blocks of one probe are at several depths."""
    return rows["depth"].nunique() > 1


def chance(rows: pd.DataFrame) -> str:
    """The chance of one probe: a number, or one for each length if longer windows have more answers."""
    at = rows.sort_values("factor").drop_duplicates("factor").set_index("factor")["chance"]
    if at.nunique() == 1:
        return f"{at.iloc[0]:.2g}"
    return ", ".join(f"{value:.2g} at ev={factor:g}" for factor, value in at.items())


def caption(rows: pd.DataFrame) -> str:
    """What the accuracies of one probe are, and under which conditions they were measured."""

    def values(column: str, of: pd.DataFrame = rows) -> str:
        known = sorted(set(of[column].tolist()))
        return ", ".join(f"{v:,.0f}" if isinstance(v, int | float) else str(v) for v in known)

    and_depth, by_depth_ = (" and depth", " of the table by depth") if has_depths(rows) else ("", "")
    own = rows[rows["imported"].isna()]  # the training of the others is not known
    training = "" if own.empty else f"preset {values('preset', own)}, {values('tokens', own)} training tokens; "
    others = "".join(f" {text[0].upper()}{text[1:]}." for text in of_other_text(rows))
    return (
        f"Accuracy over {values('n_trials')} windows at each length{and_depth}, the same for every model; chance is "
        f"{chance(rows)}, and Wilson's interval of one cell{by_depth_} at most "
        f'{(rows["high"] - rows["low"]).max() / 2:.2f} either way. "Cut back to L" is the same model on the same '
        f"windows, but it sees only their last {values('seq_len')} tokens. Text of the {values('split')} split of "
        f"corpus {values('corpus_hash')}; {training}evaluated in {values('precision')} with commit "
        f"{values('commit') or 'unknown'} on {values('machine')}, {rows['evaluated_at'].max():%Y-%m-%d}.{others}"
    )


def margin_caption(rows: pd.DataFrame) -> str:
    """What the margins of one probe are, and how well they are known."""
    chance, error = rows["choice_chance"].max(), rows["margin_stderr"].max()
    known = "" if pd.isna(error) else f" The standard error of one cell by depth is at most {error:.2g} nats."
    return (
        "The margin is the mean loss of the other candidates minus that of the answer, in nats per answer. It is 0 on "
        "average if the model cannot tell them apart. It moves before the accuracy does, because the accuracy needs "
        "the answer to be the likeliest token of the whole vocabulary. The choice is the share of answers that are "
        f"likelier than every other candidate; its chance is at most {chance:.2g}.{known}"
    )
