"""How the models were trained: the loss against training tokens, the last losses, and the time of a step."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.folders import METRICS, join_names
from extrapolate.names import AS_TRAINED
from extrapolate.reports import styles
from extrapolate.reports.chart import Axis, Chart, Panel, Series, smoothed
from extrapolate.reports.page import Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, picture, sections
from extrapolate.reports.styles import Style
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.speed import step_rates
from extrapolate.statistics.comparable import strict_mean

KEPT = 0.9  # of the moving average, at each logged step
SETTLED = 0.3  # the averages after this share of the tokens determine the scale of the picture
NEEDED = ("step", "tokens", "loss")
MODEL, SEEDS = "Model", "Seeds"
TRAINING = Described(
    "training", "`training.parquet` of a report on runs that were trained here", "model",
    plain(
        Column(MODEL, TEXT, meaning="The model's name, as trained."),
        Column("Tokens", INT, "tokens", meaning="The tokens that every seed was trained on."),
        Column(
            "Training loss", REAL, "nats per target", meaning="The exponential moving average at the end, of which "
            f"each logged step keeps {KEPT:g}; the mean over seeds.",
        ),
        Column(
            "Validation loss", REAL, "nats per target", False, "The last that all seeds have; the mean over seeds.",
            "a run has no validation",
        ),
        Column(
            "Seconds per 1,000 steps", REAL, "seconds", False, "From the median step time; the mean over seeds.",
            "other cells of a study ran at the same time",
        ),
        Column(SEEDS, INT, meaning="The number of seeds in the means."),
    ),
)  # fmt: skip

EXPLAINED = f"""\
Thin lines are the losses of the steps, one line for each seed. Thick lines are exponential moving averages of their
mean over seeds. An average keeps {KEPT:g} of itself at each logged step, so that about the last
{1 / (1 - KEPT):.0f} steps count. It lags behind while the loss falls fast, and ends where the first seed ends, or at
the first infinite loss. The scale fits the averages, including each seed's own, after the first {SETTLED:.0%} of the
tokens: single steps can be outside."""


@sections.register("training")
class Training(Section):
    """The training loss of each model against training tokens, and the time of a step."""

    chapter = "Along the training"
    place = 27
    files = ("training.parquet", "training_loss.*")
    tables = (TRAINING,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["training"] if _logs(data)[0] else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        found, without = _logs(data)
        logs = {model: [_read(path) for path in paths] for model, paths in found.items()}
        table = pd.DataFrame([_row(model, group) for model, group in logs.items()])
        shown = table.assign(Tokens=[f"{tokens:,}" for tokens in table["Tokens"]])
        seconds = "Seconds per 1,000 steps"
        shown[seconds] = ["n/a" if pd.isna(value) else f"{value:,.1f}" for value in table[seconds]]
        drawn = chart(logs, data.styles)
        blocks = [
            Heading(2, "Training"),
            Plot(drawn),
            Table(shown),
            *([Text(f"Not shown, because their logs are not here: {join_names(without)}.")] if without else []),
            Details([Text(EXPLAINED)]),
        ]
        return Part(blocks, {"training.parquet": parquet(table), **picture(drawn)})


def _logs(data: ReportData) -> tuple[dict[str, list[Path]], list[str]]:
    """The logs of each model's runs, for models as trained, in the order of the tables; and the runs without a log."""
    folders = {name: folder for folder, name in data.evaluated.names.items()}
    found: dict[str, list[Path]] = {}
    without: dict[str, None] = {}
    for protocol, rows in data.rows.items():
        trained = rows.loc[(rows["extension"] == AS_TRAINED) & rows["imported"].isna(), ["model", "run"]]
        for model in data.models(protocol):
            runs = dict.fromkeys(trained[trained["model"] == model]["run"])
            logs = {run: folders[run] / METRICS for run in runs if run in folders}
            logs = {run: log for run, log in logs.items() if log.is_file()}
            without |= dict.fromkeys(run for run in runs if run not in logs)
            if logs:
                found.setdefault(model, [*logs.values()])
    return found, [*without]


def _read(path: Path) -> pd.DataFrame:
    """A run's log. Raises UserError if the file is damaged, has no steps, or lacks columns or values."""
    log, wrong = results.read_frame(path), ""
    if lacking := [name for name in NEEDED if name not in log or not pd.api.types.is_numeric_dtype(log[name])]:
        wrong = f"it has no numbers in {', '.join(lacking)}"
    elif log.empty:
        wrong = "it has no steps"
    elif not np.isfinite(log[["step", "tokens"]].astype(float)).all(axis=None):
        wrong = "a row does not say its step and tokens"
    if wrong:
        raise UserError(f"{path} is no log of a training: {wrong}")
    return log


def _mean(logs: Sequence[pd.DataFrame], column: str = "loss") -> "pd.Series[float]":
    """The mean of a column over runs, by tokens, up to where the first run ends."""
    each = [log.dropna(subset=column).groupby("tokens")[column].last() for log in logs]
    return pd.concat(each, axis=1, join="inner").sort_index().mean(axis=1, skipna=False)


def _row(model: str, logs: Sequence[pd.DataFrame]) -> dict[str, object]:
    return {
        MODEL: model,
        "Tokens": min(int(log["tokens"].max()) for log in logs),
        "Training loss": _last(smoothed(_mean(logs), KEPT)),
        "Validation loss": _last(_mean([log.reindex(columns=[*NEEDED, "val_loss"]) for log in logs], "val_loss")),
        "Seconds per 1,000 steps": strict_mean(pd.Series([_seconds(log) for log in logs])),
        SEEDS: len(logs),
    }


def _last(losses: "pd.Series[float]") -> float:
    """The last value that is not NaN; NaN if there is none."""
    found = losses.dropna()
    return float(found.iloc[-1]) if len(found) else float("nan")


def _seconds(log: pd.DataFrame) -> float:
    """The seconds that 1,000 steps took; NaN if the speed is not known."""
    if (rates := step_rates(log)) is None:
        return float("nan")
    last = log.iloc[-1]
    return float(1000 * last["tokens"] / last["step"] / rates.median())


def chart(logs: Mapping[str, Sequence[pd.DataFrame]], style: Mapping[str, Style]) -> Chart:
    """The losses of the steps, a thin line for each run, and the moving averages of their means.

    Models that the picture does not name have no thin lines.
    """
    averages = {model: smoothed(_mean(logs[model]), KEPT) for model in style if model in logs}
    last = [_last(average) for average in averages.values()]
    at_end = pd.DataFrame({"model": [*averages], "extension": AS_TRAINED, "factor": 1.0, "loss": last})
    named, lines = styles.named(style, at_end), []
    for model in averages:
        own = style[model] if model in named else None
        for log in logs[model] if own else []:
            steps = log.dropna(subset="loss").sort_values("tokens")
            lines.append(Series(model, steps["tokens"], steps["loss"], own, "thin"))
        mean = _mean(logs[model]).dropna()
        lines.append(Series(model, mean.index, mean, own))
    # Before a share of the tokens, all lines are still falling: the averages after it determine the scale, and the ends
    # of the thin lines, which in a short training are far below the averages.
    each = [*averages.values(), *(smoothed(_mean([log]), KEPT) for model in named for log in logs[model])]
    since = SETTLED * max((average.index.max() for average in each if len(average)), default=0)
    settled = pd.concat([average[average.index >= since] for average in each], ignore_index=True)
    ends = pd.Series([_last(log["loss"]) for model in named for log in logs[model]], dtype=float)
    y = Axis("training loss (nats per token)", range=styles.limits(settled, ends))
    panel = Panel(lines, Axis("training tokens"), y, f"Thin: steps; thick: moving average ({KEPT:g})", since=since)
    said = "Loss of each training step. Thick: moving averages over the mean of a model's seeds."
    return Chart("training loss against tokens", "training_loss.png", [panel], KEPT, said)
