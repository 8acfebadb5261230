"""Selecting rows that may be compared, and giving their models distinct names."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.model.config import COMBINED
from extrapolate.results.groups import SETTINGS

# Columns in which all rows of a table must agree.
COMPARABLE = ("corpus_hash", "seq_len", "precision", "split")
_USERS_FILE = re.compile(r"([^:+(),=]+\.py):\w+")  # in an extension's text, followed by a class
MOST_VALUES = 4  # values of a column that a warning lists
IDENTITY = ["model", "seed", "run", "config_hash"]
# Columns that tell models of one encoding apart, and how to write them in names.
TOLD = {
    "preset": "{}", "layers": "{:g} layers", "parameters": "{:,.0f} parameters", "width": "width {:g}",
    "heads": "{:g} heads", "lr": "lr {:g}", "budget": "{:,.0f} tokens", "batch_tokens": "{:,.0f} tokens a step",
    "weight_decay": "weight decay {:g}", "dropout": "dropout {:g}", "training_probes": "with {}",
    "training_precision": "in {}",
}  # fmt: skip
# What decides the weights besides the encoding. A model's name says what is combined with that.
_DECISIVE = ("preset", "training_corpus", "trained_length", "tokens", "parameters", "training_precision")
_SETTINGS = [one.name for one in SETTINGS.columns if one.name not in {*COMBINED, "budget", *_DECISIVE}]


def frame_of(evals: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows of losses as a frame, with column types that allow missing numbers."""
    return pd.DataFrame(evals).astype({"loss": float, "training_seconds": float, "tokens": "Int64", "seed": "Int64"})


def comparable(evals: pd.DataFrame, only: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of the runs' last checkpoints, restricted to `only`. Raises UserError as `restricted` does."""
    return last_checkpoints(of_all_checkpoints(evals, only))


def of_all_checkpoints(evals: pd.DataFrame, only: Mapping[str, Any]) -> pd.DataFrame:
    """Like `restricted`, for one table."""
    return restricted([evals], only)[0]


def restricted(tables: Sequence[pd.DataFrame], only: Mapping[str, Any]) -> list[pd.DataFrame]:
    """The rows of each table restricted to `only`, for all checkpoints, with names as of `disambiguate`.

    Raises UserError if rows differ in corpus, training length or split, rows of one table differ in precision, or a
    restriction leaves no rows.
    """
    for column, value in only.items():
        known = sorted({str(v) for rows in tables for v in rows[column]})
        if str(value) not in known:
            raise UserError(f"no row has {column} {value}: there are {', '.join(known)}")
        tables = [rows[rows[column].astype(str) == str(value)] for rows in tables]
    for column in COMPARABLE:
        each = [{str(v) for v in rows[column]} for rows in tables]
        for values in each if column == "precision" else [set().union(*each)]:
            if len(values) > 1:
                parameter = {"corpus_hash": "corpus"}.get(column, column)
                raise UserError(
                    f"the runs differ in {column} ({', '.join(sorted(values))}), and their results cannot be compared: "
                    f"choose with `{parameter}`"
                )
    several = of_several_versions(tables)
    return [disambiguate(rows, several) for rows in tables]


def last_checkpoints(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last checkpoint."""
    return rows[rows["step"] == rows.groupby("run")["step"].transform("max")]


def disambiguate(rows: pd.DataFrame, several: Collection[str] | None = None) -> pd.DataFrame:
    """The rows, with what differs in names that several models share, `RoPE, lr 0.01`, and extensions."""
    named: list[str] = []
    for column in TOLD:
        shared = rows.groupby(["model", *named], dropna=False)["config_hash"].nunique() > 1
        if shared.any() and (rows.groupby("model")[column].nunique() > 1).any():
            named.append(column)
    names = rows["model"]
    for column in named:
        size = rows[column].map(TOLD[column].format, na_action="ignore")
        names = names.where(size.isna(), names + ", " + size)
    return disambiguate_extensions(rows.assign(model=names), several)


def disambiguate_extensions(rows: pd.DataFrame, several: Collection[str] | None = None) -> pd.DataFrame:
    """The rows, with the extension in names that several share, `RoPE + Half (v2.py:Half)`.

    Classes from different files may have the same `display`. several: users' files of which there are several versions
    (default: as in these rows); extensions from them are named with the file's hash, `RoPE + Half (half.py:Half@4f2a)`.
    """
    several = of_several_versions([rows]) if several is None else several
    pairs = zip(rows["extension"], rows["extension_sha256"], strict=True)
    versions = pd.Series([version_of(text, sha256, several) for text, sha256 in pairs], rows.index, dtype=str)
    shared = rows.groupby("model")["extension"].transform("nunique") > 1
    told = rows["model"] + " (" + rows["extension"] + versions + ")"
    return rows.assign(model=rows["model"].where(~shared & (versions == ""), told))


def files_in(extension: str, sha256: str | None) -> dict[str, str]:
    """The users' files that an extension comes from, each with its hash."""
    names = [name.strip() for name in _USERS_FILE.findall(extension)]
    return dict(zip(names, sha256.split("+"), strict=False)) if isinstance(sha256, str) else {}


def version_of(extension: str, sha256: str | None, several: Collection[str]) -> str:
    """`@` and the hashes of those of its files that are in `several`; or nothing."""
    hashes = [version[:8] for name, version in files_in(extension, sha256).items() if name in several]
    return f"@{'+'.join(hashes)}" if hashes else ""


def of_several_versions(tables: Sequence[pd.DataFrame]) -> set[str]:
    """The users' files of which the rows' extensions have several versions.

    An edit of a file may change all of its classes, which can share constants and functions.
    """
    versions: dict[str, set[str]] = {}
    for rows in tables:
        for pair in rows[["extension", "extension_sha256"]].drop_duplicates().itertuples(index=False, name=None):
            for name, sha256 in files_in(*pair).items():
                versions.setdefault(name, set()).add(sha256)
    return {name for name, hashes in versions.items() if len(hashes) > 1}


def named_by_run(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with each run as a model of its own, `run, RoPE`, and with step and precision if there are several."""
    named = disambiguate_extensions(rows)
    several = [column for column in ("step", "precision") if rows[column].nunique() > 1]
    return named.assign(model=named[["run", *several, "model"]].astype(str).agg(", ".join, axis=1))


def unequal_training(rows: pd.DataFrame) -> list[str]:
    """A warning if models differ in more than their encodings, or in how far they are trained."""
    same_settings = rows["setting_hash"].nunique() <= 1
    if same_settings and rows["tokens"].nunique() <= 1:
        return []
    differing = []
    for column in (*_DECISIVE, *_SETTINGS, "training_machine"):
        # Of a checkpoint from elsewhere no setting is known, which need not be said of each.
        values = values_of(rows[rows["imported"].isna()] if column in _SETTINGS else rows, column)
        if len(values) > 1:
            said = values if len(values) <= MOST_VALUES else [values[0], "...", values[-1]]
            differing.append(f"{column} {', '.join(said)}")
    if 0 < rows["origin"].notna().sum() < len(rows):
        differing.append("some continue another run")
    detail = f" ({'; '.join(differing)})" if differing else ""
    alike = f"the models were not trained alike{detail}: their losses differ by more than the encoding"
    return [alike, *_of_another_parent(rows)]


def of_one_parent(rows: pd.DataFrame) -> list[str]:
    """A warning if several seeds of a model continue the same run, so that they share what its seed decided."""
    parents: dict[str, list[str]] = {}
    for model, group in rows[rows["origin"].notna()].groupby("model", sort=False):
        if group["origin_sha256"].nunique() < group["seed"].nunique():
            parents.setdefault(", ".join(values_of(group, "origin")), []).append(str(model))
    return [
        f"seeds of {', '.join(models)} continue the same run ({origin}): intervals leave out what its own seed decided"
        for origin, models in parents.items()
    ]


def _of_another_parent(rows: pd.DataFrame) -> list[str]:
    """A warning if models continue other weights than those of the run that has their parent's name here."""
    here = dict(zip(rows["run"], rows["weights_sha256"], strict=True))
    models: dict[str, list[str]] = {}
    continued = rows[rows["origin"].isin(here.keys()) & rows["origin_sha256"].notna()]
    for model, origin, weights in continued[["model", "origin", "origin_sha256"]].drop_duplicates().itertuples(False):
        if here[origin] != weights:
            models.setdefault(origin, []).append(str(model))
    return [
        f"{', '.join(group)}: the run {origin} that it continues had other weights than {origin} has here"
        for origin, group in models.items()
    ]


def without_losses(rows: pd.DataFrame) -> list[str]:
    """A warning if models have no loss at some of the lengths that they were evaluated at."""
    models: dict[str, list[str]] = {}
    for model, group in rows[rows["loss"].isna()].groupby("model", sort=False):
        factors = ", ".join(f"{factor:g}x" for factor in sorted(set(group["factor"])))
        models.setdefault(factors, []).append(str(model))
    return [
        f"not compared at {factors}, where the loss is n/a: {', '.join(group)}" for factors, group in models.items()
    ]


def at_some_lengths(rows: pd.DataFrame) -> list[str]:
    """A warning if some models of one protocol were not evaluated at all of its lengths."""
    every, lacking = set(rows["factor"]), dict[str, list[str]]()
    for model, group in rows.groupby("model", sort=False):
        if missing := sorted(every - set(group["factor"])):
            lacking.setdefault(", ".join(f"{factor:g}x" for factor in missing), []).append(str(model))
    return [f"not evaluated at {factors}: {', '.join(models)}" for factors, models in lacking.items()]


def not_measured(rows: pd.DataFrame) -> list[str]:
    """Why models of one protocol have no loss at lengths that they were evaluated at."""
    at: dict[tuple[str, str], set[float]] = {}
    columns = ["model", "factor", "reason"]
    for model, factor, reason in rows.reindex(columns=columns).dropna().itertuples(index=False, name=None):
        at.setdefault((model, reason.partition(" at ")[0]), set()).add(factor)
    return [
        f"{model} is n/a at {', '.join(f'{factor:g}x' for factor in sorted(factors))}: {reason}"
        for (model, reason), factors in at.items()
    ]


def of_other_text(rows: pd.DataFrame) -> list[str]:
    """A warning if models were trained on other text than is scored."""
    other = rows[rows["training_corpus"].notna() & (rows["training_corpus"] != rows["corpus_hash"])]
    if other.empty:
        return []
    return [
        f"{', '.join(dict.fromkeys(other['model']))} learned from other text (corpus "
        f"{', '.join(values_of(other, 'training_corpus'))}): nothing checks that no text is in both"
    ]


def values_of(rows: pd.DataFrame, column: str, text: Callable[[Any], str] = str) -> list[str]:
    """A column's distinct values as text, in order, then `unknown` if an imported checkpoint has none."""
    known = sorted(set(rows[column].dropna().tolist()))
    unknown = rows.loc[rows["imported"].notna(), column].isna().any()
    return [*map(text, known), *(["unknown"] if unknown else [])]


def same_targets(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of one protocol on one set of targets: the set with most runs, then the newest.

    Also returns warnings about the rows that were left out.
    """
    sets = rows.groupby("targets_hash").agg(runs=("run", "nunique"), newest=("evaluated_at", "max"))
    best = sets.sort_values(["runs", "newest"]).index[-1]
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


def not_evaluated(rows: pd.DataFrame, column: str, every: pd.DataFrame) -> list[str]:
    """A warning for each value of `column`, a protocol or probe, with which some models of `every` were not evaluated.

    Models are identified by their settings, because a name may include the model's size in only one of two tables; and
    by their extension if `rows` has it with another value.
    """
    warnings = []
    extended = rows[["config_hash", "extension", "model"]].drop_duplicates()
    for name, group in rows.groupby(column):
        missing = every.loc[~every["config_hash"].isin(set(group["config_hash"])), "model"].tolist()
        there = {*zip(group["config_hash"], group["extension"], strict=True)}
        missing += [
            model for config, extension, model in extended.itertuples(False) if (config, extension) not in there
        ]
        if missing:
            who = ", ".join(dict.fromkeys(missing))
            warnings.append(f"{column} {name}: left out the models that were not evaluated with it ({who})")
    return warnings


def newest_of_most(rows: pd.DataFrame, place: list[str]) -> "pd.Series[bool]":
    """Selects one set of targets at each place: the one with most runs, then the newest."""
    sets = rows.groupby([*place, "targets_hash"]).agg(runs=("run", "nunique"), newest=("evaluated_at", "max"))
    best = sets.sort_values(["runs", "newest"]).reset_index().groupby(place)["targets_hash"].last()
    return rows["targets_hash"] == best.loc[list(rows[place].itertuples(index=False, name=None))].to_numpy()


def strict_mean(losses: "pd.Series[float]") -> float:
    """The mean; missing if any value is, because an encoding that ends before a length has no mean there."""
    return float(losses.mean(skipna=False))


def check_replicates(rows: pd.DataFrame) -> None:
    """Raises UserError if runs of one model differ in more than their seed, or have the same seed.

    Check the rows of all tables and protocols together; otherwise each table may show another run as the model.
    """
    for model, group in rows[IDENTITY].drop_duplicates().groupby("model"):
        if group["config_hash"].nunique() > 1:
            raise UserError(
                f"the runs {', '.join(sorted(set(group['run'])))} are all {model} but differ in more than their seed; "
                "report on them separately"
            )
        if same := set(group.loc[group.duplicated("seed", keep=False), "run"]):
            raise UserError(f"the runs {', '.join(sorted(same))} are one model with one seed; keep one of them")
