"""How extrapolation changes during training: losses and failure lengths of checkpoints, by training tokens."""

from collections.abc import Mapping, Sequence

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by
from extrapolate.reports import styles
from extrapolate.reports.chart import Axis, Chart, Panel, Series
from extrapolate.reports.chart import seeds as seeds_of
from extrapolate.reports.page import Block, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, picture, sections, suffix, with_conditions
from extrapolate.reports.sections.losses import LOSS, MODEL, SEEDS
from extrapolate.reports.styles import Style
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import INT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST
from extrapolate.statistics import seeds
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.documents import has_positions
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
The same runs after fewer tokens, on the same targets. Thick lines are means over seeds, thin lines the seeds. Whether
changes are significant is not judged here."""


@sections.register("checkpoints")
class Checkpoints(Section):
    """The loss at the shortest and the longest length, and the failure length, against training tokens."""

    chapter = "Along the training"
    place = 28
    files = ("checkpoints.*",)
    tables = (CHECKPOINTS,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [name for name, rows in data.along.items() if _have_means(rows)]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows, order, stem = data.along[subject], data.models(subject), f"checkpoints{suffix(subject)}"
        table = by_checkpoint(rows, order, _failures(data, subject))
        near, far = (f"Loss (ev={factor:g})" for factor in (rows["factor"].min(), rows["factor"].max()))
        drawn = with_conditions(rows, chart(rows, table, data.styles, f"{stem}.png"))
        blocks: list[Block] = [
            Heading(2, f"Extrapolation by training tokens, protocol {subject}"),
            Plot(drawn),
            Text(ALONG),
            *map(Text, in_words(table, near, far)),
        ]
        for column in dict.fromkeys([near, far, FAILS]):
            if table[column].notna().any():
                blocks += [Text(f"{column}, by training tokens:"), Table(_by_tokens(table, column))]
        return Part(blocks, {f"{stem}.parquet": parquet(table), **picture(drawn)})


def _have_means(rows: pd.DataFrame) -> bool:
    """Whether some model has means over its seeds at several checkpoints; half the budget is shown elsewhere."""
    known = rows[rows["tokens"].notna()]
    fewest = 2 if known["annealed"].eq(False).any() else 3
    return any(
        sum(not seeds.lacks_runs(group, own) for _, group in own.groupby("step")) >= fewest
        for _, own in known.groupby("model")
    )


def _failures(data: ReportData, protocol: str) -> dict[tuple[str, int], Failure]:
    """The failure length in the longest windows by model and step; empty without losses by position."""
    documents = data.documents_along[data.documents_along["protocol"] == protocol]
    if not known_by(protocol).positions or not has_positions(documents, data.seq_len(protocol)):
        return {}
    return {
        (one.model, int(str(step))): one
        for step, group in documents.groupby("step")
        for one in sorted(failures(by_position(group)), key=lambda one: one.length)
    }


def by_checkpoint(rows: pd.DataFrame, order: Sequence[str], failed: Mapping[tuple[str, int], Failure]) -> pd.DataFrame:
    """The columns of CHECKPOINTS, means over seeds: a row for each model, in this order, and each of its checkpoints.

    A model that was trained elsewhere has none, since its training tokens are not known.
    """
    factors = sorted(set(rows["factor"]))
    found = []
    for model in order:
        own = rows[(rows["model"] == model) & rows["tokens"].notna()]
        for step, group in own.groupby("step"):
            if seeds.lacks_runs(group, own):
                continue  # the mean over some seeds is not comparable with the mean over all
            failure = failed.get((model, int(str(step))))
            found.append(
                {MODEL.name: model, TOKENS: int(group["tokens"].iloc[0])}
                | {f"Loss (ev={factor:g})": strict_mean(group[group["factor"] == factor]["loss"]) for factor in factors}
                | {FAILS: failure and failure.fails_from, HOLDS: failure and failure.holds_to}
                | {SEEDS.name: group["seed"].nunique(dropna=False)}
            )
    return pd.DataFrame(found).astype({FAILS: "Int64", HOLDS: "Int64"})


def in_words(table: pd.DataFrame, near: str, far: str) -> list[str]:
    """For each model with several checkpoints, how its losses changed, and whether the far one rose again.

    With more than MANY models, it only refers to the tables.
    """
    said = []
    for model, group in table.dropna(subset=far).groupby(MODEL.name, sort=False):
        first, last, best = group.iloc[0], group.iloc[-1], group.iloc[int(group[far].argmin())]
        if len(group) < 2:
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
    """One column of CHECKPOINTS, with a row for each model and a column for each number of tokens.

    At most MOST_COLUMNS of them, evenly spread from the first to the last. A cell is empty if a model has no such
    checkpoint.
    """
    steps = sorted(set(table[TOKENS]))
    if len(steps) > MOST_COLUMNS:
        steps = [steps[round(at * (len(steps) - 1) / (MOST_COLUMNS - 1))] for at in range(MOST_COLUMNS)]
    text, none = ("{:.0f}".format, "not found") if column == FAILS else ("{:.3f}".format, "n/a")
    texts = table.assign(text=[none if pd.isna(value) else text(value) for value in table[column]])
    wide = texts.pivot(index=MODEL.name, columns=TOKENS, values="text").reindex(table[MODEL.name].drop_duplicates())
    shown = wide[steps].fillna("").rename(columns="{:,}".format)
    return shown.reset_index().rename_axis(columns=None)


def chart(rows: pd.DataFrame, table: pd.DataFrame, style: Mapping[str, Style], file: str) -> Chart:
    """The failure length, and the loss at the shortest and at the longest length, against training tokens.

    Each seed of a model is a thin line. A line has a gap at checkpoints without a failure.
    """
    known = rows[rows["tokens"].notna()]
    last = known[known["step"] == known.groupby("run")["step"].transform("max")]
    named, near, far = styles.named(style, last), rows["factor"].min(), rows["factor"].max()
    first, end = float(known["tokens"].min()), float(known["tokens"].max())
    margin = 0.05 * (end - first) or 1.0
    x = Axis("training tokens", range=(first - margin, end + margin))

    def panel(column: str, title: str, of_seeds: pd.DataFrame, limits: tuple[float, float] | None) -> Panel:
        lines = []
        for model in styles.drawn(style, known):
            own, mean = style[model] if model in named else None, table[table[MODEL.name] == model]
            lines += seeds_of(of_seeds[of_seeds["model"] == model], model, own, "tokens")
            lines.append(Series(model, mean[TOKENS], mean[column].astype(float), own))
        return Panel(lines, x, Axis(range=limits), title)

    panels = []
    if table[FAILS].notna().any():
        most = 1.05 * float(table[FAILS].max())
        panels.append(panel(FAILS, f"failure length, up to {far:g}x (tokens)", known[:0], (0.0, most)))
    for factor in dict.fromkeys([near, far]):  # the names are beside the longest windows
        column, group = f"Loss (ev={factor:g})", known[known["factor"] == factor]
        around = seeds.around(group[group["model"].isin(named)], "tokens")
        limits = styles.limits(table.set_index([MODEL.name, TOKENS])[column], around=around)
        panels.append(panel(column, f"loss at {factor:g}x (nats per token)", group, limits))
    said = "The models along their training."
    if any(one.kind == "thin" for panel in panels for one in panel.series):
        said += " Thin lines are seeds."
    return Chart("losses against training tokens", file, panels, caption=said)
