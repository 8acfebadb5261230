"""How much of the possible gain from longer context each model captures, on text whose optimal loss is known."""

from collections.abc import Sequence

import pandas as pd

from extrapolate.reports.page import Details, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections, suffix
from extrapolate.reports.sections.losses import LOSS, LOSS_BY_EV, MODEL, SEEDS
from extrapolate.results.columns import INT, REAL, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics import comparison
from extrapolate.statistics.comparison import BELOW_OPTIMUM, OPTIMUM, below_optimum
from extrapolate.statistics.seeds import counts

OPTIMUM_BY_EV = Described(
    "optimum_by_ev", "`optimum_by_ev.parquet`, `optimum_by_ev.PROTOCOL.parquet` of a report on `synthetic:` text",
    "model, the optimum first",
    plain(
        MODEL,
        LOSS,
        Column(
            "Gain captured (ev=K)", REAL, "ratio", False,
            "The share of the possible gain from longer windows that the model achieved.",
            "the row is `optimum`, or no gain is possible at this length",
        ),
        Column("Seeds", INT, "", False, SEEDS.meaning, "the row is `optimum`"),
    ),
    base=LOSS_BY_EV,
)  # fmt: skip

OPTIMUM_TEXT = """\
The optimum is the lowest possible loss given each window's own tokens. The gain captured is the share of the possible
gain over 1x that a model achieved: (loss at 1x - loss) / (optimum at 1x - optimum). A flat row captures no gain, even
if it loses nothing."""


@sections.register("optimum")
class Optimum(Section):
    """The optimum, and how much of the possible gain each model captured, on text with a known optimum."""

    continues = "losses"
    files = ("optimum_by_ev.*",)
    tables = (OPTIMUM_BY_EV,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [protocol for protocol, rows in data.rows.items() if has_optimum(rows)]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        best = optimum_by_ev(data.rows[subject], data.models(subject))
        against = data.against(subject, OPTIMUM)
        blocks = [
            Table(best),
            Details([Text(OPTIMUM_TEXT)]),
            *(
                Text(f"{one.model} is below the optimum at {one.factor:g}x. {BELOW_OPTIMUM}", strong=True)
                for one in below_optimum(against)
            ),
            Text("Difference to the optimum, with its 95 % interval:"),
            Table(comparison.against(against, OPTIMUM, data.models(subject))),
            Details([Text(comparison.marked(against))]),
        ]
        return Part(blocks, {f"optimum_by_ev{suffix(subject)}.parquet": parquet(best)})


def has_optimum(rows: pd.DataFrame) -> bool:
    """Whether every row has an optimal loss."""
    return bool(rows["optimum_loss"].notna().all())


def optimum_by_ev(rows: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """`Model`, `Loss (ev=1)`, ..., `Gain captured (ev=2)`, ..., `Seeds`: means over seeds, the optimum first.

    `rows` are one protocol's, on one set of targets. The gain captured is (loss at 1x - loss at k) / (optimum at 1x
    - optimum at k): 1 if all of the possible gain is achieved, 0 if none is, and negative if context harms. It is NaN
    if no gain is possible, and has no columns if 1x was not evaluated.
    """
    optimum = rows.groupby("factor")["optimum_loss"].mean().sort_index()
    losses = rows.pivot_table(index="model", columns="factor", values="loss", dropna=False).loc[order, optimum.index]
    table = pd.concat([optimum.to_frame("optimum").T, losses])
    table.columns = [f"Loss (ev={factor:g})" for factor in table.columns]
    if 1.0 in optimum.index:
        offered = optimum[1.0] - optimum
        gains = losses.mul(-1).add(losses[1.0], axis=0).div(offered.where(offered > 0), axis=1)
        for factor in optimum.index[optimum.index > 1]:
            table[f"Gain captured (ev={factor:g})"] = gains[factor]
    table["Seeds"] = counts(rows).reindex(table.index).astype("Int64")
    table.insert(0, "Model", [*table.index])
    return table.reset_index(drop=True)
