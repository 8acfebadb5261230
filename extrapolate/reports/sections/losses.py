"""Loss by evaluation length, and the difference to the control."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by
from extrapolate.folders import join_names
from extrapolate.names import AS_TRAINED
from extrapolate.reports import latex, plots, styles, tables
from extrapolate.reports.chart import Axis, Chart, Panel, Series, coinciding
from extrapolate.reports.chart import seeds as seeds_of
from extrapolate.reports.page import Block, Details, Heading, OnlyMarkdown, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, picture, sections, suffix, text, with_conditions
from extrapolate.reports.styles import MOST_BANDS, Style
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics import comparison, seeds
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import Comparison

MOST_TICKS = 9
_DRAWN = ["model", "run", "factor", "loss"]  # the only columns that need copying for each selection of rows
BEST_CONTROL = "best control"
LOSS_AXIS = "loss (nats per token)"
MODEL = Column("Model", TEXT, meaning="The model's name; runs that differ only in the seed are one model.")
LOSS = Column(
    "Loss (ev=K)", REAL, "nats per target", False,
    "The mean loss over seeds at K times the training length.",
    "nothing was measured at this length",
)  # fmt: skip
SEEDS = Column("Seeds", INT, meaning="The number of seeds in the means.")
LOSS_BY_EV = Described(
    "loss_by_ev", "`loss_by_ev.parquet` of a report for `windows`, `loss_by_ev.PROTOCOL.parquet` for the others",
    "model",
    plain(
        MODEL,
        LOSS,
        Column(
            "Training time", REAL, "ratio", False,
            "The training time divided by the baseline's (RoPE, or `--baseline`).",
            "there is no baseline, the training time is not known, or training shared the machine or used another one",
        ),
        SEEDS,
    ),
)  # fmt: skip

CONTROL_TEXT = """\
The control is the plain model on the same targets, with its context cut back to between L/2 and L tokens. Under
windows, rows at 1x score worse than the control, because every window starts without context; longer windows start less
often. Under fixed-target, a row above the control is harmed by length. A row below the control is helped by context
that the control lacks. That may still be the last L tokens, because the control has only some of them. A model uses
context beyond L if its loss under fixed-target keeps falling from 2x to 4x and further."""
BANDS = """\
Thin lines are seeds. The band around a mean is its 95 % interval over seeds, by Student's t: where the mean of many
seeds would lie, on these targets. The bands of two models can overlap although the models differ significantly, because
both were trained with the same seeds: compare models by the intervals of their differences."""
TOO_MANY_BANDS = f"Thin lines are seeds. More than {MOST_BANDS} models have several, so the picture has no bands."
BY_WINDOW_TEXT = """\
Published figures of this protocol are perplexities that give every window the same weight, however many tokens it
scores. The first window of a document, which scores all of its tokens, many with little context, counts as one. Beside
them are perplexities that give every token the same weight: e to the power of the losses above."""
STRETCHES = (
    "There are fewer than 30 documents, so contiguous stretches of 16 L tokens were resampled instead. Stretches of "
    "one document are alike, which makes intervals too narrow rather than too wide."
)


@sections.register("losses")
class Losses(Section):
    """The losses of one protocol by evaluation length, their spread over seeds, and the difference to the control."""

    chapter = "Loss by evaluation length"
    place = 10
    files = ("loss_by_ev.*",)
    tables = (LOSS_BY_EV,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return data.protocols()

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows, table = data.rows[subject], data.losses[subject]
        stem, said = f"loss_by_ev{suffix(subject)}", tables.caption(rows)
        # Cells of a sweep that ran beside others have no time worth showing.
        shown = table.drop(columns="Training time") if table["Training time"].isna().all() else table
        blocks: list[Block] = [
            Heading(2, f"Protocol {subject}"),
            Table(shown, f"{subject}, loss in nats per token"),
            Details([Text(said)]),
        ]
        if known_by(subject).by_window:
            blocks += [Text(BY_WINDOW_TEXT), Table(tables.by_window(rows), f"{subject}, perplexity")]
        if (spread := tables.seed_spread(rows)) is not None:
            blocks += [Text("Standard deviation over seeds:"), Table(spread)]
        if (worst := tables.worst_seed(rows)) is not None:
            blocks += [Text("Loss of the worst seed at each length:"), Table(worst)]
        against = data.against(subject, comparison.CONTROL)
        stretches = [Text(STRETCHES)] if any(one.clusters == "stretches" for one in against) else []
        drawn = with_conditions(rows, chart(rows, data.styles, against, f"Protocol {subject}", f"{stem}.png"))
        blocks += [
            # The overview has all charts on the HTML page, and the first one in Markdown.
            *([OnlyMarkdown(Plot(drawn))] if subject != data.protocols()[0] else []),
            Text("Difference to the control, with its 95 % interval:"),
            Table(comparison.against(against, comparison.CONTROL, data.models(subject))),
            Details([Text(CONTROL_TEXT), Text(comparison.marked(against)), *stretches]),
            *_from_first(data, subject),
        ]
        return Part(
            blocks,
            {
                f"{stem}.parquet": parquet(table),
                f"{stem}.tex": text(latex.table(shown, f"Protocol {subject}. {said}")),
                f"{stem}.svg": partial(plots.draw, drawn),
                **picture(drawn),
            },
        )


def _from_first(data: ReportData, protocol: str) -> list[Block]:
    """The differences from the first model, which is the baseline's; nothing if it is alone."""
    first, *others = data.models(protocol)
    sums = [one for one in data.sums if one.protocol == protocol]
    made = comparison.corrected(list(comparison.of_sums(sums, controls=False, reference=first)), "holm")
    if not any(one.difference for one in made):
        return []
    shown = comparison.against(made, first, others)
    return [
        Text(f"Difference from {first}, on the seeds that both have:"),
        Table(shown),
        Details([Text(comparison.marked(made))]),
    ]


def _bands(rows: pd.DataFrame, style: Mapping[str, Style]) -> pd.DataFrame | None:
    """The bands of the models that a picture names; None if there are too many."""
    found = seeds.bands(rows[rows["model"].isin(styles.named(style, rows))])
    return found if found["model"].nunique() <= MOST_BANDS else None


def _around(rows: pd.DataFrame, style: Mapping[str, Style], bands: pd.DataFrame | None) -> pd.DataFrame:
    """The ends of the seeds and bands that a picture draws, by model and factor, for `styles.limits`."""
    found = seeds.around(rows[rows["model"].isin(styles.named(style, rows))])
    return found if bands is None else found.join(bands.set_index(["model", "factor"]))


def about_seeds(rows: pd.DataFrame, style: Mapping[str, Style]) -> list[Block]:
    """Explains the lines and bands of seeds; nothing if each model has one seed."""
    found = _bands(rows, style)
    if found is None:
        return [Text(TOO_MANY_BANDS)]
    return [] if found.empty else [Text(BANDS)]


def chart(
    rows: pd.DataFrame, style: Mapping[str, Style], against: Sequence[Comparison], title: str, file: str
) -> Chart:
    """The mean loss of each model against the evaluation length, and the lowest control's as a line.

    If a model has several seeds, each is a thin line, and the mean has a band. On the page, tooltips show the
    difference to the control. `rows` are one protocol's, on one set of targets.
    """
    named, factors = styles.named(style, rows), sorted(set(rows["factor"]))
    bands = _bands(rows, style)
    means = pd.Series(rows.groupby(["model", "factor"])["loss"].agg(strict_mean), dtype=float)
    found = {(one.model, one.factor): one.difference for one in against if one.difference is not None}
    control = rows[rows["extension"] == AS_TRAINED].groupby("model")["control_loss"].mean()
    best = pd.Series([control.min()] * len(factors), dtype=float)
    lines = [Series(BEST_CONTROL, factors, best, kind="reference")] if len(control) else []
    for model in styles.drawn(style, rows):
        own = style[model] if model in named else None
        lines += seeds_of(rows[_DRAWN][rows["model"] == model], model, own)
        ends = bands[bands["model"] == model] if bands is not None else pd.DataFrame(columns=["factor", "low", "high"])
        band = ends.set_index("factor").reindex(factors)
        here = [found.get((model, factor)) for factor in factors]
        said = [f", against its control {one.text()}" if one else "" for one in here]
        mean = means.loc[[model]].droplevel("model").reindex(factors)
        lines.append(Series(model, factors, mean, own, low=band["low"], high=band["high"], texts=said))
    shown = factors[:: -(-len(factors) // MOST_TICKS)]
    below = f"evaluation length / training length (L = {rows['seq_len'].iloc[0]} tokens)"
    x = Axis(below, "log", {factor: f"{factor:g}x" for factor in shown})
    y = Axis(LOSS_AXIS, range=styles.limits(means, best, around=_around(rows, style, bands)))
    caption = "Mean loss against the evaluation length."
    if any(one.kind == "thin" for one in lines):
        caption += " Thin lines are seeds" + (", and bands 95 % intervals over seeds." if bands is not None else ".")
    if len(control):
        caption += " Dashed: the lowest control, a model as trained that sees at most L tokens."
    for names in coinciding(lines, y.range):
        caption += f" The lines of {join_names(names)} lie on each other."
    return Chart("loss against length", file, [Panel(lines, x, y, title)], caption=caption)
