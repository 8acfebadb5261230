"""The same models now and before: which got worse, and which are gone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.folders import join_names
from extrapolate.results.verdicts import LEAST, WORSE
from extrapolate.statistics.comparable import check_replicates, unequal_training
from extrapolate.statistics.comparison import Comparison, of_pairs, selected
from extrapolate.statistics.documents import document_rows
from extrapolate.statistics.seeds import seeds_of
from extrapolate.statistics.sums import settings

BEFORE = ", before"  # ends the names of earlier models, and of their runs


def since(
    now: pd.DataFrame,
    before: pd.DataFrame,
    documents: pd.DataFrame,
    extensions: bool = False,
    only: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    *,
    least: float = LEAST,
) -> tuple[list[Comparison], list[str]]:
    """Each model of `before` compared with the same model now, at every length and on the same targets; and warnings.

    now, before: rows of losses, of runs with different names; documents: the documents' rows of both. A comparison is
    `gone` if a loss of `before`, or one of its seeds, has no counterpart now. Raises UserError as `comparable_rows`
    does, or if no loss has a counterpart.
    """
    # Both together decide whether sizes are part of the models' names.
    every = selected(pd.concat([now, before], ignore_index=True), extensions, only or {})
    earlier = every["run"].isin(set(before["run"]))
    every = every.assign(model=every["model"].where(~earlier, every["model"] + BEFORE))
    check_replicates(every)
    wanted = every[earlier & every["loss"].notna()]
    pairs = [(model.removesuffix(BEFORE), model) for model in dict.fromkeys(wanted["model"])]
    found = {
        (one.protocol, one.factor, one.other): one
        for one in of_pairs(settings(document_rows(every, documents)), pairs, confidence, least=least)
        if one.difference is not None
    }
    if not found:
        raise UserError(
            "no model has a loss on the same targets, and with the same seed, as before: evaluate it with the same "
            "`protocols`, `factors` and `max_targets`"
        )
    made = []
    for place, group in wanted.groupby(["protocol", "factor", "model"], sort=False):
        protocol, factor, model = str(place[0]), float(str(place[1])), str(place[2])
        none = Comparison(protocol, factor, model.removesuffix(BEFORE), model, None, "documents", (), least)
        one = found.get((protocol, factor, model), none)
        made.append(replace(one, gone=one.difference is None or not set(seeds_of(group)) <= set(one.seeds)))
    return made, unequal_training(every)


def worse(found: Sequence[Comparison]) -> str:
    """The losses that are worse or gone, in a sentence; empty if there are none."""
    named = []
    for one in found:
        if one.word == WORSE:
            by = "" if one.difference is None else f" {one.difference.mean:+.3f}"
            gone = "" if not one.gone else " gone" if one.difference is None else " (a seed is gone)"
            named.append(f"{one.model} at {one.factor:g}x ({one.protocol}){by}{gone}")
    return f"{len(named)} of {len(found)} losses are worse than before, or gone: {join_names(named)}" if named else ""
