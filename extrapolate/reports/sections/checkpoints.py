"""How extrapolation changes along the training: losses and failure lengths of checkpoints, by the tokens seen."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by
from extrapolate.reports import plots, styles, traces
from extrapolate.reports.chart import Chart
from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Heading, OnlyHtml, Table, Text
from extrapolate.reports.sections.base import Part, Section, parquet, sections, suffix
from extrapolate.reports.sections.losses import LOSS, MODEL, SEEDS
from extrapolate.reports.styles import Style
from extrapolate.results.columns import INT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST
from extrapolate.statistics import seeds
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.positions import Failure, by_position, failures

MOST_COLUMNS = 10  # of tokens, in a table of the page
TOKENS, FAILS, HOLDS = "Tokens", "Failure length", "Holds to"
CHECKPOINTS = Described(
    "checkpoints", "`checkpoints.parquet` of a report for `windows`, `checkpoints.PROTOCOL.parquet` for the others, "
    "if intermediate checkpoints were evaluated", "model and checkpoint",
    plain(
        MODEL,
        Column(TOKENS, INT, "tokens", meaning="How many tokens the checkpoint was trained on."),
        LOSS,
        Column(
            FAILS, INT, "tokens", False,
            "As `fails_from` of `failure_lengths`, at 95 % for all models at one checkpoint; in the longest windows if "
            "a model has several.",
            "no bucket fails, or the protocol has no losses by position",
        ),
        Column(
            HOLDS, INT, "tokens", False, "As `holds_to` of the same table.",
            "the first bucket beyond L may fail, or the protocol has no losses by position",
        ),
        SEEDS,
    ),
)  # fmt: skip

ALONG = """\
The same runs after fewer tokens, on the same targets. Thick lines are means over seeds, thin lines the seeds. Whether a
change is sure is not judged here."""


@sections.register("checkpoints")
class Checkpoints(Section):
    """The loss at the shortest and the longest length, and the failure length, against training tokens."""

    chapter = "Along the training"
    place = 28
    files = ("checkpoints.*",)
    tables = (CHECKPOINTS,)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return [name for name, rows in material.along.items() if (rows.groupby("run")["step"].nunique() > 1).any()]

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        rows, order, stem = material.along[subject], material.models(subject), f"checkpoints{suffix(subject)}"
        table = by_checkpoint(rows, order, _failures(material, subject))
        near, far = (f"Loss (ev={factor:g})" for factor in (rows["factor"].min(), rows["factor"].max()))
        blocks: list[Block] = [
            Heading(2, f"Extrapolation by training tokens, protocol {subject}"),
            chart(rows, table, material.styles, f"{stem}.png"),
            *(
                [OnlyHtml(fails_chart(rows, table, material.styles, f"{stem}.png"))]
                if table[FAILS].notna().any()
                else []
            ),
            Text(ALONG),
            *map(Text, in_words(table, near, far)),
        ]
        for column in dict.fromkeys([near, far, FAILS]):
            if table[column].notna().any():
                blocks += [Text(f"{column}, by training tokens:"), Table(_by_tokens(table, column))]
        picture = partial(draw, rows, table, material.styles)
        return Part(blocks, {f"{stem}.parquet": parquet(table), f"{stem}.png": picture})


def _failures(material: Material, protocol: str) -> dict[tuple[str, int], Failure]:
    """By model and step, the failure length, where the protocol has losses by position; in the longest windows."""
    if not known_by(protocol).positions:
        return {}
    documents = material.documents_along[material.documents_along["protocol"] == protocol]
    return {
        (one.model, int(str(step))): one
        for step, mine in documents.groupby("step")
        for one in sorted(failures(by_position(mine)), key=lambda one: one.length)
    }


def by_checkpoint(rows: pd.DataFrame, order: Sequence[str], failed: Mapping[tuple[str, int], Failure]) -> pd.DataFrame:
    """CHECKPOINTS' columns: means over seeds, a row for each model, in this order, and each of its checkpoints.

    A model that was trained elsewhere has none: its tokens are not known.
    """
    factors = sorted(set(rows["factor"]))
    found = []
    for model in order:
        own = rows[(rows["model"] == model) & rows["tokens"].notna()]
        for step, mine in own.groupby("step"):
            if mine["run"].nunique() < own["run"].nunique():
                continue  # a mean over some seeds beside a mean over all would show the seeds
            failure = failed.get((model, int(str(step))))
            found.append(
                {MODEL.name: model, TOKENS: int(mine["tokens"].iloc[0])}
                | {f"Loss (ev={factor:g})": strict_mean(mine[mine["factor"] == factor]["loss"]) for factor in factors}
                | {FAILS: failure and failure.fails_from, HOLDS: failure and failure.holds_to}
                | {SEEDS.name: mine["seed"].nunique(dropna=False)}
            )
    return pd.DataFrame(found).astype({FAILS: "Int64", HOLDS: "Int64"})


def in_words(table: pd.DataFrame, near: str, far: str) -> list[str]:
    """For each model with several checkpoints what became of its losses, and whether the far one rose again.

    Of more than MANY models it only says where to look.
    """
    said = []
    for model, mine in table.dropna(subset=far).groupby(MODEL.name, sort=False):
        first, last, best = mine.iloc[0], mine.iloc[-1], mine.iloc[int(mine[far].argmin())]
        if len(mine) < 2:
            continue
        text = f"{model}: from {first[TOKENS]:,} to {last[TOKENS]:,} tokens, "
        text += f"{near} changed by {last[near] - first[near]:+.3f}"
        if near != far:
            text += f" and {far} by {last[far] - first[far]:+.3f}. The latter is above the former by "
            text += f"{first[far] - first[near]:+.3f} at first, {last[far] - last[near]:+.3f} at the end"
        if last[far] - best[far] >= LEAST:
            text += (
                f". {far} was lowest after {best[TOKENS]:,} tokens, and rose by {last[far] - best[far]:.3f} to the end"
            )
        said.append(f"{text}.")
    if len(said) > styles.MANY:
        return [f"The tables below say what became of the losses of each of the {len(said)} models."]
    return said


def _by_tokens(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """One column of CHECKPOINTS with a row for each model and a column for each number of tokens, or the most of them
    that fit, spread evenly, the first and the last among them. A cell is empty where a model has no such checkpoint."""
    steps = sorted(set(table[TOKENS]))
    if len(steps) > MOST_COLUMNS:
        steps = [steps[round(at * (len(steps) - 1) / (MOST_COLUMNS - 1))] for at in range(MOST_COLUMNS)]
    text, none = ("{:.0f}".format, "not found") if column == FAILS else ("{:.3f}".format, "n/a")
    texts = table.assign(text=[none if pd.isna(value) else text(value) for value in table[column]])
    wide = texts.pivot(index=MODEL.name, columns=TOKENS, values="text").reindex(table[MODEL.name].drop_duplicates())
    shown = wide[steps].fillna("").rename(columns="{:,}".format)
    return shown.reset_index().rename_axis(columns=None)


def draw(rows: pd.DataFrame, table: pd.DataFrame, style: Mapping[str, Style], path: Path) -> None:
    """Draws the loss at the shortest and at the longest length, and the failure length, against training tokens.

    Each seed of a model is a thin line behind the mean. A line has a gap where no failure was found.
    """
    known, named = _known(rows, style)
    near, far = rows["factor"].min(), rows["factor"].max()
    factors = list(dict.fromkeys([near, far]))
    fails = table[FAILS].notna().any()
    sheet = plots.Sheet(len(factors) + int(fails), style, named, one_scale=False)
    panels = [*sheet.panels[int(fails) :]]  # the failure length first, so that names stand beside the longest windows
    for model in styles.drawn(style, known):
        mean = table[table[MODEL.name] == model]
        for panel, factor in zip(panels, factors, strict=True):
            sheet.seeds(panel, rows[(rows["model"] == model) & (rows["factor"] == factor)], model, against="tokens")
            sheet.curve(panel, mean[TOKENS], mean[f"Loss (ev={factor:g})"], model)
        if fails:
            sheet.curve(sheet.panels[0], mean[TOKENS], mean[FAILS].astype(float), model)
    for panel, factor in zip(panels, factors, strict=True):
        sheet.fit(panel, *_reach(known, table, factor, named))
        panel.set_title(f"loss at {factor:g}x (nats per token)", fontsize="medium")
    if fails:
        sheet.panels[0].set_title(f"failure length, up to {far:g}x (tokens)", fontsize="medium")
        sheet.panels[0].set_ylim(bottom=0)
    for panel in sheet.panels:
        plots.tokens_below(panel)
        panel.set_xlim(panels[0].get_xlim())  # a line of failure lengths may begin later
    sheet.save(path)


def chart(rows: pd.DataFrame, table: pd.DataFrame, style: Mapping[str, Style], file: str) -> Chart:
    """The loss at the longest length against training tokens; a picture shows the shortest and failure lengths too."""
    known, named = _known(rows, style)
    far = rows["factor"].max()
    column, lines = f"Loss (ev={far:g})", []
    for model in styles.drawn(style, known):
        if model in named:
            mine = known[(known["model"] == model) & (known["factor"] == far)].sort_values("tokens")
            each = mine.groupby("run") if mine["run"].nunique() > 1 else ()
            lines += [traces.thin(model, seed["tokens"], seed["loss"], style[model]) for _, seed in each]
        mean = table[table[MODEL.name] == model]
        lines.append(traces.curve(model, mean[TOKENS], mean[column], style[model] if model in named else None))
    means, around = _reach(known, table, far, named)
    shape = traces.layout("training tokens", f"loss at {far:g}x (nats per token)", means, around=around)
    return Chart("losses against training tokens", file, traces.arranged(lines), shape)


def fails_chart(rows: pd.DataFrame, table: pd.DataFrame, style: Mapping[str, Style], file: str) -> Chart:
    """The failure length against training tokens; a line has a gap where none was found."""
    known, named = _known(rows, style)
    lines = []
    for model in styles.drawn(style, known):
        mine = table[table[MODEL.name] == model]
        own = style[model] if model in named else None
        lines.append(traces.curve(model, mine[TOKENS], mine[FAILS].astype(float), own))
    shape = traces.layout("training tokens; a gap: none found", f"{FAILS.lower()} (tokens)", pd.Series(dtype=float))
    shape["yaxis"]["rangemode"] = "tozero"
    text = f"{FAILS.lower()} against training tokens, in windows of up to {rows['factor'].max():g}x"
    return Chart(text, file, traces.arranged(lines), shape)


def _reach(
    known: pd.DataFrame, table: pd.DataFrame, factor: float, named: Sequence[str]
) -> "tuple[pd.Series[float], pd.DataFrame]":
    """The mean losses at one factor, by model and tokens, and how far the seeds that are drawn around them reach."""
    means = table.set_index([MODEL.name, TOKENS])[f"Loss (ev={factor:g})"]
    return means, seeds.around(known[known["model"].isin(named) & (known["factor"] == factor)], "tokens")


def _known(rows: pd.DataFrame, style: Mapping[str, Style]) -> tuple[pd.DataFrame, list[str]]:
    """The rows whose tokens are known, and which of their models have names, by their last checkpoints."""
    known = rows[rows["tokens"].notna()]
    return known, styles.named(style, known[known["step"] == known.groupby("run")["step"].transform("max")])
