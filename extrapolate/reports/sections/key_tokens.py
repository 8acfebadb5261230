"""The loss of key tokens, which need text beyond L, and of all other targets: the overall mean hides these few."""

from collections.abc import Callable, Sequence

import pandas as pd

from extrapolate.evaluation.key_tokens import GAIN
from extrapolate.reports.page import Block, Details, Heading, Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections, suffix
from extrapolate.reports.sections.losses import MODEL
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import CONTROL, Comparison
from extrapolate.statistics.documents import of_key_tokens, of_others, same_rule
from extrapolate.statistics.seeds import counts
from extrapolate.statistics.sums import settings

_ENDS = "nothing was measured at this length"
KEY_TOKENS = Described(
    "key_tokens", "`key_tokens.parquet` of a report for `windows`, `key_tokens.PROTOCOL.parquet` for the others",
    "model, length, and kind of targets",
    plain(
        Column("model", TEXT, meaning="The model's name; runs that differ only in the seed are one model."),
        Column("targets", TEXT, meaning="`key`: the key tokens, which need text beyond L; `other`: all other targets."),
        Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
        Column("loss", REAL, "nats per target", False, "The mean loss over seeds.", _ENDS),
        Column("control_loss", REAL, "nats per target", meaning="The control's loss on the same targets."),
        Column("difference", REAL, "nats per target", False, "The loss minus the control's.", _ENDS),
        Column(
            "low", REAL, "nats per target", False, "The lower end of the difference's 95 % interval.",
            f"there are too few clusters, or {_ENDS}",
        ),
        Column("high", REAL, "nats per target", False, "The upper end of the same interval.", "`low` is empty"),
        Column("n_targets", INT, "targets", meaning="How many targets there are of this kind."),
        Column("clusters", INT, "", False, "The number of clusters behind the interval.", _ENDS),
        Column("cluster", TEXT, "", False, "What a cluster is: `documents`, or `stretches`.", _ENDS),
        Column("seeds", INT, meaning="The number of seeds in the means."),
    ),
)  # fmt: skip

KINDS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"key": of_key_tokens, "other": of_others}
UNLIKE = """\
Key tokens are not shown: the runs have different ones, or some were evaluated by an earlier version, which had none.
Evaluate all runs with the same factors."""
EXPLAINED = """\
Key tokens follow from the text and its windows, and are the same for every model and length. The control sees at most
the last L tokens, so it never sees what a key token needs. A model that uses text beyond L is below its control on
them, and more so in longer windows. A model that forgets is not, however low its mean is. Key tokens are chosen among
targets that the text beyond L makes easier. That text can also mislead, which shows in the difference on the other
targets, so read both."""


@sections.register("key-tokens")
class KeyTokens(Section):
    """The loss of targets that need text beyond L, beside that of all others."""

    continues = "losses"
    files = ("key_tokens.*",)
    tables = (KEY_TOKENS,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return [protocol for protocol, rows in data.rows.items() if (rows["n_key"].astype(float) > 0).any()]

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        rows, order = data.rows[subject], data.models(subject)
        blocks: list[Block] = [Heading(2, f"Key tokens under {subject}")]
        if not same_rule(rows):
            return Part([*blocks, Text(UNLIKE)])
        documents = data.of_documents(subject)
        blocks += [Text(chosen(rows)), Text("Loss of key tokens:"), Table(losses(of_key_tokens(rows), order))]
        tables, said = [], []
        for kind, of_kind in KINDS.items():
            found = comparison.of_sums(settings(of_kind(documents)), pairs=False)
            against = comparison.corrected([one for one in found if one.other == CONTROL], "holm")
            name = "key tokens" if kind == "key" else "all other targets"
            blocks += [
                Text(f"Difference of {name} to the control, with its 95 % interval:"),
                Table(comparison.against(against, CONTROL, order)),
            ]
            tables.append(tidy(kind, of_kind(rows), against, order))
            said.append(comparison.marked(against))
        blocks.append(Details([Text(" ".join([EXPLAINED, *dict.fromkeys(said)]))]))
        table = pd.concat(tables, ignore_index=True)
        return Part(blocks, {f"key_tokens{suffix(subject)}.parquet": parquet(table[KEY_TOKENS.names])})


def chosen(rows: pd.DataFrame) -> str:
    """How many targets are key tokens, and which, in words. rows: losses with the same key tokens."""
    first = rows.iloc[0]
    within, seq_len = int(first["key_within"]), int(first["seq_len"])
    share = f"{first['n_key']:,.0f} of {first['n_targets']:,} targets ({first['n_key'] / first['n_targets']:.1%})"
    if pd.isna(first["key_context"]):
        which = (
            f"the optimum gains {GAIN:.2f} nats or more on them, which doubles their probability, by seeing the whole "
            f"window of {within} tokens and not only the last L = {seq_len}"
        )
    else:
        which = (
            f"they have a copy in their window of {within} tokens, more than L = {seq_len} tokens back, and none "
            f"nearer. A copy is the same token after the same {first['key_context']:.0f} tokens"
        )
    return f"{share} need text beyond L: {which}."


def losses(rows: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """`Model`, `Loss (ev=1)`, ..., `Control` and `Seeds`: means over seeds; the optimum first if it is known."""
    table = rows.pivot_table(index="model", columns="factor", values="loss", aggfunc=strict_mean, dropna=False)
    optimum = rows.groupby("factor")["optimum_loss"].mean()
    table = table.loc[order]
    if optimum.notna().all():
        table = pd.concat([optimum.to_frame("optimum").T, table])
    table = table.sort_index(axis=1)
    table.columns = [f"Loss (ev={factor:g})" for factor in table.columns]
    table["Control"] = rows.groupby("model")["control_loss"].mean().reindex(table.index)
    table["Seeds"] = counts(rows).reindex(table.index).astype("Int64")
    return table.rename_axis(MODEL.name).reset_index()


def tidy(kind: str, rows: pd.DataFrame, against: Sequence[Comparison], order: list[str]) -> pd.DataFrame:
    """The rows of KEY_TOKENS for one kind of targets."""
    means = rows.groupby(["model", "factor"])[["loss", "control_loss"]].agg(strict_mean)
    known = {(one.model, one.factor): one for one in against}
    seeds, n_targets = counts(rows), int(rows["n_targets"].iloc[0])
    table = []
    for model in order:
        for factor, mean in means.loc[model].iterrows():
            one = known.get((model, float(str(factor))))
            found = None if one is None else one.difference
            table.append(
                {
                    "model": model, "targets": kind, "factor": factor, "n_targets": n_targets, "seeds": seeds[model],
                    **mean, "difference": found and found.mean, "low": found and found.low,
                    "high": found and found.high, "clusters": found and found.clusters, "cluster": one and one.clusters,
                }
            )  # fmt: skip
    real = ["loss", "control_loss", "difference", "low", "high"]
    return pd.DataFrame(table).astype({"clusters": "Int64"} | dict.fromkeys(real, "float64"))
