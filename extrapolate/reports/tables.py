"""Loss-by-length tables in the shape of the ExPE paper (arXiv 2509.19569)."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.evaluation.names import AS_TRAINED
from extrapolate.reports.names import in_order
from extrapolate.reports.seeds import counts
from extrapolate.specs import did_you_mean

FACTORS = (1e-9, 1e9)  # what a length can be of another
# What all rows of one table must share.
COMPARABLE = ("corpus_hash", "seq_len", "precision", "split")
# What tells models of one encoding apart by their size, and how their names say it.
SIZES = {"preset": "{}", "layers": "{:g} layers", "parameters": "{:,.0f} parameters"}


def frame_of(evals: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows of `evals.parquet` as a frame in which a number that is missing does not change its column's type."""
    return pd.DataFrame(evals).astype({"loss": float, "training_seconds": float, "tokens": "Int64", "seed": "Int64"})


def comparable(evals: pd.DataFrame, only: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the runs' last checkpoints, restricted to `only`. Raises UserError as `of_all_checkpoints` does."""
    return last_checkpoints(of_all_checkpoints(evals, only))


def of_all_checkpoints(evals: pd.DataFrame, only: Mapping[str, Any]) -> pd.DataFrame:
    """The rows restricted to `only`, also of checkpoints along the way. Models of several sizes are called by them.

    Raises UserError if they differ in corpus, training length, precision or split, nothing is left, or a factor is
    none.
    """
    rows = evals
    if len(wrong := rows["factor"][~rows["factor"].between(*FACTORS)]):
        raise UserError(f"the tables have rows at {wrong.iloc[0]:g}x, which is no length: evaluate again")
    for column, value in only.items():
        known = sorted({str(v) for v in rows[column]})
        rows = rows[rows[column].astype(str) == str(value)]
        if rows.empty:
            raise UserError(f"no row has {column} {value}: there are {', '.join(known)}")
    for column in COMPARABLE:
        values = sorted({str(v) for v in rows[column]})
        if len(values) > 1:
            parameter = {"corpus_hash": "corpus"}.get(column, column)
            raise UserError(
                f"the runs differ in {column} ({', '.join(values)}), and their losses cannot be compared: "
                f"choose with `{parameter}`"
            )
    return told_apart(rows)


def last_checkpoints(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last checkpoint."""
    return rows[rows["step"] == rows.groupby("run")["step"].transform("max")]


def told_apart(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, with sizes in the names of models where one name stands for several: `RoPE, 2 layers`."""
    named: list[str] = []
    for column in SIZES:
        several = rows.groupby(["model", *named], dropna=False)["config_hash"].nunique() > 1
        if several.any() and (rows.groupby("model")[column].nunique() > 1).any():
            named.append(column)
    names = rows["model"]
    for column in named:
        size = rows[column].map(SIZES[column].format, na_action="ignore")
        names = names.where(size.isna(), names + ", " + size)
    return rows.assign(model=names)


def unequal_training(rows: pd.DataFrame) -> list[str]:
    """A warning where models differ in more than their encoding: what is compared is then not the encoding alone."""
    if rows["setting_hash"].nunique() <= 1:
        return []
    told = ("preset", "trained_length", "tokens", "parameters", "training_precision", "training_machine", "origin")
    differing = [f"{column} {', '.join(values)}" for column in told if len(values := values_of(rows, column)) > 1]
    detail = f" ({'; '.join(differing)})" if differing else ""
    return [f"the models were not trained alike{detail}: their losses differ by more than the encoding"]


def values_of(rows: pd.DataFrame, column: str, text: Callable[[Any], str] = str) -> list[str]:
    """A column's values as text, each once, in order; at the end, unknown, where an imported checkpoint has none."""
    known = sorted(set(rows[column].dropna().tolist()))
    unknown = rows.loc[rows["imported"].notna(), column].isna().any()
    return [*map(text, known), *(["unknown"] if unknown else [])]


def same_targets(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Of one protocol's rows those that score one set of targets: the one with most runs, then the newest.

    Returns them and warnings that say which rows were left out.
    """
    sets = rows.groupby("targets_hash").agg(
        runs=("run", "nunique"), factors=("factor", "nunique"), newest=("evaluated_at", "max")
    )
    best = sets.sort_values(["runs", "factors", "newest"]).index[-1]
    left_out = rows[rows["targets_hash"] != best]
    warnings = []
    if not left_out.empty:
        who = ", ".join(
            f"{model} at {factor:g}x"
            for model, factor in sorted({*zip(left_out["model"], left_out["factor"], strict=True)})
        )
        warnings.append(
            f"{rows['protocol'].iloc[0]}: left out rows on other targets ({who}); to compare them, evaluate every run "
            "with the same `factors` and `max_targets`"
        )
    return rows[rows["targets_hash"] == best], warnings


def loss_by_ev(rows: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """`Model`, `Loss (ev=1)`, ..., `Training time`, `Seeds`: means over seeds, one row a model.

    `rows` are one protocol's, on one set of targets and of the same seeds. Training time is relative to the
    baseline's (default rope), and missing where there is none or a model was trained on another machine.
    Raises UserError if runs of one model differ in more than their seed, or the baseline named is not there.
    """
    check_replicates(rows)
    seconds = rows.groupby("model")["training_seconds"].mean()
    base = _baseline_model(rows, baseline)
    table = rows.pivot_table(index="model", columns="factor", values="loss", aggfunc=strict_mean, dropna=False)
    plain = _plain(rows)
    order = sorted(table.index, key=lambda model: (plain[model] != base, in_order(plain[model]), in_order(model)))
    table = table.loc[order, sorted(table.columns)]
    table.columns = [f"Loss (ev={factor:g})" for factor in table.columns]
    table["Training time"] = seconds[order] / seconds[base] if base is not None else float("nan")
    machines = rows.groupby("model")["training_machine"].agg(set)
    elsewhere = [model for model in order if base is not None and machines[model] != machines[base]]
    table.loc[elsewhere, "Training time"] = float("nan")
    table["Seeds"] = counts(rows)[order]
    return table.reset_index().rename(columns={"model": "Model"})


def seed_spread(rows: pd.DataFrame) -> pd.DataFrame | None:
    """As `loss_by_ev`, of the standard deviation over seeds; None where every model has one seed."""
    if rows.groupby("model")["seed"].nunique().max() < 2:
        return None
    table = rows.pivot_table(index="model", columns="factor", values="loss", aggfunc="std", dropna=False)
    table.columns = [f"ev={factor:g}" for factor in table.columns]
    table["Seeds"] = counts(rows)
    return table.reset_index().rename(columns={"model": "Model"})


def by_window(rows: pd.DataFrame) -> pd.DataFrame:
    """Perplexities of one protocol's rows with every window, and with every target, weighted alike; means over seeds.

    Empty if the model ends before a length.
    """
    names = {"window_perplexity": "windows", "perplexity": "tokens"}
    tables = [
        rows.pivot_table(index="model", columns="factor", values=column, aggfunc=strict_mean, dropna=False)
        .rename(columns="ev={:g}".format)
        .assign(**{"Counted alike": said})
        for column, said in names.items()
    ]
    table = pd.concat(tables).rename_axis("Model").reset_index()
    table = table.sort_values("Model", kind="stable", key=lambda models: models.map(in_order))
    return table[["Model", "Counted alike", *(column for column in table if str(column).startswith("ev="))]]


def quick_table(rows: list[dict[str, Any]], protocol: str, value: str = "loss") -> pd.DataFrame:
    """What was just evaluated, one row a run, step and model; its loss with its control's, or another value."""
    frame = pd.DataFrame([row for row in rows if row["protocol"] == protocol]).astype({value: float})
    index = ["run", "step", "precision", "model"]
    table = frame.pivot(index=index, columns="factor", values=value)
    table.columns = [f"ev={factor:g}" for factor in table.columns]
    if value == "loss":
        table["control"] = frame.groupby(index)["control_loss"].first()
    order = pd.MultiIndex.from_frame(frame[index].drop_duplicates())
    table = table.loc[order].reset_index().astype({"step": str})
    several = table.groupby("run")[["step", "precision"]].nunique().max()
    return table.drop(columns=[column for column in several.index if several[column] == 1])


def verdicts(rows: list[dict[str, Any]], protocol: str) -> list[str]:
    """For every run that was evaluated with extensions: which is lowest at each length, and what it costs at 1x.

    The plain model is the run as it was trained, with its own extension where it has one. "Lowest" is by the mean
    alone: whether a difference means anything is not judged here.
    """
    mine = [row for row in rows if row["protocol"] == protocol and row["loss"] is not None]
    settings = dict.fromkeys((row["run"], row["step"], row["precision"]) for row in mine)
    lines = []
    for run, step, precision in settings:
        here = [row for row in mine if (row["run"], row["step"], row["precision"]) == (run, step, precision)]
        loss = {(row["extension"], row["factor"]): row["loss"] for row in here}
        if len({extension for extension, _ in loss}) == 1:
            continue
        where = run if precision == "fp32" else f"{run} in {precision}"
        plain = {row["factor"]: row for row in here if row["extension"] == AS_TRAINED}
        nearest = min(row["factor"] for row in here)
        for factor in sorted({row["factor"] for row in here}):
            best = min((row for row in here if row["factor"] == factor), key=lambda row: row["loss"])
            if factor in plain and plain[factor]["loss"] - best["loss"] < 0.0005:
                best = plain[factor]  # lower by less than the digits show
            line = f"{where}, {factor:g}x: {best['model']} {best['loss']:.3f}"
            if best["extension"] == AS_TRAINED:
                lines.append(f"{line}: no extension is lower")
                continue
            if (AS_TRAINED, factor) in loss:
                line += f", {best['loss'] - loss[AS_TRAINED, factor]:+.3f} against the run as it was trained"
            if {(best["extension"], nearest), (AS_TRAINED, nearest)} <= loss.keys():
                cost = loss[best["extension"], nearest] - loss[AS_TRAINED, nearest]
                line += f"; at {nearest:g}x it costs {round(cost, 3) + 0.0:+.3f}"  # + 0.0: no minus before a zero
            lines.append(line)
    return lines


def formatted(table: pd.DataFrame) -> pd.DataFrame:
    """Every cell as text: losses to three decimals, shares to two, rates as given, n/a where there is no number."""

    def text(value: Any, column: str) -> str:
        if isinstance(value, str):
            return value
        if pd.isna(value):
            return "n/a"
        if column in ("Seeds", "Learning rate"):
            return f"{value:g}"
        return f"{value:.{2 if column == 'Training time' or column.startswith('Gain') else 3}f}"

    return pd.DataFrame({column: [text(value, column) for value in table[column]] for column in table.columns})


def strict_mean(losses: "pd.Series[float]") -> float:
    """The mean, missing where any value is: an encoding that does not reach a length has no mean there."""
    return float(losses.mean(skipna=False))


def _plain(rows: pd.DataFrame) -> dict[str, str]:
    """`RoPE + PI` -> `RoPE`, by the rows themselves, for every model; itself where there is none without extension."""
    first = rows[["model", "run", "extension"]].drop_duplicates("model")
    trained = rows[rows["extension"] == AS_TRAINED].drop_duplicates("run").set_index("run")["model"].to_dict()
    return {
        str(model): str(model if extension == AS_TRAINED else trained.get(run, model))
        for model, run, extension in first.itertuples(index=False, name=None)
    }


def _baseline_model(rows: pd.DataFrame, baseline: str | None) -> str | None:
    plain = rows[rows["extension"] == AS_TRAINED]
    wanted = baseline or "rope"
    matching = plain[(plain["encoding"] == wanted) | (plain["model"] == wanted)]
    if not matching.empty:
        timed = matching[matching["training_seconds"].notna()]
        matching = timed if len(timed) else matching
        # The encoding without arguments, also where its name says its size.
        names = zip(matching["model"], matching["display"], strict=True)
        usual = matching[[model == display or model.startswith(f"{display}, ") for model, display in names]]
        return str((usual if len(usual) else matching)["model"].iloc[0])
    if baseline is not None:
        raise UserError(f"no run has the encoding '{baseline}'; {did_you_mean(baseline, set(plain['encoding']))}")
    return None


def check_replicates(rows: pd.DataFrame) -> None:
    """Raises UserError if runs of one model differ in more than their seed, or not even in that."""
    twice = rows.loc[rows.duplicated(["model", "seed", "factor"]), "model"]
    settings = rows.groupby("model")["config_hash"].nunique()
    wrong = {*twice, *settings[settings > 1].index}
    for model, mine in rows[rows["model"].isin(wrong)].groupby("model"):
        if mine["config_hash"].nunique() > 1:
            raise UserError(
                f"the runs {', '.join(sorted(set(mine['run'])))} are all {model} but differ in more than their seed; "
                "report on them separately"
            )
        raise UserError(f"the runs {', '.join(sorted(set(mine['run'])))} are one model with one seed; keep one of them")
