"""xt.sweep"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from extrapolate import files, results, specs
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import lines_on
from extrapolate.evaluation.protocols.base import lengths_of
from extrapolate.folders import RESULTS, join_names
from extrapolate.interop import trackers
from extrapolate.interop.trackers import Tracking
from extrapolate.machine.limits import cores
from extrapolate.names import ASKED, RUNS
from extrapolate.progress import QUIET, Display, Progress, warn
from extrapolate.reports import Written, write_report
from extrapolate.reports.published import Repeating, write_cells
from extrapolate.reports.questions import write_questions
from extrapolate.reports.sections.learning_rates import FILE, RATES, TAKEN
from extrapolate.runs import trust
from extrapolate.runs.config import training_of
from extrapolate.runs.resolve import operations, token_operations
from extrapolate.runs.run import Run, file_sha256
from extrapolate.specs import arguments
from extrapolate.studies import local, rates, ray_engine, state
from extrapolate.studies.cells import cells_of, encoding_slug
from extrapolate.studies.estimate import Estimate, estimate, fastest_jobs
from extrapolate.studies.questions import question_rows
from extrapolate.studies.resolved import Resolved, open_stores, resolve_cells
from extrapolate.studies.status import STUDY
from extrapolate.studies.study import Study, read_study
from extrapolate.studies.tasks import Kind, Task, Tasks, share_of
from extrapolate.studies.worker import core_shares

JOBS, REPORT = "jobs.json", "report"
ENGINES = ("local", "ray")
WORTH_MEASURING = 1e14  # floating-point operations; a CPU does fewer in minutes, and measuring would take too long


@dataclass(frozen=True)
class Swept:
    """The result of a study.

    folder: its folder. runs: the evaluated runs. failed: cells, with the reason. diverged: cells whose training
    diverged; those without another learning rate to use are in `failed`, too. learning_rates: a row for each model and
    rate, with the choice; empty if no model has several. reports: what `xt.report` returned, by folder: one
    report, or one for each length, text and precision that cells differ in.
    """

    folder: Path
    runs: list[Run]
    failed: dict[str, str]
    diverged: dict[str, str]
    learning_rates: pd.DataFrame
    reports: dict[Path, Written]


def sweep(
    study: str | Path,
    out: str | Path | None = None,
    *,
    scale: str | None = None,
    encodings: Sequence[str] = (),
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    array: tuple[int, int] | None = None,
    tracker: str | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> Swept:
    """Trains and evaluates every cell of a study and writes a report on them.

    study: a TOML file, described in docs/studies.md. out: the study's folder (default: in sweeps/, named after the
    file). Finished work in it is never repeated, interrupted work continues, and failed cells are retried, except those
    whose training diverged, because it would diverge again. scale: apply the file's section [scale.NAME], in a separate
    folder (default: none). encodings: specs, or classes of your own (`my_file.py:MyEncoding`), to train instead of the
    file's and in the same way, in a separate folder; what the file says about single models is then ignored (default:
    the file's). jobs: the number of cells to work on at once, each in a process with its share of the cores (default: 1
    or one per core, whichever a short measurement finds faster).

    engine: `local`, or `ray`, which distributes the cells over a cluster whose machines all have `extrapolate`
    installed at the same path. address: the address of the cluster, or `auto` for the cluster that this machine belongs
    to (default: start a new cluster on this machine). cpus, gpus: what Ray reserves for each cell; with 0.25 GPUs, four
    cells share a GPU. All machines need `out` and the token stores under the same paths.

    array: (index, count), with index from 0 to count - 1. Splits the cells into `count` shares and works on share
    `index` only, without writing a report, so that any scheduler can start the shares. A call without `array` then
    writes the report.

    tracker: `trackio`, `wandb` or `tensorboard`, which also receives each row of the runs' logs, grouped by the study's
    name (default: none). trust_code: allow Python files that the study names to run, even if you have not run them
    before; see docs/trust.md. Missing token stores are made as the file says, in the study's folder or the current one.

    A cell that fails does not stop the others; `Swept.failed` has the reason. Raises UserError before training anything
    if the file is invalid, or runs in `out` were trained with other settings.
    """
    trackers.check(tracker)
    if engine not in ENGINES:
        raise UserError(f"unknown engine '{engine}': there are {', '.join(ENGINES)}")
    if array is not None:
        index, count = array
        if not 0 <= index < count:
            raise UserError(f"`array={index}/{count}`: the index goes from 0 to the count minus 1")
    if jobs is not None:
        core_shares(jobs)  # raises if there are fewer cores
    read, folder, ready = _ready(study, out, scale, encodings, trust_code, progress, make=True)
    ready = [replace(cell, tracking=Tracking(tracker, folder.resolve().name)) for cell in ready]
    for line in lines_on({cell.name: cell.left_out for cell in ready}):
        warn(progress, line)
    every = ready
    if array is not None:
        ready = share_of(every, *array)
    with state.turn(folder, None if array is None else array[0]):
        _write_asked(folder, scale, encodings, every)
        files.write_text(folder / STUDY, read.text)
        _forget_evaluations(every, folder)
        write_questions(folder, question_rows(read, every))
        write_cells(folder, read.published, [_repeating(cell) for cell in every if cell.cell.continues is None])
        tasks = Tasks(
            ready,
            lambda cell: rates.validation_loss(cell.path),
            lambda name, reason: state.write(folder, name, state.CellState(failed=reason)),
        )
        _find_done(tasks, folder)
        if engine == "local" and tasks.ready():
            jobs = _jobs_of(folder, tasks, progress) if jobs is None else jobs
            files.write_json(folder / JOBS, {"jobs": jobs})
        with progress.display("GFLOP", "stopped; what was done is kept: run the same command again") as display:
            screen = _Screen(tasks, display)
            if engine == "ray":
                ray_engine.run(tasks, folder, address, cpus, gpus, screen.show)
            else:
                local.run(tasks, folder, jobs or 1, screen.show)
        swept = _finish(tasks, folder, progress, with_report=array is None)
        _write_asked(folder, scale, encodings, every)  # again, without cells that are passed over now
        return swept


def estimate_sweep(
    study: str | Path,
    out: str | Path | None = None,
    *,
    scale: str | None = None,
    encodings: Sequence[str] = (),
    jobs: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> tuple[pd.DataFrame, Estimate]:
    """Estimates the time of a study, by cell and as a whole, without writing anything.

    The rows have the cell, its encoding, number of parameters, training tokens, floating-point operations, and seconds
    of training and of evaluation. They are the cell's tokens at the speed that its model has here in a few training
    steps and forward passes. Only one learning rate per model is evaluated and continued; the first stands for it, and
    the others have 0 s for that. Arguments and errors are those of `sweep`; a missing token store is an error too.
    """
    if jobs is not None:
        core_shares(jobs)
    _, _, ready = _ready(study, out, scale, encodings, trust_code, progress, make=False)
    jobs = _jobs(ready, progress) if jobs is None else jobs
    with progress.display("models") as display:
        found = estimate(ready, jobs, lambda done, total: display.update("measuring", done, total))
    rows = [
        {
            "cell": cell.name, "encoding": cell.cell.settings["encoding"], "parameters": cell.parameters,
            "tokens": cell.config.training.tokens, "flops": operations(cell.config),
            "training_s": found.training_s[cell.name], "evaluation_s": found.evaluation_s[cell.name],
        }
        for cell in ready
    ]  # fmt: skip
    return pd.DataFrame(rows), found


def _ready(
    study: str | Path,
    out: str | Path | None,
    scale: str | None,
    encodings: Sequence[str],
    trust_code: bool,
    progress: Progress,
    *,
    make: bool,
) -> tuple[Study, Path, list[Resolved]]:
    """The study, its folder and its cells. make: make missing token stores."""
    encodings = arguments.several("encodings", encodings, arguments.TEXT)
    read = read_study(arguments.path("study", study), scale, encodings)
    folder = _own_folder(read.file, scale, encodings) if out is None else arguments.path("out", out)
    for place in (folder, folder / RUNS):  # the study's folder itself may be a link
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            files.check_no_link(path)
    cells = cells_of(read)
    stores = open_stores(read, cells, folder, progress, make=make)
    for name in encodings:  # the user named these files, and the study those that must be trusted
        if (file := Path(specs.parse(name).name.rpartition(":")[0])).suffix == ".py" and file.is_file():
            trust.allow(file_sha256(file), file, recorded=make)
    with trust.required(trust_code) as ran:
        ready = resolve_cells(read, cells, stores, folder / RUNS)
        list(question_rows(read, ready))  # raises if something is wrong with them
    return read, folder, [replace(cell, code=frozenset(ran)) for cell in ready]


def _own_folder(file: Path, scale: str | None, encodings: Sequence[str]) -> Path:
    """The folder in `sweeps` with a study's name. Raises UserError if the name, or a link, leads elsewhere."""
    name = "-".join([file.stem, *([] if scale is None else [scale]), *map(encoding_slug, encodings)])
    if name in (".", "..") or "/" in name:
        raise UserError(
            f"{file}: a folder in sweeps cannot be called '{name}': rename the file or the scale, or name `out`"
        )
    folder = Path("sweeps") / name
    if not (there := folder.resolve()).is_relative_to(Path.cwd().resolve()):
        raise UserError(f"{folder} leads to {there} by a link: name it as `out` if the study is to be done there")
    return folder


def _write_asked(folder: Path, scale: str | None, encodings: Sequence[str], cells: Sequence[Resolved]) -> None:
    due = {
        cell.name: dict(zip(("config_hash", "seed"), training_of(cell.config), strict=True))
        for cell in cells
        if not state.read(folder, cell.name).passed_over
    }
    files.write_json(folder / ASKED, {"scale": scale, "encodings": list(encodings), "cells": due})


def _forget_evaluations(cells: Sequence[Resolved], folder: Path) -> None:
    """Forgets evaluations that are not what the study asks for now, which another share may have to repeat."""
    for cell in cells:
        known = state.read(folder, cell.name).evaluated is not None and state.trained(cell.path)
        if known and not state.evaluated(folder, cell.name, cell.path, cell.evaluation):
            state.write(folder, cell.name, state.CellState())


def _repeating(cell: Resolved) -> Repeating:
    config = cell.config
    return Repeating(cell.name, cell.cell.settings["encoding"], config.preset, config.model.layers, config.data.source)


def _jobs_of(folder: Path, tasks: Tasks, progress: Progress) -> int:
    """The number of jobs of an earlier call, because another number of threads rounds differently; or `_jobs`."""
    if (folder / JOBS).is_file():
        said = files.read_json(folder / JOBS)
        if not isinstance(said, dict) or type(jobs := said.get("jobs")) is not int:
            raise UserError(f"{folder / JOBS} is damaged: delete it")
        if 1 <= jobs <= cores():
            return jobs
    return _jobs([tasks.cells[name] for name in dict.fromkeys(task.cell for task in tasks.ready())], progress)


def _jobs(cells: Sequence[Resolved], progress: Progress) -> int:
    """The number of jobs at once that is fastest here."""
    most = min(cores(), len(cells))
    if most < 2:
        return 1
    on_cpu = all(cell.config.training.device == "cpu" for cell in cells)
    if on_cpu and sum(operations(cell.config) for cell in cells) < WORTH_MEASURING:
        progress.say(f"{most} jobs at once: the study is too short to measure whether 1 would be faster")
        return most
    jobs, rates_of = fastest_jobs(cells)
    shown = ", ".join(f"{rate:,.1f} with {count}" for count, rate in rates_of.items())
    progress.say(f"{jobs} jobs at once, as measured on the longest cell: cells per hour are {shown}")
    return jobs


def _find_done(tasks: Tasks, folder: Path) -> None:
    """Marks the tasks that an earlier call has finished, in the order in which they follow from each other."""
    for cell in tasks.cells.values():
        if state.trained(cell.path):
            tasks.finish(Task("train", cell.name))
        elif (reason := state.diverged(folder, cell.name, cell.config)) is not None:
            tasks.diverge(cell.name, reason)
    for cell in tasks.cells.values():
        if Task("train", cell.name) not in tasks.done or not tasks.chosen(cell.name):
            continue
        if state.evaluated(folder, cell.name, cell.path, cell.evaluation):
            tasks.finish(Task("evaluate", cell.name))


def _gigaflops(cell: Resolved, kind: Kind) -> float:
    """10^9 floating-point operations of a cell's training or evaluation."""
    if kind == "train":
        return operations(cell.config) / 1e9
    inputs, sizes = cell.evaluation_inputs.items(), cell.config.model
    return sum(tokens * token_operations(sizes, length, scored) for (length, scored), tokens in inputs) / 1e9


class _Screen:
    """Shows how many cells of a study are done, and the progress of those under way."""

    def __init__(self, tasks: Tasks, display: Display) -> None:
        self.tasks, self.display = tasks, display

    def show(self, running: Sequence[tuple[Task, float | None]]) -> None:
        tasks = self.tasks
        if not tasks.done and all(share is None for _, share in running):
            return  # processes are starting, which would distort the rate
        costs = {task: _gigaflops(tasks.cells[task.cell], task.kind) for task in tasks.expected()}
        done = sum(cost for task, cost in costs.items() if tasks.settled(task))
        parts = []
        for task, share in running:
            done += (share or 0.0) * costs.get(task, 0.0)
            parts.append(f"{task.kind} {task.cell} {share or 0.0:.0%}")
        finished = sum(task.kind == "evaluate" for task in tasks.done) + sum(map(tasks.passed_over, tasks.cells))
        note = f"{finished} of {len(tasks.cells)} cells done"
        failed = len(tasks.without())
        self.display.update(", ".join(parts), done, sum(costs.values()), f"{note}, {failed} failed" if failed else note)


def _finish(tasks: Tasks, folder: Path, progress: Progress, with_report: bool) -> Swept:
    failed = tasks.without()
    for name, reason in failed.items():
        if name not in tasks.diverged:
            state.write(folder, name, state.CellState(failed=reason))
        progress.say(f"{name} failed: {reason}")
    for warning, names in tasks.warnings.items():
        warn(progress, f"{', '.join(names)}: {warning}")
    for name in tasks.diverged.keys() - failed.keys():
        progress.say(f"{name} diverged, and another learning rate is taken: {tasks.diverged[name]}")
    passed_over = set(filter(tasks.passed_over, tasks.cells))
    if no_more := sorted(name for name in passed_over if state.read(folder, name).evaluated is not None):
        warn(progress, f"left out of the report, for another learning rate is taken now: {join_names(no_more)}")
    for name in passed_over - failed.keys() - tasks.diverged.keys():
        state.write(folder, name, state.CellState(passed_over=True))
    frame = _learning_rates(tasks)
    if with_report and len(frame):
        results.write_frame(folder / FILE, frame)
    elif with_report:  # the study may have had several rates before
        (folder / FILE).unlink(missing_ok=True)
    evaluated = [cell for cell in tasks.cells.values() if Task("evaluate", cell.name) in tasks.done]
    written = _write_reports(evaluated, folder, progress) if with_report else {}
    with_rows = {rows.parent.name for rows in (folder / RUNS).glob(f"*/{RESULTS}")}
    if with_report and (gone := sorted(with_rows - tasks.cells.keys())):
        warn(progress, f"left out of the report, for they are no cells of the study any more: {join_names(gone)}")
    reports = {page.parent for page in folder.glob(f"{REPORT}*/*.html")} if written else set()
    if old := sorted(map(str, reports - written.keys())):
        warn(progress, f"kept, although they are of what the study asked for earlier: {join_names(old)}")
    return Swept(folder, [Run.open(cell.path) for cell in evaluated], failed, tasks.diverged, frame, written)


def _learning_rates(tasks: Tasks) -> pd.DataFrame:
    """A row for each model with several learning rates and each of these: see `reports.sections.learning_rates`."""
    rows = []
    for group in tasks.groups:
        if (choice := tasks.choices.get(group[0].name)) is None:
            continue
        for rate, loss in choice.losses.items():
            half_width = choice.half_widths[rate]
            diverged = loss is not None and not math.isfinite(loss)
            taken = "diverged" if diverged else TAKEN[choice.edge] if rate == choice.chosen else ""
            finished = loss is not None and not diverged
            weights = _weights([tasks.cells[cell.name] for cell in group], rate) if finished else ""
            rows.append((group[0].model_name, rate, loss, half_width, len(choice.seeds), taken, weights))
    return pd.DataFrame(rows, columns=[column.name for column in RATES.columns])


def _weights(group: Sequence[Resolved], rate: float) -> str:
    """The hashes of the weights of a group's runs with this rate, joined by `+`."""
    return "+".join(Run.open(cell.path).checkpoints("last")[-1].sha256 for cell in group if cell.lr == rate)


def _write_reports(cells: Sequence[Resolved], folder: Path, progress: Progress) -> dict[Path, Written]:
    """Writes `report`, or `report-L64`, `report-L128` and so on: one for each length, text and precision, because only
    losses with the same are comparable. Returns them by folder."""
    kinds: dict[tuple[int, str, str], list[Resolved]] = {}
    for cell in cells:
        for precision in cell.evaluation.precisions:
            kinds.setdefault((cell.config.seq_len, cell.config.data.corpus_hash, precision), []).append(cell)
    several = [len(set(values)) > 1 for values in zip(*kinds, strict=True)]
    written: dict[Path, Written] = {}
    for (seq_len, corpus, precision), mine in kinds.items():
        words = (f"L{seq_len}", f"{mine[0].data.name}-{corpus[:6]}", precision)
        name = "-".join([REPORT, *itertools.compress(words, several)])
        only = {"seq_len": seq_len, "corpus_hash": corpus, "precision": precision, "split": mine[0].evaluation.split}
        runs, out = [cell.path for cell in mine], folder / name
        written[out] = write_report(runs, out, None, only, asked=_asked(mine))
        for warning in written[out].warnings:
            progress.say(warning)
    return written


def _asked(cells: Sequence[Resolved]) -> dict[str, set[object]]:
    """The values of tables' columns that these cells' evaluations have; their runs may have others from earlier."""
    evaluations = [cell.evaluation for cell in cells]
    return {
        "protocol": {protocol for one in evaluations for protocol in one.protocols},
        "probe": {probe.text for one in evaluations for probe in one.parsed_probes()},
        "extension": {extension for cell in cells for extension in cell.models},
        "length": {length for cell in cells for length in lengths_of(cell.evaluation.factors, cell.config.seq_len)},
    }
