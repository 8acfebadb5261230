"""The work of `xt.train`."""

from pathlib import Path
from typing import Any

from extrapolate.api.in_turn import imported
from extrapolate.api.tokenize import default_store
from extrapolate.data.store import Store
from extrapolate.data.tokenizer import HUB
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import lengths_of
from extrapolate.evaluation.rows import BLOCK_FACTOR
from extrapolate.evaluation.settings import Lengths
from extrapolate.extensions.recipe import Recipe
from extrapolate.folders import STATE
from extrapolate.interop import trackers
from extrapolate.interop.imported import place_of
from extrapolate.interop.trackers import UNTRACKED, Tracking
from extrapolate.machine.devices import chosen
from extrapolate.machine.distributed import joined
from extrapolate.progress import SILENT, Progress
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, data_path, resolve, run_name
from extrapolate.runs.resolve import check as check_request
from extrapolate.runs.run import Run
from extrapolate.specs import arguments
from extrapolate.statistics.reach import too_short
from extrapolate.training import loop
from extrapolate.training.fine_tuning import resolve_fine_tuning, resolve_resumed, run_in, store_of
from extrapolate.training.half import kept, trained_tokens


def train_with(
    request: TrainingRequest,
    *,
    data: str | Path | Store | None,
    out: Path | None,
    resume: bool,
    save_every: int | None,
    keep_every: int | None,
    half: bool | None = None,
    start: Path | None,
    extend: str | None,
    progress: Progress,
    timed: bool = True,
    tracking: Tracking = UNTRACKED,
) -> Run:
    """Does what `xt.train` does. timed: keep the duration with the run; False if other work runs at the same time."""
    with joined("what was saved is kept, and the same command with `resume=True` goes on from there") as ranks:
        if not ranks.first:
            progress = SILENT
        folder = out
        extension: Recipe | None = None
        there = run_in(folder) if resume and folder is not None else None
        if start is not None and str(start).startswith(HUB):
            checkpoint = str(start)
            if there is not None and (there.finished or (there.path / STATE).exists()):  # it has all it needs
                start = place_of(checkpoint.removeprefix(HUB))
            else:
                start = ranks.in_turn(lambda: imported(checkpoint, None, progress))
        if extend is not None and start is None and (there is None or there.trained.origin is None):
            raise UserError("`extend` belongs to a run that continues another: name that run with `start`")
        store = opened_store(data if data is not None else data_path(request))
        if there is not None:
            folder = there.path
            resolved, user_file = resolve_resumed(there, request, start, extend, store)
            if there.finished:
                if ranks.first:
                    loop.tidy(folder)
                progress.say(f"{folder} is already finished: nothing to do")
                return there
            store = store or Store.open(Path(resolved.data.path))
        else:
            if start is None:
                if resume and folder is not None and request.pe is None and request.file is None:
                    raise UserError(f"{folder} holds no run: to begin one there, name its encoding, `encoding='rope'`")
                check_request(request)
            if store is None:
                store = Store.open(store_of(start)) if start else ranks.in_turn(lambda: default_store(progress))
            if start:
                resolved, user_file, extension = resolve_fine_tuning(start, request, extend, store)
            else:
                resolved, user_file = resolve(request, store)
            folder = folder or Path("ckpt") / run_name(resolved)
        progress.say(f"training {folder} {chosen(resolved.training.device, resolved.training.precision)}")
        seq_len = resolved.seq_len
        tested_D, evaluated = store.split("test").lengths, lengths_of(Lengths.factors, seq_len)
        if (short := too_short(tested_D, evaluated, BLOCK_FACTOR * seq_len)) is not None:
            progress.say(f"{store.path}, test: {short}")
        train_tokens = store.manifest["splits"]["train"]["tokens"]
        if resolved.training.tokens > train_tokens:
            progress.say(
                f"the budget of {resolved.training.tokens:,} tokens repeats the {train_tokens:,} training tokens"
            )
        with progress.display("tokens") as display, trackers.tracked(folder, tracking, progress.say) as track:
            half = kept(resolved, half)
            shown = Shown(resolved, folder.name, half, display.update)

            def report(row: dict[str, Any]) -> None:
                shown.report(row)
                track(row)

            run = loop.train(
                resolved, store, folder, resume=resume, user_encoding=user_file, extension=extension,
                start=Run.open(start).checkpoints("last")[-1] if start and not (folder / STATE).exists() else None,
                save_every=save_every, keep_every=keep_every, half=half, report=report, progress=shown.advance,
                ranks=ranks, timed=timed,
            )  # fmt: skip
        if not shown.last:
            progress.say(f"{folder} is already finished: nothing to do")
            return run
        seconds = run.training_seconds()
        took = "" if seconds is None else f", {seconds:.0f} s"
        progress.say(f"trained {folder}: validation loss {shown.last['val_loss']:.3f} nats{took}")
        return run


def path_of(parameter: str, given: str | Path | None) -> Path | None:
    """A path, or None. Raises UserError if it is something else."""
    return None if given is None else arguments.path(parameter, given)


def opened_store(data: str | Path | Store | None) -> Store | None:
    """The store that `data` is or names, or None. Raises UserError if it is something else."""
    return data if data is None or isinstance(data, Store) else Store.open(arguments.path("data", data))


class Shown:
    """Displays the step, the last losses and the learning rate of a training."""

    def __init__(self, config: TrainedConfig, name: str, half: bool, update: Any) -> None:
        training = config.training
        self.name, self.steps, self.update = name, training.steps, update
        self.total = trained_tokens(training, half)
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
