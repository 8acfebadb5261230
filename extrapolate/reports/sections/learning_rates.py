"""The learning rate chosen for each model of a study, and the results of the others."""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from extrapolate import results
from extrapolate.folders import join_names
from extrapolate.names import RUNS
from extrapolate.reports.load_tables import LoadedTables
from extrapolate.reports.page import Table, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, parquet, sections
from extrapolate.results import kept
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain

FILE = "learning_rates.parquet"
INTERVAL = "± (95 %)"
RATES = Described(
    "learning_rates", "`learning_rates.parquet` of a study and of a report on one", "model and learning rate",
    plain(
        Column("Model", TEXT, meaning="The common name of cells that differ only in learning rate and seed."),
        Column("Learning rate", REAL, meaning="The peak learning rate."),
        Column(
            "Validation loss", REAL, "nats per token", False, "The mean over seeds, at the end of training.",
            "the training of a seed failed",
        ),
        Column(
            INTERVAL, REAL, "nats per token", False, "Half the width of its 95 % interval over seeds (Student's t).",
            "there is one seed, or the training of one failed",
        ),
        Column("Seeds", INT, meaning="The number of seeds in the mean."),
        Column(
            "Taken", TEXT, meaning="`yes` for the rate with the lowest validation loss; `yes, the lowest tried` or "
            "`yes, the highest tried` at the end of the range, where a better one may lie beyond; `diverged` if the "
            "loss of a run became infinite; else an empty string.",
        ),
        Column(
            "Weights", TEXT, meaning="The SHA-256 of the last weights of each seed's run, joined by `+`; an empty "
            "string if the training of a seed failed or diverged.",
        ),
    ),
)  # fmt: skip
CHOICE = """\
Each model was trained with several learning rates. Only the runs of the rate with the lowest validation loss, as the
mean over seeds, are in the tables."""
TAKEN = {None: "yes", "lowest": "yes, the lowest tried", "highest": "yes, the highest tried"}  # by `Choice.edge`
ADVICE = "Add rates to `lr` in the study before you compare these models; what is trained already is kept."


@sections.register("learning_rates")
class LearningRates(Section):
    """The choice of learning rates in a study."""

    chapter = "Learning rates"
    place = 90
    files = (FILE,)
    tables = (RATES,)

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["rates"] if len(tables_of(data.evaluated, data.shown())) else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        table = pd.concat(tables_of(data.evaluated, data.shown()), ignore_index=True)
        edge = at_edge(data)
        blocks = [Text(CHOICE), *([Text(edge, strong=True), Text(ADVICE, code=True)] if edge else [])]
        if gone := _gone(data):
            blocks.append(Text(f"The weights of {join_names(gone)} are no longer in the study's folder.", strong=True))
        return Part([*blocks, Table(table.drop(columns="Weights"), "Learning rates")], {FILE: parquet(table)})


def at_edge(data: ReportData) -> str:
    """A sentence about the models whose learning rate is at the end of the range tried; empty if there are none."""
    models: dict[str, list[str]] = {}
    for table in tables_of(data.evaluated, data.shown()):
        for edge, taken in TAKEN.items():
            if edge is not None and len(group := table[table["Taken"] == taken]):
                models.setdefault(edge, []).extend(group["Model"])
    ends = " and ".join(f"the {edge} that was tried for {join_names(names)}" for edge, names in models.items())
    return f"The learning rate is {ends}: a better one may exist." if ends else ""


def tables_of(evaluated: LoadedTables, runs: Collection[str]) -> list[pd.DataFrame]:
    """The tables of the studies of these runs, and of kept rows, restricted to models with chosen weights among them.

    Models with the same name in several studies are prefixed with the study's name. Weights are compared because other
    runs may have been trained in a study's folder since.
    """
    return list(_by_file(evaluated, runs).values())


def _by_file(evaluated: LoadedTables, runs: Collection[str]) -> dict[Path, pd.DataFrame]:
    """The same tables, by the files that they were read from."""
    folders = {part.folder: None for parts in evaluated.runs.values() for part in parts}
    files = dict.fromkeys(place / FILE for folder in folders for place in (folder, folder.parent.parent))
    weights = evaluated.weights(runs)
    found: dict[Path, pd.DataFrame] = {}
    for file in filter(Path.is_file, files):
        table = results.read_frame(file)
        taken = table[table["Taken"].isin(TAKEN.values())]
        chosen = [not weights.isdisjoint(joined.split("+")) for joined in taken["Weights"]]
        table = table[table["Model"].isin(taken.loc[chosen, "Model"])]
        if len(table) and not any(table.equals(one) for one in found.values()):
            found[file] = table
    several = Counter(name for table in found.values() for name in set(table["Model"]))
    return {
        file: table.assign(
            Model=[f"{file.parent.name}/{name}" if several[name] > 1 else name for name in table["Model"]]
        )
        for file, table in found.items()
    }


def _gone(data: ReportData) -> list[str]:
    """The models and rates whose weights are no longer in the study's folder: `rope at 0.001`."""
    found = []
    for file, table in _by_file(data.evaluated, data.shown()).items():
        there = _weights_in(file.parent / RUNS)
        for model, rate, joined in table[["Model", "Learning rate", "Weights"]].itertuples(index=False):
            if there and joined and not there.issuperset(joined.split("+")):
                found.append(f"{model} at {rate:g}")
    return found


def _weights_in(runs: Path) -> set[str]:
    """The hashes of the weights in these runs; empty if there are no runs."""
    return {sha256 for run in runs.glob("*/") for sha256 in kept.weights_in(run) or ()}
