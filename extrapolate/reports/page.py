"""The report's page, in Markdown: tables, what their numbers are, and how to read them."""

from collections.abc import Sequence

import pandas as pd

from extrapolate.reports import tables
from extrapolate.reports.comparison import CONTROL, OPTIMUM, Comparison
from extrapolate.reports.positions import LEAST, Failure
from extrapolate.reports.seeds import in_words, seeds_of

CONTROL_TEXT = """\
Difference to the control, with its 95 % interval. The control is the plain model on the same targets, with its context
cut back to between L/2 and L tokens. Under windows, rows at 1x score worse than the control, because every window
starts without context; longer windows start less often. Under fixed-target, a row above the control is harmed by
length. A row below the control is helped by context that the control lacks. That may still be the last L tokens,
because the control has them only in part. A model uses context beyond L where fixed-target goes on falling from 2x to
4x and further."""
BELOW_OPTIMUM = "Chance does this to one interval in forty; otherwise the model sees what it should predict."
OPTIMUM_TEXT = """\
The optimum is the lowest loss that is possible with each window's own tokens. The gain captured is the share of the
possible gain from 1x on that a model took: (loss at 1x - loss) / (optimum at 1x - optimum). A flat row takes no gain,
even if it loses nothing."""


def protocol_section(
    protocol: str, rows: pd.DataFrame, table: pd.DataFrame, compared: Sequence[Comparison], stem: str
) -> str:
    """One protocol: losses, their spread over seeds, and the difference to the control."""
    parts = [f"## Protocol {protocol}", markdown(table), caption(rows)]
    if (spread := tables.seed_spread(rows)) is not None:
        parts += ["Standard deviation over seeds:", markdown(spread)]
    parts += [f"![loss against length]({stem}.png)", CONTROL_TEXT, markdown(_against(compared, CONTROL, table))]
    if any(one.clusters == "stretches" for one in compared):
        parts.append(
            "There are fewer than 30 documents, so contiguous stretches of 16 L tokens were resampled in their place. "
            "Stretches of one document are alike. That makes intervals too narrow rather than too wide."
        )
    return "\n\n".join(parts) + "\n"


def optimum_section(table: pd.DataFrame, compared: Sequence[Comparison]) -> str:
    """What was possible, and what was made of it."""
    below = [one for one in compared if one.other == OPTIMUM and one.verdict() == "win"]
    warning = [f"**{one.model} is below the optimum at {one.factor:g}x. {BELOW_OPTIMUM}**" for one in below]
    parts = [OPTIMUM_TEXT, markdown(table), *warning, "Difference to the optimum, with its 95 % interval:"]
    return "\n\n".join([*parts, markdown(_against(compared, OPTIMUM, table))]) + "\n"


def position_section(table: pd.DataFrame | None, found: Sequence[Failure], suffix: str) -> str:
    """Where in the context the loss rises; without a table where nothing beyond L was evaluated.

    `suffix` ends the names of the protocol's files.
    """
    parts = ["## Where in the context", f"![loss by position in the window](loss_by_position{suffix}.png)"]
    if table is not None:
        resampled = ", ".join(sorted({f"{one.clusters} {one.cluster}" for one in found}))
        parts += [
            "The failure length is where the first bucket of positions beyond L begins that fails: its loss is above "
            f"the control's on the same targets, by {LEAST:g} nats or more, and it is surely above. A model holds to "
            f"where it is surely less than {LEAST:g} nats above. Between the two, the data do not tell. Surely means "
            "at 95 % for all buckets at once. Lengths are in tokens, by buckets of L/2. "
            f"Resampled: {resampled}.",
            markdown(table),
            f"![difference to the control by position in the window](failure_lengths{suffix}.png)",
        ]
    return "\n\n".join(parts) + "\n"


def _against(compared: Sequence[Comparison], other: str, table: pd.DataFrame) -> pd.DataFrame:
    """The differences to `other`, and the number of seeds, models in the order of another table."""
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in table["Model"]}
    mine = [one for one in compared if one.other == other and one.difference is not None]
    for one in mine:
        assert one.difference is not None
        cells[one.model][f"ev={one.factor:g}"] = one.difference.text()
    for one in mine:
        cells[one.model]["Seeds"] = str(max(1, len(one.seeds)))  # an unknown seed is one
    return pd.DataFrame([row for row in cells.values() if len(row) > 1]).fillna("n/a")


def caption(rows: pd.DataFrame) -> str:
    """What the numbers are, under which conditions, where and when they were made."""

    def values(column: str, of: pd.DataFrame = rows) -> str:
        return ", ".join(tables.values_of(of, column, lambda v: f"{v:,}" if isinstance(v, int) else str(v)))

    own = rows[rows["imported"].isna()]
    training = f"preset {values('preset', own)}, {values('tokens', own)} training tokens in " + (
        f"{values('training_precision', own)}; "
    )
    trained = f"Trained with extrapolate {values('training_version', own)}, commit " + (
        f"{values('training_commit', own) or 'unknown'}, on {values('training_machine', own)}; "
    )
    evaluated = f"evaluated with commit {values('commit') or 'unknown'} on {values('machine')}, " + (
        f"{rows['evaluated_at'].max():%Y-%m-%d}."
    )
    lines = [
        f"Mean loss, nats per token, of {values('n_targets')} targets in {values('n_documents')} documents, the same "
        f"at every length; training length {values('seq_len')} tokens{_tuned(rows)}; {values('split')} split of corpus "
        f"{values('corpus_hash')}; {'' if own.empty else training}evaluated in {values('precision')}"
        f"{'' if own.empty else f'; {_seeds(own)}'}.",
        evaluated[0].upper() + evaluated[1:] if own.empty else trained + evaluated,
        *_imported(rows),
        *(text[0].upper() + text[1:] + "." for text in tables.unequal_training(rows)),
        *sorted({text + "." for text in rows["caption"] if text}),
    ]
    return " ".join(lines)


def _imported(rows: pd.DataFrame) -> list[str]:
    """What is not known of checkpoints that were trained elsewhere."""
    mine = rows[rows["imported"].notna()]
    if mine.empty:
        return []
    return [
        f"Trained elsewhere, and imported: {', '.join(tables.values_of(mine, 'imported'))}; training corpus, tokens, "
        "precision, seed, time and machine unknown, and the training length as the checkpoint's configuration or "
        "--seq-len says."
    ]


def _tuned(rows: pd.DataFrame) -> str:
    """Tuned runs have other lengths, and a budget that comes on top of another's."""
    mine = rows[rows["origin"].notna()]
    if mine.empty:
        return ""
    lengths = ", ".join(str(length) for length in sorted(set(mine["trained_length"])))
    return f" (tuned runs: {lengths}, their training tokens on top of those of the run they started from)"


def _seeds(rows: pd.DataFrame) -> str:
    held = {seeds_of(mine) for _, mine in rows.groupby("model")}
    if len(held) > 1:
        return f"means over {min(map(len, held))} to {max(map(len, held))} seeds, which models do not share"
    (seeds,) = held
    return f"one seed, {seeds[0]}" if len(seeds) == 1 else f"means over {in_words(seeds)}"


def markdown(table: pd.DataFrame) -> str:
    """A Markdown table: losses to three decimals, training time to two, n/a where there is no number."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(row) + " |" for row in tables.formatted(table).itertuples(index=False)]
    return "\n".join(lines)
