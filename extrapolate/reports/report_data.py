"""What every section of a report reads: the rows that can be compared, and what is derived from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import is_papers, isolates
from extrapolate.folders import join_names
from extrapolate.names import INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE
from extrapolate.reports import probes, styles, tables, tasks
from extrapolate.reports.load_tables import LoadedTables
from extrapolate.reports.styles import Style
from extrapolate.results.columns import Table
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import (
    IDENTITY,
    at_some_lengths,
    check_replicates,
    frame_of,
    last_checkpoints,
    not_evaluated,
    not_measured,
    of_one_parent,
    restricted,
    same_targets,
    unequal_training,
)
from extrapolate.statistics.comparison import Comparison
from extrapolate.statistics.documents import as_frame, document_rows
from extrapolate.statistics.seeds import between_tables, incomplete_checkpoints, on_own_seeds
from extrapolate.statistics.sums import ComparisonGroup, settings


@dataclass(frozen=True)
class ReportData:
    """What every section of a report is written from.

    rows: the rows that are shown, by protocol, the paper's protocol first; they share one set of targets, and are of
    the last checkpoints and of the seeds that a model has at all lengths. losses: their table of losses by evaluation
    length, by protocol. documents: their rows by document. compared: each model with its control, and with the optimum
    if it is known. probes, tasks: the rows on probes and benchmarks that are shown; empty if there are none. styles:
    how pictures draw each model. evaluated: the folders of the runs, for sections that read a table of their own. sums:
    `documents`, summed for comparisons. along: the rows of the same runs, extensions and targets at all checkpoints, by
    protocol. documents_along: their rows by document. warnings: what was left out, for example. command: makes the same
    report again.
    """

    evaluated: LoadedTables = field(default_factory=lambda: LoadedTables({}, ()))
    rows: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    losses: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    documents: pd.DataFrame = field(default_factory=pd.DataFrame)
    compared: Sequence[Comparison] = ()
    probes: pd.DataFrame = field(default_factory=pd.DataFrame)
    tasks: pd.DataFrame = field(default_factory=pd.DataFrame)
    styles: Mapping[str, Style] = field(default_factory=dict)
    sums: Sequence[ComparisonGroup] = ()
    along: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    documents_along: pd.DataFrame = field(default_factory=pd.DataFrame)
    warnings: Sequence[str] = ()
    command: str = ""

    def models(self, protocol: str) -> list[str]:
        """The models that are shown, in the order of the protocol's tables."""
        return list(self.losses[protocol]["Model"])

    def protocols(self) -> list[str]:
        """The protocols in the order of the page: ISOLATES, which the answer is about, comes first."""
        return sorted(self.rows, key=lambda protocol: not isolates(protocol))

    def seq_len(self, protocol: str) -> int:
        """The training length of the models that are shown, in tokens."""
        return int(self.rows[protocol]["seq_len"].iloc[0])

    def of_documents(self, protocol: str) -> pd.DataFrame:
        """The rows of `documents` of one protocol."""
        return self.documents[self.documents["protocol"] == protocol]

    def all_checkpoints(self, protocol: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows of `along` and of `documents_along` of one protocol."""
        documents = self.documents_along
        return self.along[protocol], documents[documents["protocol"] == protocol]

    def against(self, protocol: str, other: str) -> list[Comparison]:
        """Each model compared with its control or with the optimum (CONTROL, OPTIMUM), after Holm's correction."""
        group = [one for one in self.compared if (one.protocol, one.other) == (protocol, other)]
        return comparison.corrected(group, "holm")

    def of_studies(self, file: str, table: Table) -> pd.DataFrame:
        """The rows of this file in each study whose runs are in the report, with the study's folder as `study`.

        Each row's `run` has the name that the run has in the report; it is missing if the run is not shown. Raises
        UserError if a file is damaged.
        """
        found, shown = [], self.shown()
        for study in dict.fromkeys(folder.parent.parent for folder in self.evaluated.names):
            if (study / file).is_file():
                names = {
                    path.name: name
                    for path, name in self.evaluated.names.items()
                    if path.parent.parent == study and name in shown and path not in self.evaluated.exchanged
                }
                rows = pd.DataFrame(results.read(study / file, table))
                found.append(rows.assign(study=str(study), run=rows["run"].map(names)))
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["study", "run"])

    def rows_of(self, file: str) -> list[dict[str, Any]]:
        """The rows of this file for the runs whose losses are shown, or for all runs if none has losses."""
        found = self.evaluated.rows(file)
        if not self.rows:
            return found
        texts = _texts(self.rows)
        return [row for row in found if row["run"] in texts and _is_of(row, texts[row["run"]])]

    def shown(self) -> set[str]:
        """The runs whose losses or probes are shown."""
        frames = [*self.rows.values(), *([self.probes] if len(self.probes) else [])]
        return {run for frame in frames for run in frame["run"]}


def collect(
    evaluated: LoadedTables,
    evals: list[dict[str, Any]],
    documents: pa.Table,
    baseline: str | None,
    only: Mapping[str, Any],
) -> ReportData:
    """The data of a report. `only` restricts rows: column -> value.

    Raises UserError if there is nothing to report, or rows cannot be compared.
    """
    found = {"losses": frame_of(evals)} if evals else {}
    if of_probes := evaluated.rows(PROBES_TABLE):
        found["probes"] = probes.frame_of(of_probes)
    if found:
        found = dict(zip(found, restricted([*found.values()], only), strict=True))
    chosen = " and ".join(f"{column} {value}" for column, value in only.items())
    warnings = [f"left out all {what}, because none have {chosen}" for what, rows in found.items() if rows.empty]
    found = {what: rows for what, rows in found.items() if len(rows)}
    # Checked over all tables and before seeds are left out, since a model with other settings is no seed of another.
    models = pd.concat([rows[IDENTITY] for rows in found.values()]) if found else pd.DataFrame(columns=IDENTITY)
    check_replicates(models)
    if found:
        warnings += evaluated.unseen(models, "losses or probes", only)
    every = found.get("losses", pd.DataFrame())
    rows: dict[str, pd.DataFrame] = {}
    if len(every):
        rows, of_losses = _by_protocol(last_checkpoints(every))
        warnings += [*of_losses, *not_evaluated(every, "protocol", models)]
    asked = pd.DataFrame()
    if "probes" in found:
        warnings += not_evaluated(found["probes"], "probe", models)
        asked, of_windows = probes.comparable(found["probes"])
        warnings += of_windows
        training = unequal_training(asked) + of_one_parent(asked)
        warnings += [said for said in training if said not in warnings]
    shown_probes = (
        {f"probe {probe}": group for probe, group in asked.groupby("probe", sort=False)} if len(asked) else {}
    )
    warnings += [f"{what}: {text}" for what, group in shown_probes.items() for text in at_some_lengths(group)]
    warnings += between_tables({**rows, **shown_probes})
    data = ReportData(evaluated, probes=asked, warnings=(*evaluated.left_out, *warnings))
    if not rows:
        return _with_tasks(data, models)
    losses = {protocol: tables.loss_by_ev(group, baseline) for protocol, group in rows.items()}
    same = ["run", "extension", "protocol", "factor", "targets_hash"]
    along = {protocol: every.merge(shown[same], on=same) for protocol, shown in rows.items()}
    warnings += [text for protocol, group in along.items() for text in incomplete_checkpoints(group, protocol)]
    warnings += _not_shown(evaluated, rows)
    by_document = documents_along = document_rows(pd.concat(along.values()), as_frame(documents))
    if every["step"].nunique() > 1:
        last = by_document["run"].astype(str).map(every.groupby("run")["step"].max())
        by_document = by_document[by_document["step"] == last]
    sums = settings(by_document)
    order = dict.fromkeys(model for table in losses.values() for model in table["Model"])
    data = replace(
        data,
        rows=rows,
        losses=losses,
        documents=by_document,
        compared=tuple(comparison.of_sums(sums, pairs=False)),
        styles=styles.styles(pd.concat(rows.values()), list(order)),
        sums=sums,
        along=along,
        documents_along=documents_along,
        warnings=(*evaluated.left_out, *warnings),
    )
    return _with_tasks(data, models)


def _with_tasks(data: ReportData, models: pd.DataFrame) -> ReportData:
    """With the rows of benchmarks that can be compared. models: those that have losses or probes."""
    found = data.rows_of(TASKS_TABLE)
    if not found:
        return data
    shown, warnings = tasks.comparable(pd.DataFrame(found))
    warnings += not_evaluated(tasks.asked(pd.DataFrame(found)), "task", models)
    more = [text for text in warnings if text not in data.warnings]
    return replace(data, tasks=shown, warnings=(*data.warnings, *more))


def _texts(rows: Mapping[str, pd.DataFrame]) -> dict[str, tuple[str, str]]:
    """The runs whose losses are shown, each with the corpus and the split that was scored."""
    every = pd.concat([group[["run", "corpus_hash", "split"]] for group in rows.values()]).drop_duplicates()
    return {run: (corpus, split) for run, corpus, split in every.itertuples(index=False, name=None)}


def _is_of(row: Mapping[str, Any], text: tuple[str, str]) -> bool:
    """Whether a row was found on this corpus and split, or on none."""
    return row.get("corpus_hash") is None or (row["corpus_hash"], row["split"]) == text


def _not_shown(evaluated: LoadedTables, rows: Mapping[str, pd.DataFrame]) -> list[str]:
    """Warnings about what `ReportData.rows_of` leaves out."""
    warnings, texts = [], _texts(rows)
    for file, what in ((TASKS_TABLE, "benchmarks"), (INSPECTIONS_TABLE, "inspection")):
        found = evaluated.rows(file)
        if runs := {row["run"] for row in found} - texts.keys():
            warnings.append(f"{what}: left out runs whose losses are not shown: {join_names(sorted(runs))}")
        if other := {row["run"] for row in found if row["run"] in texts and not _is_of(row, texts[row["run"]])}:
            warnings.append(
                f"{what}: left out what was found on another text or split than the losses': "
                f"{join_names(sorted(other))}"
            )
    return warnings


def _by_protocol(rows: pd.DataFrame) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """The rows of last checkpoints that are shown, by protocol, the paper's first; and warnings."""
    warnings = unequal_training(rows) + of_one_parent(rows)
    shown: dict[str, pd.DataFrame] = {}
    for protocol in sorted(set(rows["protocol"]), key=lambda name: (not is_papers(name), name)):
        same, of_targets = same_targets(rows[rows["protocol"] == protocol])
        shown[protocol], of_seeds = on_own_seeds(same, protocol)
        if shown[protocol]["loss"].isna().all():
            raise UserError(f"{protocol}: no model reaches any of the lengths that were evaluated: evaluate at 1x too")
        group = shown[protocol]
        lengths = [f"{protocol}: {text}" for text in (*at_some_lengths(group), *not_measured(group))]
        warnings += of_targets + of_seeds + lengths
    return shown, warnings
