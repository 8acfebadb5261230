"""Whether losses got worse than in a baseline."""

from collections.abc import Sequence

import pandas as pd

from extrapolate.reports.baseline import Checked
from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Details, Table, Text
from extrapolate.reports.sections.base import Part, Section, parquet, sections
from extrapolate.results import verdicts
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics.comparison import p_text

_NO_INTERVAL = "the baseline has fewer than 10 documents, or no rows of documents"
CHECK = Described(
    "check", "`check.parquet` of a report with `--check`", "protocol, length and model of the baseline",
    plain(
        Column("protocol", TEXT, meaning="Which tokens were scored with which context."),
        Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
        Column("model", TEXT, meaning="The model's name; runs that differ only in the seed are one model."),
        Column("before", REAL, "nats per target", meaning="The baseline's loss: the mean over shared seeds."),
        Column("now", REAL, "nats per target", False, "The loss in this report.", "it is gone"),
        Column("difference", REAL, "nats per target", False, "`now` minus `before`.", "`now` is empty"),
        Column("low", REAL, "nats per target", False, "The lower end of its 95 % interval.", _NO_INTERVAL),
        Column("high", REAL, "nats per target", False, "The upper end of the same interval.", _NO_INTERVAL),
        Column(
            "p_corrected", REAL, "", False, "The p value of the difference, corrected for the number of rows (Holm).",
            _NO_INTERVAL,
        ),
        Column("seeds", INT, meaning="The number of shared seeds."),
        Column("seeds_gone", TEXT, "", False, "The seeds of the baseline that have no row now.", "there is none"),
        Column("verdict", TEXT, meaning="`better`, `worse`, `equivalent` or `undecided`, with the tolerance given."),
    ),
)  # fmt: skip


@sections.register("baseline")
class Against(Section):
    """The losses beside those of a baseline: which got worse."""

    chapter = "Against the baseline"
    place = 2
    files = ("check.parquet",)
    tables = (CHECK,)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return [] if material.checked is None else ["check"]

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        found = material.checked
        assert found is not None
        blocks: list[Block] = [Text(found.summary(), strong=not found.worse.empty)]
        ordered = found.rows["verdict"].isin(verdicts.ORDERED)
        told = found.rows[ordered].sort_values(["verdict", "difference"], ascending=False)
        if not told.empty:
            blocks.append(Table(_shown(told), "against the baseline, loss in nats per token"))
        blocks += [Details([Text(_explained(found))]), *(Text(f"{note[0].upper()}{note[1:]}.") for note in found.notes)]
        return Part(blocks, {"check.parquet": parquet(found.rows)})


def _shown(rows: pd.DataFrame) -> pd.DataFrame:
    def interval(row: pd.Series) -> str:
        return "" if pd.isna(row["low"]) else f"[{row['low']:+.3f}, {row['high']:+.3f}]"

    return pd.DataFrame(
        {
            "Model": rows["model"],
            "protocol": rows["protocol"],
            "ev": [f"{factor:g}" for factor in rows["factor"]],
            "before": rows["before"],
            "now": rows["now"],
            "difference": ["n/a" if pd.isna(value) else f"{value:+.3f}" for value in rows["difference"]],
            "95% interval": [interval(row) for _, row in rows.iterrows()],
            "p (Holm)": [p_text(None if pd.isna(p) else p) for p in rows["p_corrected"]],
            "verdict": rows["verdict"],
            "Seeds": [
                f"{seeds}" if pd.isna(gone) else f"{seeds} ({gone} gone)"
                for seeds, gone in zip(rows["seeds"], rows["seeds_gone"], strict=True)
            ],
        }
    )


def _explained(found: Checked) -> str:
    compared = int(found.rows["p_corrected"].notna().sum())
    said = (
        f"{verdicts.explained(found.tolerance)} Better and worse hold after Holm's correction for the number of rows "
        f"with an interval, {compared}. Both losses are on the same targets, and means over the same seeds. A loss "
        "that is gone is worse, even if it is that of one seed."
    )
    if (found.rows["seeds"] == 1).any():
        said += " With one seed, the interval is about these runs: repeating one may give another loss."
    return said
