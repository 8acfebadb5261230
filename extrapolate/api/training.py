"""The work of `xt.train`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from extrapolate.api.run_loop import imported
from extrapolate.api.tokenize import default_store
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import HUB
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import lengths_of
from extrapolate.evaluation.rows import BLOCK_FACTOR
from extrapolate.evaluation.settings import Lengths
from extrapolate.folders import STATE
from extrapolate.interop import trackers
from extrapolate.interop.imported import place_of
from extrapolate.interop.trackers import UNTRACKED, Tracking
from extrapolate.machine.devices import chosen
from extrapolate.machine.distributed import joined
from extrapolate.progress import SILENT, Progress
from extrapolate.runs.resolve import TrainingRequest, data_path
from extrapolate.runs.resolve import check as check_request
from extrapolate.runs.run import Run
from extrapolate.specs import arguments
from extrapolate.statistics.reach import too_short
from extrapolate.training import loop
from extrapolate.training.fine_tuning import store_of
from extrapolate.training.half import trained_tokens
from extrapolate.training.job import TrainingJob, check_resumed, run_in


def train_with(
    request: TrainingRequest,
    data: str | Path | Store | None,
    out: Path | None,
    resume: bool,
    *,
    progress: Progress,
    timed: bool = True,
    tracking: Tracking = UNTRACKED,
) -> Run:
    """Does what `xt.train` does. timed: keep the duration with the run; False if other work runs at the same time."""
    with joined("what was saved is kept, and the same command with `resume=True` goes on from there") as ranks:
        if not ranks.first:
            progress = SILENT
        there = run_in(out) if resume and out is not None else None
        if request.start is not None and str(request.start).startswith(HUB):
            checkpoint = str(request.start)
            if there is not None and (there.finished or (there.path / STATE).exists()):  # it has all it needs
                request = replace(request, start=place_of(checkpoint.removeprefix(HUB)))
            else:
                request = replace(request, start=ranks.in_turn(lambda: imported(checkpoint, None, progress)))
        if request.extend is not None and request.start is None and (there is None or there.trained.origin is None):
            raise UserError("`extend` belongs to a run that continues another: name that run with `start`")
        store = opened_store(data if data is not None else data_path(request))
        if there is not None:
            check_resumed(there, request, store)
            if there.finished:
                if ranks.first:
                    loop.tidy(there.path)
                progress.say(f"{there.path} is already finished: nothing to do")
                return there
            job = TrainingJob.resumed(there, request, store or Store.open(Path(there.trained.data.path)))
        else:
            if request.start is None:
                if resume and out is not None and request.pe is None and request.file is None:
                    raise UserError(f"{out} holds no run: to begin one there, name its encoding, `encoding='rope'`")
                check_request(request)
            if store is None and request.start is not None:
                store = Store.open(store_of(request.start))
            job = TrainingJob.new(request, store or ranks.in_turn(lambda: default_store(progress)), out)
        _say_what_is_unusual(job, progress)
        with progress.display("tokens") as display, trackers.tracked(job.path, tracking, progress.say) as track:
            shown = Shown(job, display.update)

            def report(row: dict[str, Any]) -> None:
                shown.report(row)
                track(row)

            run = loop.train(job, resume=resume, report=report, progress=shown.advance, ranks=ranks, timed=timed)
        if not shown.last:
            progress.say(f"{job.path} is already finished: nothing to do")
            return run
        seconds = run.training_seconds()
        took = "" if seconds is None else f", {seconds:.0f} s"
        progress.say(f"trained {job.path}: validation loss {shown.last['val_loss']:.3f} nats{took}")
        return run


def _say_what_is_unusual(job: TrainingJob, progress: Progress) -> None:
    """Says where a training runs, and whether its text is too short for it or for its evaluation."""
    training, store = job.config.training, job.store
    progress.say(f"training {job.path} {chosen(training.device, training.precision)}")
    tested_D, evaluated = store.split("test").lengths, lengths_of(Lengths.factors, job.config.seq_len)
    if (short := too_short(tested_D, evaluated, BLOCK_FACTOR * job.config.seq_len)) is not None:
        progress.say(f"{store.path}, test: {short}")
    train_tokens = store.manifest["splits"]["train"]["tokens"]
    if training.tokens > train_tokens:
        progress.say(f"the budget of {training.tokens:,} tokens repeats the {train_tokens:,} training tokens")


def path_of(parameter: str, given: str | Path | None) -> Path | None:
    """A path, or None. Raises UserError if it is something else."""
    return None if given is None else arguments.path(parameter, given)


def opened_store(data: str | Path | Store | None) -> Store | None:
    """The store that `data` is or names, or None. Raises UserError if it is something else."""
    return data if data is None or isinstance(data, Store) else Store.open(arguments.path("data", data))


class Shown:
    """Displays the step, the last losses and the learning rate of a training."""

    def __init__(self, job: TrainingJob, update: Any) -> None:
        training = job.config.training
        self.name, self.steps, self.update = job.path.name, training.steps, update
        self.total = trained_tokens(training, job.half)
        self.done = 0.0
        self.last: dict[str, float] = {}

    def advance(self, what: str, inputs: float) -> None:
        """Counts `inputs` more tokens as done."""
        self.done += inputs
        last = self.last
        notes = [f"step {last.get('step', 0):.0f}/{self.steps}"] if last else []
        notes += [f"{name} {last[key]:.3f}" for name, key in (("loss", "loss"), ("val", "val_loss")) if key in last]
        notes += [f"lr {last['lr']:.1e}"] if "lr" in last else []
        part = self.name if what == "training" else f"{self.name}, {what}"
        self.update(part, self.done, self.total, "  ".join(notes))

    def report(self, row: dict[str, float]) -> None:
        """Takes the values of a row of the log."""
        self.last.update(row)
        self.advance("training", 0)
