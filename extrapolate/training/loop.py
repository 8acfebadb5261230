"""The training loop: optimiser, schedule, validation, saving, exact resume."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from extrapolate import files, results
from extrapolate.data.special_tokens import KEPT, OF_RUN
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.losses import validation_loss
from extrapolate.folders import LOG, METRICS, STATE, TRUNK, WEIGHTS, join_names
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.machine.distributed import ALONE, Ranks, check_devices
from extrapolate.machine.interrupts import Interrupted, stop_requests
from extrapolate.model.causality import may_leak
from extrapolate.model.model import Model
from extrapolate.model.size import check_training
from extrapolate.progress import unseen
from extrapolate.runs.run import CONFIG, TOKENIZER, USER_ENCODING, Run, check_same, is_of_another_kind
from extrapolate.runs.weights import forget_checkpoints, forget_training, has_half, load_start
from extrapolate.training import state
from extrapolate.training.fine_tuning import tokens_of
from extrapolate.training.gradient_step import GradientStep, TrainingData
from extrapolate.training.half import Branch, branch_of
from extrapolate.training.job import TrainingJob
from extrapolate.training.log import Log, rows_in
from extrapolate.training.optimizer import learning_rate, optimizer_of
from extrapolate.training.own_code import check_own_code, check_reloaded

SAVE_EVERY_S = 30.0  # a killed run loses this and the step under way: less than a minute
VALIDATIONS = 10  # spread over a run, the last at its end

Report = Callable[[dict[str, Any]], None]


def initial_model(run: Run) -> Model:
    """A model with fresh weights, which depend only on the seed."""
    torch.manual_seed(run.trained.training.seed)
    return run.build_model(drawn=True)


def own_plan(run: Run, model: Model) -> Plan:
    """The plan that the run's own extension gives its training windows."""
    own = run.own_extension
    return PLAIN if own is None else own.plan(model.encoding, model.seq_len, run.config.trained_length)


def train(
    job: TrainingJob,
    *,
    resume: bool = False,
    report: Report = lambda row: None,
    progress: Callable[[str, float], None] = unseen,
    ranks: Ranks = ALONE,
    timed: bool = True,
) -> Run:
    """Trains a run in its folder, or with `resume` continues the one that is there.

    `report` is called with every row of metrics.jsonl; `progress` with the tokens already trained on, then with those
    of every forward pass (in a compiled run, all of these after the first pass, which includes compilation).

    ranks: the processes that train together, which all call this; the first one writes, and any number of processes
    can resume. timed: record the speed of steps, which means nothing beside other work.

    Raises UserError if the store holds another text than the configuration says, the data do not fill a window, a token
    sees later ones, the folder holds another run or lies in one, or there is neither a saved state nor the `start` that
    the run's origin requires; RuntimeError if the loss is no longer finite; Interrupted on Ctrl-C, once the state is
    saved.
    """
    config, store, path = job.config, job.store, job.path
    if store.corpus_hash != config.data.corpus_hash:
        raise UserError(
            f"{path} is trained on corpus {config.data.corpus_hash}, and {store.path} is {store.corpus_hash} now: make "
            "its own token store again, or train another run in another folder"
        )
    if config.origin is not None and job.start is None and not _begun(path):
        raise UserError(
            f"{path} starts from the weights of {config.origin.run}, and no state of its own is saved: name that run "
            "with `start`"
        )
    if not _begun(path):
        check_place(path)
    training = config.training
    check_training(
        config.model,
        step_tokens=training.batch_size * training.seq_len,
        pass_tokens=training.micro_batch_size * training.seq_len,
        device=training.device,
    )
    check_devices(training.device)
    data = TrainingData(training, store, config.model.vocab_size)

    if not (path / WEIGHTS).is_file():
        check_own_code(config, job.user_encoding, job.extension)

    def opened() -> Run:
        files.remove_partials(path)
        if _begun(path):
            if not resume:
                raise UserError(f"{path} already holds a run; continue it with `resume=True`, or choose another `out`")
            run = Run.open(path)
            check_same(run, config)
        else:  # empty, or left by a training that was killed before it first saved
            check_empty(path)
            forget_training(path)
            tokens = tokens_of(store, job.start)
            run = Run.create(path, config, store.tokenizer_json(), job.user_encoding, tokens)
            files.write_bytes(path / LOG, b"")  # see `_finish`
        if job.extension is not None:
            run.keep_extensions(job.extension.files)
        if run.finished:
            _finish(path)
        return run

    with ranks.in_first(lambda: files.locked(path)):
        run = ranks.from_first(opened)
        if not run.finished:
            Training(run, data, job, report, progress, ranks, timed).loop()
        ranks.wait()
    return run


def tidy(path: Path) -> None:
    """Finishes a training that was killed after writing its final weights."""
    if (path / STATE).exists() or _lacks_metrics(path) or next(path.rglob(".*.partial"), None) is not None:
        with files.locked(path):
            files.remove_partials(path)
            _finish(path)


def _finish(path: Path) -> None:
    """Writes metrics.parquet after the final weights: a log without it marks results as those of other weights."""
    if _lacks_metrics(path):
        results.write_frame(path / METRICS, pd.DataFrame(rows_in(path / LOG)))
    for name in (STATE, TRUNK):
        (path / name).unlink(missing_ok=True)


def _lacks_metrics(path: Path) -> bool:
    return (path / LOG).is_file() and not (path / METRICS).is_file()


def check_empty(path: Path) -> None:
    """Raises UserError if a folder holds anything but a run, such as a token store or other runs."""
    before = {TOKENIZER, USER_ENCODING, OF_RUN, *KEPT}  # written before the configuration
    others = sorted(one.name for one in path.iterdir() if one.name[0] != "." and one.name not in before)
    if others and not (path / CONFIG).exists():
        raise UserError(f"{path} is no run, and holds other files ({join_names(others)}): choose a new folder as `out`")


def check_place(path: Path) -> None:
    """Raises UserError if a folder lies in another run, where it would not be found."""
    for above in path.resolve().parents:
        if (above / CONFIG).is_file() and not is_of_another_kind(above):
            raise UserError(f"{path} lies in the run {above}, where no other run is looked for: choose another `out`")


def _begun(path: Path) -> bool:
    return any((path / name).is_file() for name in (STATE, WEIGHTS))


class NotFinite(RuntimeError):  # noqa: N818 (describes the loss)
    """A loss, or its gradient's norm, is infinite or not a number."""


class Training:
    """One run's training, from its last saved state to its end."""

    def __init__(
        self,
        run: Run,
        data: TrainingData,
        job: TrainingJob,
        report: Report,
        progress: Callable[[str, float], None] = unseen,
        ranks: Ranks = ALONE,
        timed: bool = True,
    ) -> None:
        self.run, self.data, self.report, self.progress, self.ranks = run, data, report, progress, ranks
        self.save_every, self.keep_every, self.timed = job.save_every, job.keep_every, timed
        self.training = run.trained.training
        self.model = initial_model(run)
        if job.start is not None:
            load_start(self.model, job.start)
        self.model.to(self.training.device)
        self.plan = own_plan(run, self.model)
        self.optimizer = optimizer_of(self.model, self.training)
        self.step = 0
        self.log = Log(run.path / LOG)
        own = branch_of(self.training.steps)
        self.branch: Branch | None = None  # the one that the training is in
        if (run.path / STATE).exists():
            saved = state.restore(run.path / STATE, self.model, self.optimizer, run.config_sha256)
            self.step = saved.step
            self.branch = own if own is not None and own.end == saved.branch_end else None
            if ranks.first:
                left = own is not None and self.branch is None and own.begin <= saved.step
                forget_checkpoints(run.path, saved.step, own.end if own is not None and left else None)
                self.log.continue_at(saved.log_bytes, saved.log_sha256)
        there = ranks.from_first(lambda: own is not None and has_half(run.path, own.end))
        self.due = own if job.half and self.branch is None and not there else None
        self.model.constrain()
        self.gradient_step = self._gradient_step()
        self._untold = self.tokens
        self._saved_at = time.monotonic()
        self.requests: Sequence[int] = []  # signals to stop
        self._agreed = (False, False)  # whether any process had either of `_wishes` in the last step

    @property
    def tokens(self) -> int:
        """Tokens trained on so far, inputs of all windows."""
        return self.step * self.training.batch_size * self.training.seq_len

    def _passed(self, every: int) -> bool:
        """Whether the last step passed a multiple of `every` tokens."""
        per_step = self.training.batch_size * self.training.seq_len
        return self.tokens // every > (self.tokens - per_step) // every

    def _gradient_step(self) -> GradientStep:
        """The gradient_step for one process, or for several that share each batch."""
        parts = (self.model, self.plan, self.training, self._tell)
        if self.ranks.world_size == 1:
            return GradientStep(*parts)
        from extrapolate.training.data_parallel import DataParallel

        return DataParallel(*parts, self.ranks)

    def _wishes(self) -> tuple[bool, bool]:
        """Whether this process got a signal to stop, and whether the last saved state is old."""
        return bool(self.requests), self.ranks.first and time.monotonic() - self._saved_at > SAVE_EVERY_S

    def loop(self) -> None:
        """Trains to the end, saving as it goes, and writes the final weights."""
        if not self.training.compile:
            self._tell(0)
        self.model.train()
        with self.log if self.ranks.first else nullcontext(), stop_requests() as self.requests:
            while self.step < self.training.steps:
                if self.branch is not None and self.step == self.branch.end:
                    self._end_branch()
                elif self.due is not None and self.step == self.due.begin:
                    self._begin_branch(self.due)
                self._follow(self._step())
        if self.ranks.first:
            self.log.check()
            self.log.sync()
        if may_leak(model := self.model):
            self.ranks.from_first(lambda: check_reloaded(model, self.run.build_model, self.run.path))
        self._save_weights(final=True)
        if self.ranks.first:
            _finish(self.run.path)

    def _follow(self, row: dict[str, Any]) -> None:
        """Logs a step; validates, saves or stops if due. Raises Interrupted, once saved, if the user stops it.

        The log is of the whole training, so the steps of a branch are not in it.
        """
        if self.branch is None:
            self._tell_row(row)
            if self.step in {math.ceil(self.training.steps * n / VALIDATIONS) for n in range(1, VALIDATIONS + 1)}:
                self._tell_row(self._validate())
            if self.keep_every and self._passed(self.keep_every):
                self._save_weights(final=False)
        stop, late = self._wishes() if self.ranks.world_size == 1 else self._agreed
        due = self._passed(self.save_every) if self.save_every else late
        if self.step < self.training.steps and (due or stop):
            self._save()
            if stop:
                raise Interrupted(
                    f"stopped after step {self.step} of {self.training.steps}, which is saved; "
                    f"extrapolate train --out {self.run.path} --resume continues"
                )

    def _step(self) -> dict[str, Any]:
        """Takes a step, and returns its row. Raises NotFinite if the loss or the gradient is not."""
        began, load = time.perf_counter(), CpuTime.now()
        batch, weight = self.data.batch(self.step * self.training.batch_size, self.training.batch_size)
        self.gradient_step.begin_step(self.step)
        self.model.begin_step(self.step / self.training.steps)
        part = self.gradient_step.gradients(batch, weight)
        lr = learning_rate(self.training, self.step, self.branch)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["rate"]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        loss, stop, late = self.ranks.sums(part, *self._wishes())
        self._agreed = stop > 0, late > 0
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NotFinite(
                f"the loss is {loss:g} and its gradient's norm {float(norm):g} at step {self.step + 1} "
                f"of {self.run.path}; a lower `lr` is the first thing to try"
            )
        self.optimizer.step()
        self.model.constrain()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        seconds = time.perf_counter() - began
        row = {"loss": loss, "lr": lr, "grad_norm": float(norm)}
        rate = self.training.batch_size * self.training.seq_len / seconds
        if (now := CpuTime.now()) is not None and load is not None:
            row["cpu_taken_share"] = (now - load).taken
        return row | ({"tokens_per_s": rate} if self.timed else {})

    def _tell(self, tokens: int) -> None:
        """Reports tokens to `progress`, the first time including those of earlier steps."""
        self.progress("training" if self.branch is None else "annealing", self._untold + tokens)
        self._untold = 0

    def _validate(self) -> dict[str, Any]:
        self.progress("validating", 0)
        self.model.eval()
        loss = validation_loss(
            self.model,
            self.data.validation,
            self.data.validation_windows,
            self.plan,
            batch_tokens=self.training.micro_batch_tokens,
            progress=lambda tokens, loss: self.progress("validating", 0),
        )
        self.model.train()
        return {"val_loss": loss}

    def _tell_row(self, values: dict[str, Any]) -> None:
        row = {"step": self.step, "tokens": self.tokens} | values
        if self.ranks.first:
            self.log.add(row)
            self.report(row)

    def _begin_branch(self, branch: Branch) -> None:
        self._save(TRUNK)
        self.branch, self.due = branch, None

    def _end_branch(self) -> None:
        """Keeps the branch's weights, and goes back to where it began."""
        self._save_weights(final=False)
        if self.ranks.first:
            os.replace(self.run.path / TRUNK, self.run.path / STATE)
        self.ranks.wait()
        self.step = state.restore(self.run.path / STATE, self.model, self.optimizer, self.run.config_sha256).step
        self.branch = None

    def _save(self, name: str = STATE) -> None:
        if self.ranks.first:
            self.log.sync()
            end = None if self.branch is None else self.branch.end
            progress = state.ResumePoint(self.step, self.log.bytes, self.log.sha256, end)
            state.save(self.run.path / name, self.model, self.optimizer, progress, self.run.config_sha256)
        self._saved_at = time.monotonic()

    def _save_weights(self, *, final: bool) -> None:
        if self.ranks.first:
            self.run.save_weights(self.model, self.step, self.tokens, final=final, half=self.branch is not None)
