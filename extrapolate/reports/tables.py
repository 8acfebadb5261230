"""Loss-by-length tables in the shape of the ExPE paper (arXiv 2509.19569)."""

from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.names import AS_TRAINED
from extrapolate.reports.escaping import in_order
from extrapolate.results.speed import MOST_TAKEN
from extrapolate.specs import did_you_mean
from extrapolate.statistics.comparable import (
    at_some_lengths,
    check_replicates,
    disambiguate_extensions,
    not_measured,
    of_one_parent,
    of_other_text,
    strict_mean,
    unequal_training,
    values_of,
)
from extrapolate.statistics.seeds import counts, in_words, seeds_of


def loss_by_ev(rows: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """`Model`, `Loss (ev=1)`, ..., `Training time`, `Seeds`: means over seeds, a row for each model.

    `rows` are one protocol's, on one set of targets. Training time is relative to the
    baseline's (default: rope), and missing without a baseline or if a model was trained on another machine. Raises
    UserError if runs of one model differ in more than their seed, or there is no run of the baseline.
    """
    check_replicates(rows)
    seconds = rows.groupby("model")["training_seconds"].agg(strict_mean)
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
    """As `loss_by_ev`, with the standard deviation over seeds; None if every model has one seed."""
    return _over_seeds(rows, "std")


def worst_seed(rows: pd.DataFrame) -> pd.DataFrame | None:
    """As `loss_by_ev`, with the highest loss of any seed; None if every model has one seed."""
    return _over_seeds(rows, lambda losses: losses.max(skipna=False))


def _over_seeds(rows: pd.DataFrame, summary: Any) -> pd.DataFrame | None:
    if rows.groupby("model")["seed"].nunique().max() < 2:
        return None
    table = rows.pivot_table(index="model", columns="factor", values="loss", aggfunc=summary, dropna=False)
    table.columns = [f"ev={factor:g}" for factor in table.columns]
    table["Seeds"] = counts(rows)
    return table.reset_index().rename(columns={"model": "Model"})


def by_window(rows: pd.DataFrame) -> pd.DataFrame:
    """Perplexities of one protocol's rows, weighting every window alike, and every target alike; means over seeds.

    Cells are NaN if the model ends before the length.
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
    """What was just evaluated, a row for each run, step and model: its loss and its control's, or another value."""
    frame = pd.DataFrame([row for row in rows if row["protocol"] == protocol]).astype({value: float})
    frame = disambiguate_extensions(frame)
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
    """For each run that was evaluated with extensions: which is lowest at each length, and what it costs at 1x.

    They are compared with the run as it was trained, which includes an extension that it was tuned with. "Lowest"
    refers to the mean: whether a difference is significant is not judged here.
    """
    group = [row for row in rows if row["protocol"] == protocol and row["loss"] is not None]
    settings = dict.fromkeys((row["run"], row["step"], row["precision"]) for row in group)
    lines = []
    for run, step, precision in settings:
        here = [row for row in group if (row["run"], row["step"], row["precision"]) == (run, step, precision)]
        loss = {(row["extension"], row["factor"]): row["loss"] for row in here}
        if len({extension for extension, _ in loss}) == 1:
            continue
        where = run if precision == "fp32" else f"{run} in {precision}"
        plain = {row["factor"]: row for row in here if row["extension"] == AS_TRAINED}
        nearest = min(row["factor"] for row in here)
        for factor in sorted({row["factor"] for row in here}):
            best = min((row for row in here if row["factor"] == factor), key=lambda row: row["loss"])
            if factor in plain and plain[factor]["loss"] - best["loss"] < 0.0005:
                best = plain[factor]  # the digits would not show the difference
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
    """Every cell as text: losses to three decimals, shares to two, rates as given, n/a for NaN."""

    def text(value: Any, column: str) -> str:
        if isinstance(value, str):
            return value
        if pd.isna(value):
            return "n/a"
        if column in ("Seeds", "Learning rate"):
            return f"{value:g}"
        return f"{value:.{2 if column == 'Training time' or column.startswith('Gain') else 3}f}"

    return pd.DataFrame({column: [text(value, column) for value in table[column]] for column in table.columns})


def _plain(rows: pd.DataFrame) -> dict[str, str]:
    """Each model's name without its extension, from the rows of the same run: `RoPE + PI` -> `RoPE`."""
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
        # Prefer the encoding without arguments; its name may still have a size.
        names = zip(matching["model"], matching["display"], strict=True)
        usual = matching[[model == display or model.startswith(f"{display}, ") for model, display in names]]
        return str((usual if len(usual) else matching)["model"].iloc[0])
    if baseline is not None:
        raise UserError(f"no run has the encoding '{baseline}'; {did_you_mean(baseline, set(plain['encoding']))}")
    return None


def conditions(rows: pd.DataFrame) -> str:
    """Under which conditions numbers of one protocol were made, for the caption of a figure."""
    targets, documents = (", ".join(values_of(rows, column, "{:,}".format)) for column in ("n_targets", "n_documents"))
    said = (
        f"Protocol {rows['protocol'].iloc[0]}, {targets} targets in {documents} "
        f"{'document' if documents == '1' else 'documents'}; L = {rows['seq_len'].iloc[0]} tokens"
    )
    if len(own := rows[rows["imported"].isna()]):
        said += f"; {', '.join(values_of(own, 'tokens', '{:,}'.format))} training tokens; {_seeds(own)}"
    return f"{said}."


def caption(rows: pd.DataFrame) -> str:
    """What the numbers are, under which conditions, and where and when they were made."""

    def values(column: str, of: pd.DataFrame = rows) -> str:
        return ", ".join(values_of(of, column, lambda v: f"{v:,}" if isinstance(v, int) else str(v)))

    own, imported = rows[rows["imported"].isna()], rows[rows["imported"].notna()]
    tuned, busy = rows[rows["origin"].notna()], rows[rows["training_taken"].astype(float) > MOST_TAKEN]
    documents = values("n_documents")
    said = (
        f"Mean loss, nats per token, of {values('n_targets')} targets in {documents} "
        f"{'document' if documents == '1' else 'documents'}, the same at every length; training length "
        f"{values('seq_len')} tokens"
    )
    if len(tuned):
        lengths = ", ".join(map(str, sorted(set(tuned["trained_length"]))))
        said += f" (tuned runs: {lengths}, their training tokens on top of those of the run they started from)"
    said += f"; {values('split')} split of corpus {values('corpus_hash')}; "
    evaluated = (
        f"evaluated with commit {values('commit') or 'unknown'} on {values('machine')}, "
        f"{rows['evaluated_at'].max():%Y-%m-%d}."
    )
    if own.empty:
        said += f"evaluated in {values('precision')}. {evaluated[0].upper()}{evaluated[1:]}"
    else:
        said += (
            f"preset {values('preset', own)}, {values('tokens', own)} training tokens in "
            f"{values('training_precision', own)}; evaluated in {values('precision')}; {_seeds(own)}. Trained with "
            f"extrapolate {values('training_version', own)}, commit {values('training_commit', own) or 'unknown'}, on "
            f"{values('training_machine', own)}; {evaluated}"
        )
    if len(imported):
        said += (
            f" Trained elsewhere, and imported: {', '.join(values_of(imported, 'imported'))}; training corpus, tokens, "
            "precision, seed, time and machine unknown, and the training length as the checkpoint's configuration or "
            "--seq-len says."
        )
    for text in [
        *of_other_text(rows),
        *unequal_training(rows),
        *of_one_parent(rows),
        *at_some_lengths(rows),
        *not_measured(rows),
    ]:
        said += f" {text[0].upper()}{text[1:]}."
    if len(busy):
        shares = busy.groupby("model", sort=False)["training_taken"].max()
        said += (
            f" The training time of {', '.join(f'{model} ({share:.0%})' for model, share in shares.items())} is n/a: "
            f"other programs took this share of the time in which it wanted to compute, more than {MOST_TAKEN:.0%}."
        )
    return " ".join([said, *sorted({f"{text}." for text in rows["caption"] if text})])


def _seeds(rows: pd.DataFrame) -> str:
    held = {seeds_of(group) for _, group in rows.groupby("model")}
    if len(held) > 1:
        return f"means over {min(map(len, held))} to {max(map(len, held))} seeds, which models do not share"
    (seeds,) = held
    return f"one seed, {seeds[0]}" if len(seeds) == 1 else f"means over {in_words(seeds)}"
