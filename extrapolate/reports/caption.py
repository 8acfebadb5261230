"""What a table of losses says about its numbers."""

import pandas as pd

from extrapolate.results.speed import MOST_TAKEN
from extrapolate.statistics.comparable import unequal_training, values_of
from extrapolate.statistics.seeds import in_words, seeds_of


def caption(rows: pd.DataFrame) -> str:
    """What the numbers are, under which conditions, where and when they were made."""

    def values(column: str, of: pd.DataFrame = rows) -> str:
        return ", ".join(values_of(of, column, lambda v: f"{v:,}" if isinstance(v, int) else str(v)))

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
    documents = values("n_documents")
    lines = [
        f"Mean loss, nats per token, of {values('n_targets')} targets in {documents} "
        f"{'document' if documents == '1' else 'documents'}, the same "
        f"at every length; training length {values('seq_len')} tokens{_tuned(rows)}; {values('split')} split of corpus "
        f"{values('corpus_hash')}; {'' if own.empty else training}evaluated in {values('precision')}"
        f"{'' if own.empty else f'; {_seeds(own)}'}.",
        evaluated[0].upper() + evaluated[1:] if own.empty else trained + evaluated,
        *_imported(rows),
        *(text[0].upper() + text[1:] + "." for text in unequal_training(rows)),
        *_beside_others(rows),
        *sorted({text + "." for text in rows["caption"] if text}),
    ]
    return " ".join(lines)


def _imported(rows: pd.DataFrame) -> list[str]:
    """What is not known of checkpoints that were trained elsewhere."""
    mine = rows[rows["imported"].notna()]
    if mine.empty:
        return []
    return [
        f"Trained elsewhere, and imported: {', '.join(values_of(mine, 'imported'))}; training corpus, tokens, "
        "precision, seed, time and machine unknown, and the training length as the checkpoint's configuration or "
        "--seq-len says."
    ]


def _beside_others(rows: pd.DataFrame) -> list[str]:
    """Whose training time is not known, since other programs computed beside."""
    busy = rows[rows["training_taken"].astype(float) > MOST_TAKEN]
    if busy.empty:
        return []
    models = [
        f"{model} ({share:.0%})" for model, share in busy.groupby("model", sort=False)["training_taken"].max().items()
    ]
    return [
        f"The training time of {', '.join(models)} is n/a: other programs took this share of the time in which it "
        f"wanted to compute, more than {MOST_TAKEN:.0%}."
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
