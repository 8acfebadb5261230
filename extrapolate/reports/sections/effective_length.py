"""Effective lengths: how far models pass every probe."""

from collections.abc import Sequence

import pandas as pd

from extrapolate.reports.page import Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics.effective import THRESHOLD, effective_lengths

_HOLDS = "no probe fails at any evaluated length"
_NOT_AT_1X = "a probe was not evaluated at 1x"
_ENDS = f"{_HOLDS}, or nothing was measured at this length"
EFFECTIVE_LENGTHS = Described(
    "effective_lengths", "`effective_lengths.parquet` of a report with probes", "model",
    plain(
        Column("model", TEXT, meaning="The model's name; runs that differ only in the seed are one model."),
        Column("probes", INT, meaning="The number of probes."),
        Column("threshold", REAL, "share", meaning="The accuracy that passes a probe."),
        Column(
            "length", INT, "tokens", False,
            "The effective length: up to it, the 95 % interval of every probe's accuracy is above `threshold`.",
            "a probe fails at the shortest length",
        ),
        Column("factor", REAL, "", False, "`length` divided by the training length L.", "`length` is empty"),
        Column("ends_at", INT, "tokens", False, "The next evaluated length, at which a probe fails.", _HOLDS),
        Column("fails", TEXT, "", False, "The probe with the lowest accuracy there.", _HOLDS),
        Column("accuracy", REAL, "share", False, "Its accuracy, the mean over depths and seeds.", _ENDS),
        Column("low", REAL, "share", False, "The lower end of its 95 % interval.", _ENDS),
        Column("high", REAL, "share", False, "The upper end of the same interval.", _ENDS),
        Column(
            "own_length", INT, "tokens", False,
            "The longest length up to which the interval of every probe's accuracy is above `threshold` times the "
            "model's own accuracy at 1x, both counted from chance.",
            f"a probe's accuracy at 1x is not significantly above chance, or {_NOT_AT_1X}",
        ),
        Column("own_factor", REAL, "", False, "`own_length` divided by L.", "`own_length` is empty"),
        Column(
            "own_ends_at", INT, "tokens", False, "The next evaluated length, at which a probe does not.",
            f"{_HOLDS}, or {_NOT_AT_1X}",
        ),
        Column(
            "own_fails", TEXT, "", False, "The probe that is furthest below its share there.",
            f"{_HOLDS}, or {_NOT_AT_1X}",
        ),
    ),
)  # fmt: skip
EXPLAINED = """\
The effective length is the longest at which a model passes all of these probes: {}. A model passes a probe if the lower
end of the 95 % interval of its accuracy, the mean over depths, is at least {:g}, at this length and at every shorter
one; lengths at which one of the probes was not evaluated do not count. A probe that a model never learned fails at
every length, so its effective length then says nothing about its use of context. RULER (arXiv 2404.06654) has a
threshold of about 0.85, but other tasks, so compare effective lengths only within a report.

"Relative to its own 1x" replaces the threshold by {:g} times the model's own accuracy at 1x, both counted from chance.
It tells how far a model keeps what it has learned, even if that is little. The accuracy at 1x is taken as exact; a
probe fails if that accuracy is not significantly above chance."""


@sections.register("effective-length")
class EffectiveLength(Section):
    """The longest context in which each model passes every probe."""

    chapter = "Probes"
    place = 35
    files = ("effective_lengths.parquet",)
    tables = (EFFECTIVE_LENGTHS,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["models"] if len(data.probes) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        found = effective_lengths(data.probes)
        asked = ", ".join(sorted(set(data.probes["probe"])))
        return Part(
            [
                Heading(2, "Effective length"),
                Table(_shown(found), f"the longest length at which every probe reaches {THRESHOLD:g}"),
                Details([Text(EXPLAINED.format(asked, THRESHOLD, THRESHOLD))]),
            ],
            {"effective_lengths.parquet": parquet(found[EFFECTIVE_LENGTHS.names])},
        )


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    """The effective lengths in words, a row for each model."""

    def length(row: pd.Series, own: str = "") -> str:
        reached, ends_at = row[f"{own}length"], row[f"{own}ends_at"]
        if pd.isna(reached):
            return "n/a" if pd.isna(ends_at) else f"below {ends_at}"
        least = "at least " if pd.isna(ends_at) else ""
        return f"{least}{reached} tokens ({row[f'{own}factor']:g}x)"

    def own_length(row: pd.Series) -> str:
        ended = "" if pd.isna(row["own_fails"]) else f", ended by {row['own_fails']}"
        return f"{length(row, 'own_')}{ended}"

    def ends(row: pd.Series) -> str:
        if pd.isna(row["ends_at"]):
            return "nothing"
        if pd.isna(row["accuracy"]):
            return f"the encoding, before {row['ends_at']}"
        return f"{row['fails']} at {row['ends_at']}: {row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"

    return pd.DataFrame(
        {
            "Model": found["model"],
            "Effective length": found.apply(length, axis=1),
            "Ended by": found.apply(ends, axis=1),
            "Relative to its own 1x": found.apply(own_length, axis=1),
            "Probes": found["probes"].astype(str),
        }
    )
