"""Where in the context the loss rises: losses by position in the window, and failure lengths."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from extrapolate.evaluation.protocols.base import known_by
from extrapolate.reports import position_charts, position_pictures, styles
from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Heading, Table, Text
from extrapolate.reports.positions import OF_ALL, Failure, by_position, failure_table, failures, with_seeds
from extrapolate.reports.sections.base import Part, Section, Writer, parquet, sections, suffix
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST

_CURVE = (
    Column("model", TEXT, meaning="The model's name in tables."),
    Column(
        "windows",
        TEXT,
        meaning="Of which windows a failure length is: `up to 16x`, of all lengths, because a token's loss does not "
        "depend on how long its window is; `16x`, of this length alone.",
    ),
    Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
    Column("length", INT, "tokens", meaning="The evaluation length."),
    Column("clusters", INT, meaning="How many clusters of targets the intervals come from."),
    Column("cluster", TEXT, meaning="What a cluster is: `documents`, or `stretches` where there are few of those."),
    Column("seeds", INT, meaning="How many runs were averaged."),
)
_TOO_FEW = "there are too few clusters"
LOSS_BY_POSITION = Described(
    "loss_by_position", "`loss_by_position.parquet` of a report, protocol `windows`",
    "a model, a length and a bucket of positions",
    plain(
        Column("position", INT, "tokens", meaning="Where a bucket of inputs begins in the window."),
        Column("bucket", INT, "tokens", meaning="How many inputs a bucket has: L/2, unless asked otherwise."),
        Column("loss", REAL, "nats per target", False, "The bucket's loss.", "the encoding ends before this length"),
        Column("control_loss", REAL, "nats per target", meaning="The control's loss on the same targets."),
        Column("difference", REAL, "nats per target", False, "The loss minus the control's.", "the loss is empty"),
        Column(
            "low", REAL, "nats per target", False,
            "The lower end of a 95 % band around the difference that holds for all its rows at once, of all models.",
            "the bucket begins before L, the difference is infinite, `windows` are of all lengths and a shorter one "
            f"has the bucket too, or {_TOO_FEW}",
        ),
        Column("high", REAL, "nats per target", False, "The upper end of the same band.", "`low` is empty"),
        Column("n_targets", INT, "targets", meaning="How many tokens were scored."),
        *_CURVE,
    ),
)  # fmt: skip
FAILURE_LENGTHS = Described(
    "failure_lengths", "`failure_lengths.parquet` of a report, protocol `windows`",
    "a model, or a model and a length beyond L (see `windows`)",
    plain(
        *_CURVE,
        Column(
            "fails_from", INT, "tokens", False,
            "The failure length: where the first bucket begins whose loss is surely above the control's, by 0.01 or "
            "more. Surely is said at 95 % of all buckets of all models at once.",
            f"no bucket is, or {_TOO_FEW}",
        ),
        Column(
            "holds_to", INT, "tokens", False,
            "Up to where, from L on, every bucket is surely less than 0.01 above the control.",
            f"the first bucket beyond L is not, or {_TOO_FEW}",
        ),
        Column(
            "by_seed", TEXT, "tokens", meaning="The failure length of each seed, in their order; an empty text where "
            "there is one seed.",
        ),
    ),
    base=LOSS_BY_POSITION,
)  # fmt: skip


@sections.register("positions")
class Positions(Section):
    """The loss by position in the window, and from which position on each model loses to its control."""

    chapter = "Loss by evaluation length"
    place = 20
    files = ("loss_by_position.*", "failure_lengths.*")
    tables = (LOSS_BY_POSITION, FAILURE_LENGTHS)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return [protocol for protocol in material.rows if known_by(protocol).positions]

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        documents = material.documents[material.documents["protocol"] == subject]
        curves = by_position(documents)
        found = with_seeds(failures(curves), documents)
        named = styles.named(material.styles, material.rows[subject])
        seq_len, end = int(material.rows[subject]["seq_len"].iloc[0]), suffix(subject)
        blocks: list[Block] = [
            Heading(2, "Where in the context"),
            position_charts.losses(curves, found, named, material.styles, seq_len, f"loss_by_position{end}.png"),
        ]
        files: dict[str, Writer] = {
            f"loss_by_position{end}.parquet": parquet(curves[_names(LOSS_BY_POSITION)]),
            f"loss_by_position{end}.png": partial(
                position_pictures.draw_losses, curves, named, material.styles, seq_len
            ),
        }
        if found:  # else nothing beyond L was evaluated
            table = pd.DataFrame([vars(one) for one in found])[_names(FAILURE_LENGTHS)]
            table = table.astype({"fails_from": "Int64", "holds_to": "Int64"})
            blocks += [
                Text(_explained(found, documents, int(curves["bucket"].iloc[0]), seq_len)),
                Table(
                    failure_table(found, material.models(subject)),
                    "failure length, tokens: where the loss is first above the control's",
                ),
                position_charts.differences(
                    curves, found, named, material.styles, seq_len, f"failure_lengths{end}.png"
                ),
            ]
            files[f"failure_lengths{end}.parquet"] = parquet(table)
            files[f"failure_lengths{end}.png"] = partial(
                position_pictures.draw_differences, curves, found, named, material.styles, seq_len
            )
        return Part(blocks, files)


def _names(table: Described) -> list[str]:
    return [column.name for column in table.columns]


def _explained(found: Sequence[Failure], rows: pd.DataFrame, bucket: int, seq_len: int) -> str:
    buckets = "L/2" if bucket == seq_len // 2 else f"{bucket} positions"
    resampled = ", ".join(sorted({f"{one.clusters} {one.cluster}" for one in found}))
    said = (
        "The failure length is where the first bucket of positions beyond L begins that fails: its loss is above "
        f"the control's on the same targets, by {LEAST:g} nats or more, and it is surely above. A model holds to "
        f"where it is surely less than {LEAST:g} nats above. Between the two, the data do not tell. Surely means "
        "at 95 % for all buckets of all models at once: of 100 reports in which no model is above its control, at most "
        f"5 name a failure. Lengths are in tokens, by buckets of {buckets}. "
        f"Resampled: {resampled}, with seeds averaged. So surely is about these runs: other seeds may fail elsewhere."
    )
    if any(one.by_seed for one in found):
        said += " Those by seed are at 95 % for each seed by itself."
    if any(one.windows.startswith(OF_ALL) for one in found):
        said += (
            f' "{OF_ALL}": a token\'s loss does not depend on how long its window is, so that each bucket is that of '
            "the shortest windows that have it, which are the most."
        )
    if any(not one.windows.startswith(OF_ALL) for one in found):
        said += " A model has a failure length for each length where what is applied depends on it."
    if rows.loc[rows["factor"] > 1, "plan_hash"].isna().any():
        said += " So it has if the model looks at the length in itself."
    return said
