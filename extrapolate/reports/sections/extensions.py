"""How each extension changes the loss at each length, relative to the same run without it."""

import math
from collections.abc import Sequence

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports.chart import MOST_ROWS, Chart, differences
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, picture, sections, suffix, with_conditions
from extrapolate.reports.svg import Plot
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST
from extrapolate.statistics.comparable import strict_mean

MODEL, PLAIN, HELPS, HARMS, SEEDS = "Model", "As trained", "Helps at", "Harms at", "Seeds"
EXTENSIONS = Described(
    "extensions", "`extensions.parquet` of a report for `windows`, `extensions.PROTOCOL.parquet` for the others, "
    "if extensions were evaluated", "model with an extension",
    plain(
        Column(MODEL, TEXT, meaning="The model's name, with its extension."),
        Column(PLAIN, TEXT, meaning="The same model as it was trained."),
        Column(
            "Difference (ev=K)", REAL, "nats per target", False, "The loss with the extension minus that without "
            "it, at K times the training length; the mean over seeds.", "one of the two has no loss",
        ),
        Column(HELPS, TEXT, meaning=f"The lengths at which the difference is -{LEAST:g} or less, or `none`."),
        Column(HARMS, TEXT, meaning=f"The lengths at which it is {LEAST:g} or more, or `none`."),
        Column(SEEDS, INT, meaning="The number of seeds in the means."),
    ),
)  # fmt: skip
EXPLAINED = f"""\
The loss with an extension minus that of the same run as it was trained, on the same targets, as the mean over seeds. An
extension helps if this is -{LEAST:g} nats or less, and harms if it is {LEAST:g} or more. At 1x it shows what the
extension costs. `extrapolate compare --extensions` tells how sure a difference is."""
FEWER = "The picture has the {} extensions with the lowest difference at the longest length, of {}. The table has all."


@sections.register("extensions")
class Extensions(Section):
    """How each extension changes the loss at each length: where it helps, where it harms, and what it costs at 1x."""

    chapter = "Extensions"
    place = 25
    files = ("extensions.*",)
    tables = (EXTENSIONS,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [protocol for protocol, rows in data.rows.items() if len(_with_plain(rows))]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        table, stem = against_plain(data.rows[subject], data.models(subject)), f"extensions{suffix(subject)}"
        changed = [str(column) for column in table if str(column).startswith("Difference")]
        shown = table.sort_values(changed[-1]).head(MOST_ROWS).sort_index() if len(table) > MOST_ROWS else table
        columns = {column: f"{column.removeprefix('Difference (ev=').removesuffix(')')}x" for column in changed}
        title = f"Loss minus that without the extension (nats), protocol {subject}"
        map_ = differences(title, shown[changed].rename(columns=columns), list(shown[MODEL]))
        said = "Loss with an extension minus that of the same run without it, by length."
        drawn = Chart("the change of the loss by extension and length", f"{stem}.png", map_, caption=said)
        drawn = with_conditions(data.rows[subject], drawn)
        texts = table[[MODEL, *changed, HELPS, HARMS, SEEDS]].assign(
            **{column: [_text(value) for value in table[column]] for column in changed}
        )
        blocks: list[Block] = [
            Heading(2, f"Extensions against the models as trained, protocol {subject}"),
            Plot(drawn),
            *([Text(FEWER.format(len(shown), len(table)))] if len(table) > len(shown) else []),
            Table(texts),
            Details([Text(EXPLAINED)]),
        ]
        return Part(blocks, {f"{stem}.parquet": parquet(table), **picture(drawn)})


def against_plain(rows: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """The columns of EXTENSIONS, a row for each model with an extension whose run was also evaluated without it.

    rows: one protocol's, on one set of targets. order: the models in the order of the tables; any others come last.
    """
    factors, both, places = sorted(set(rows["factor"])), _with_plain(rows), {name: at for at, name in enumerate(order)}
    differences = both.groupby(["model", "factor"])["difference"].agg(strict_mean).to_dict()
    found = []
    for model in sorted(set(both["model"]), key=lambda name: places.get(name, len(order))):
        group = both[both["model"] == model]
        means = {factor: differences.get((model, factor), math.nan) for factor in factors}
        found.append(
            {MODEL: model, PLAIN: group["model_plain"].iloc[0]}
            | {f"Difference (ev={factor:g})": mean for factor, mean in means.items()}
            | {HELPS: _at(means, -1), HARMS: _at(means, 1), SEEDS: group["seed"].nunique(dropna=False)}
        )
    return pd.DataFrame(found)


def _with_plain(rows: pd.DataFrame) -> pd.DataFrame:
    """The losses with extensions, beside `loss_plain` of `model_plain`, the same run without."""
    key = ["run", "seed", "factor"]
    losses = rows[[*key, "model", "extension", "loss"]]
    without = losses[losses["extension"] == AS_TRAINED].drop(columns="extension")
    both = losses[losses["extension"] != AS_TRAINED].merge(without, on=key, suffixes=("", "_plain"))
    return both.assign(difference=both["loss"] - both["loss_plain"])


def _at(means: dict[float, float], sign: int) -> str:
    """The lengths at which the difference has this sign and is large enough to matter, in words."""
    return ", ".join(f"{factor:g}x" for factor, mean in means.items() if sign * mean >= LEAST) or "none"


def _text(value: float) -> str:
    return "n/a" if value != value else f"{value:+.3f}"
