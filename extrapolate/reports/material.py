"""What a report is made of: the rows of evaluated runs that can be compared, and what follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import of_table
from extrapolate.reports import comparison, plots, probes, tables
from extrapolate.reports.comparison import Comparison
from extrapolate.reports.gather import Evaluated
from extrapolate.reports.seeds import on_shared_seeds


@dataclass(frozen=True)
class Material:
    """What every section of a report is written from.

    rows: by protocol, the rows that are shown, the paper's protocol first. They are of one set of targets, of the last
    checkpoints, and of the seeds that all models have. losses: by protocol, their table of losses by evaluation length.
    documents: the rows of these by document. compared: each model and its control, and the optimum where it is known.
    probes: the rows on probes that are shown, empty where there are none. styles: how pictures draw each model.
    evaluated: the folders of the runs, for a section that reads a table of its own from them.
    """

    evaluated: Evaluated
    rows: Mapping[str, pd.DataFrame]
    losses: Mapping[str, pd.DataFrame]
    documents: pd.DataFrame
    compared: Sequence[Comparison]
    probes: pd.DataFrame
    styles: Mapping[str, plots.Style]

    def models(self, protocol: str) -> list[str]:
        """The models that are shown, in the order of all tables of the protocol."""
        return list(self.losses[protocol]["Model"])


def collect(
    evaluated: Evaluated,
    evals: list[dict[str, Any]],
    documents: list[dict[str, Any]],
    baseline: str | None,
    only: Mapping[str, Any],
) -> tuple[Material, list[str]]:
    """The material of a report, and warnings of what was left out. `only` restricts rows: column -> value.

    Raises UserError where there is nothing to report, or rows cannot be compared.
    """
    rows, warnings = _by_protocol(evals, only) if evals else ({}, [])
    losses = {protocol: tables.loss_by_ev(mine, baseline) for protocol, mine in rows.items()}
    asked, of_probes = probes.comparable(evaluated.probes(), only)
    by_document = comparison.document_rows(pd.concat(rows.values()), pd.DataFrame(documents)) if rows else None
    material = Material(
        evaluated=evaluated,
        rows=rows,
        losses=losses,
        documents=pd.DataFrame() if by_document is None else by_document,
        compared=() if by_document is None else tuple(comparison.comparisons(by_document, pairs=False)),
        probes=asked,
        styles=_styles(rows, losses),
    )
    return material, warnings + of_probes


def _by_protocol(evals: list[dict[str, Any]], only: Mapping[str, Any]) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The rows of each protocol that are shown, the paper's protocol first; and warnings."""
    rows = tables.comparable(tables.frame_of(evals), only)
    warnings = tables.unequal_training(rows)
    shown: dict[str, pd.DataFrame] = {}
    for protocol in sorted(set(rows["protocol"]), key=lambda name: (not of_table(name).paper, name)):
        same, of_targets = tables.same_targets(rows[rows["protocol"] == protocol])
        shown[protocol], of_seeds = on_shared_seeds(same, protocol)
        if shown[protocol]["loss"].isna().all():
            raise UserError(f"{protocol}: no model reaches any of the lengths that were evaluated: evaluate at 1x too")
        warnings += of_targets + of_seeds
    return shown, warnings


def _styles(rows: Mapping[str, pd.DataFrame], losses: Mapping[str, pd.DataFrame]) -> dict[str, plots.Style]:
    """One style a model for all pictures."""
    if not rows:
        return {}
    order = dict.fromkeys(model for table in losses.values() for model in table["Model"])
    return plots.styles(pd.concat(rows.values()), list(order))
