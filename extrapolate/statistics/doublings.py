"""How much a difference between models changed over the last doubling of the training tokens."""

import pandas as pd

from extrapolate.statistics.sums import LOSSES

HALF = 0.05  # how far from half of the tokens a model of half the budget may be, as a share: steps are whole
_SETTING = ["run", "extension", "precision", "split", "protocol", "factor", "targets_hash"]
_TARGETS = [*_SETTING, "document", "block", "position"]


def doubled(rows: pd.DataFrame) -> pd.DataFrame:
    """`run`, `half`, `last`, `half_tokens` and `tokens`: the steps of half the budget and of the end of each run, and
    the tokens that it was trained on until then.

    rows: of losses, of all checkpoints. A run is left out if its half was not evaluated, or had a high learning rate.
    """
    found = rows[["run", "step", "tokens", "annealed"]].drop_duplicates()
    last = found.loc[found.groupby("run")["step"].idxmax(), ["run", "step", "tokens"]]
    annealed = found.loc[found["annealed"].eq(True), ["run", "step", "tokens"]]
    both = annealed.merge(last, on="run", suffixes=("_half", ""))
    both = both[(2 * both["tokens_half"] / both["tokens"] - 1).abs() < HALF]
    return both.rename(columns={"step_half": "half", "step": "last", "tokens_half": "half_tokens"})


def changes(steps: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The documents' rows of last checkpoints, with what each loss changed by since half the budget in its place.

    Comparing these rows gives changes of differences. steps: as `doubled` gives them. documents: the rows of all
    checkpoints.
    """
    half, last = (
        documents.merge(steps[["run", step]].rename(columns={step: "step"}), on=["run", "step"])
        for step in ("half", "last")
    )
    both = last.merge(half[[*_TARGETS, *LOSSES]], on=_TARGETS, suffixes=("", "_half"))
    return both.assign(**{name: both[name].astype(float) - both[f"{name}_half"].astype(float) for name in LOSSES})
