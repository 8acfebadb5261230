"""The work of `xt.estimate_evaluation` and `xt.estimate_tasks`: what an evaluation reads, and how long it takes here.

Tokens are counted exactly. Seconds are these tokens at the speed of a few windows on the device, and memory is the peak
of the longest of them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from extrapolate.api.run_loop import Job
from extrapolate.encodings.plan import Pairs, Plan
from extrapolate.evaluation import lengths
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.losses import ignored, scores_at, windows_at_once
from extrapolate.evaluation.memory import OutOfMemoryError
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.protocols.base import lengths_of, parse_protocol
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.window_losses import Inputs
from extrapolate.evaluation.work import OnText, Work, work_of
from extrapolate.machine.memory import forget_peak, peak_mib
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model
from extrapolate.progress import Progress
from extrapolate.runs.resolve import token_operations
from extrapolate.statistics.intervals import FEWEST

if TYPE_CHECKING:  # lm-eval is optional
    from extrapolate.interop.benchmarks import Tasks
    from extrapolate.interop.lm_eval import CountingLM

HOUR = 3600.0  # seconds; of longer evaluations it is said what to lower
SHORT = 128  # tokens of the first window that is timed
LEAST_S, MOST_S = 0.2, 20.0  # of a measurement, and what a batch of long windows may be expected to take
NEW = 8  # tokens that are generated to time one
FEWEST_TRIALS = 16  # of a probe
HALVINGS = 12  # of limits


@dataclass(frozen=True)
class Estimate:
    """What docs/results.md describes, with the device and the seconds of all rows.

    lower: if they take more than an hour, the settings to lower, by name; lower_s: the seconds that it then takes.
    """

    rows: pd.DataFrame
    device: str
    seconds: float
    lower: dict[str, Any]
    lower_s: float


@dataclass(frozen=True)
class Speed:
    """Seconds of a token by window length, ascending, if all are scored; of a generated one; and peak memory, MiB."""

    model: LanguageModel
    token_s: Mapping[int, float]
    new_s: float
    peak_mib: float | None

    def seconds(self, inputs: Inputs) -> float:
        """The seconds of inputs, by (length of the window, targets in it); a window of one input is a new token."""
        return sum(
            count * (self.new_s if length == 1 else self._at(length) * self.operations(length, scored))
            for (length, scored), count in inputs.items()
        )

    def _at(self, length: int) -> float:
        """Seconds of an operation: linear between the measured lengths, and constant beyond."""
        known = {n: seconds / self.operations(n, n) for n, seconds in self.token_s.items()}
        return float(np.interp(length, list(known), list(known.values())))

    def operations(self, length: int, scored: int) -> float:
        """Floating-point operations of a token; the same for all if another library runs the model."""
        return token_operations(self.model.config, length, scored) if isinstance(self.model, Model) else 1.0


def measured(
    run: AnyRun, settings: EvaluationSettings, reached: Iterable[int], device: str
) -> dict[tuple[str, str], Speed]:
    """The speed in each precision with each extension. reached: lengths of windows, tokens.

    Extensions that leave the pairs of queries and keys alone are as fast as the plain model, and not timed.
    """
    found = {}
    for _, loaded, precision, model in lengths.models(run, replace(settings, checkpoint="last"), device):
        known: dict[tuple[int, Pairs | None], Speed] = {}
        for text, applied in extensions_to_evaluate(run, loaded, settings.extend).items():
            plans = {n: applied.expected_plan(run, loaded, n) for n in sorted({*reached, loaded.seq_len})}
            defined = [n for n, plan in plans.items() if n <= loaded.seq_len or loaded.defined_at(n, plan)]
            plan = plans[defined[-1]]
            pairs = [one.pairs for one in (plan, *(part for _, part in plan.only)) if one.pairs is not None]
            key = defined[-1], pairs[0] if pairs else None
            if key not in known:
                timed = sorted({min(SHORT, defined[0]), defined[0], defined[-1]})
                known[key] = _timed(model, plan, precision, timed)
            found[precision, text] = known[key]
    return found


def _timed(model: LanguageModel, plan: Plan, precision: str, ascending: Sequence[int]) -> Speed:
    """Times a batch of windows of each length, as an evaluation computes them, or of the longest that takes seconds."""
    device = model.device.type

    def batch(length: int) -> int:
        return length * windows_at_once(model, length)

    def timed(length: int) -> float:
        tokens_WN = np.tile(np.arange(length + 1) % model.vocab_size, (batch(length) // length, 1))
        work = partial(
            scores_at, model, tokens_WN.__getitem__, len(tokens_WN), length, np.arange(length), plan,
            precision=precision, progress=ignored,
        )  # fmt: skip
        return _seconds_of(work) / batch(length)

    forget_peak(device)
    before, speed = peak_mib(device), Speed(model, {}, 0.0, None)
    try:
        timed(ascending[0])  # which allocates
        for length in ascending:
            while speed.token_s and speed.seconds(Counter({(length, length): batch(length)})) > MOST_S:
                length //= 2
            if length > max(speed.token_s, default=0):
                speed = replace(speed, token_s={**speed.token_s, length: timed(length)})
    except OutOfMemoryError:
        return speed
    after = peak_mib(device)
    if after is not None and before is not None:  # it grows with the inputs of a batch
        after = before + (after - before) * batch(ascending[-1]) / batch(max(speed.token_s))
    return replace(speed, peak_mib=after)


def _seconds_of(work: Callable[[], object]) -> float:
    rounds, began = 0, time.perf_counter()
    while not rounds or time.perf_counter() - began < LEAST_S:
        work()
        rounds += 1
    return (time.perf_counter() - began) / rounds


def estimate_lengths(
    jobs: Sequence[Job[list[Work[AnyRun]]]], settings: EvaluationSettings, device: str, progress: Progress
) -> Estimate:
    """What an evaluation of these runs reads, on text and on probes, besides what is there already."""
    speeds, seq_lens = [], [job.run.config.seq_len for job in jobs]
    for job, seq_len in zip(jobs, seq_lens, strict=True):
        progress.say(f"timing a few windows of {job.name}")
        own = replace(settings, extend=job.extensions)
        speeds.append(measured(job.run, own, lengths_of(settings.factors, seq_len), device))

    def fewer_of(job: Job[list[Work[AnyRun]]], asked: EvaluationSettings) -> Job[list[Work[AnyRun]]]:
        own, (whole, half) = replace(asked, extend=job.extensions if asked.extend else ()), job.given
        parts = [work_of(part.run, part.store, one) for part, one in ((whole, own), (half, own.halfway()))]
        return replace(job, given=parts)

    def rows_of(found: Iterable[Job[list[Work[AnyRun]]]]) -> pd.DataFrame:
        return _frame(row for job, speed in zip(found, speeds, strict=True) for row in _rows(job, speed))

    rows = rows_of(jobs)
    seconds = least = float(rows["seconds"].sum())
    fewer = settings
    for fewer in _lowered(settings, seq_lens) if seconds > HOUR else ():
        if (least := float(rows_of(fewer_of(job, fewer) for job in jobs)["seconds"].sum())) <= HOUR:
            break
    names = ("extend", "factors", "max_targets", "trials")
    lower = {name: getattr(fewer, name) for name in names if getattr(fewer, name) != getattr(settings, name)}
    return Estimate(rows, device, seconds, lower, least)


def _rows(job: Job[list[Work[AnyRun]]], speeds: Mapping[tuple[str, str], Speed]) -> Iterator[dict[str, Any]]:
    """A row for each protocol and probe with each extension and precision, in the order of the evaluation."""
    for part, half in zip(job.given, ("", " of half the budget"), strict=True):
        inputs: dict[tuple[str, str, str], Inputs] = {}
        for precision, item, more in part.inputs_by_item(part.items, part.there()):
            inputs.setdefault((item.asked, item.extension, precision), Counter()).update(more)
        for item in part.items if part.checkpoints else ():
            groups = item.layout.control if isinstance(item, OnText) else ()
            documents = len({int(document) for one in groups for document in one.document_W})
            for precision in part.settings.precisions:
                speed, read = speeds[precision, item.extension], inputs[item.asked, item.extension, precision]
                yield {
                    "run": f"{job.name}{half}", "reads": item.asked, "extension": item.extension,
                    "precision": precision, "tokens": read.total(),
                    "targets": item.targets if isinstance(item, OnText) else part.settings.trials,
                    "documents": documents or None, "seconds": speed.seconds(read), "peak_mib": speed.peak_mib,
                }  # fmt: skip


def _frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"documents": "Int64"})  # which has whole numbers and missing ones


def _lowered(settings: EvaluationSettings, seq_lens: Sequence[int]) -> Iterator[EvaluationSettings]:
    """Ever smaller evaluations: of fewer targets, as many as give intervals; of shorter windows; without extensions."""
    protocols = {one.name: one for one in map(parse_protocol, settings.protocols)}
    for extend in dict.fromkeys((settings.extend, ())):
        for count in range(len(settings.factors), 0, -1):
            fewer = replace(settings, extend=extend, factors=tuple(sorted(settings.factors)[:count]))
            pieces = [fewer.pieces(seq_len) for seq_len in seq_lens]
            least = {name: max(one.get(name, ("", 1))[1] for one in pieces) for name in protocols}
            for halvings in range(HALVINGS):
                limits = {name: settings.limit_of(one) for name, one in protocols.items()}
                limits = {name: max(n >> halvings, min(n, FEWEST * least[name])) for name, n in limits.items()}
                trials = max(settings.trials >> halvings, min(settings.trials, FEWEST_TRIALS))
                trials = trials if settings.probes else settings.trials
                yield replace(fewer, max_targets=limits if halvings and limits else settings.max_targets, trials=trials)


def estimate_tasks(
    jobs: Sequence[Job[None]], loaded: "Tasks", shots: int | None, limit: float | None, precision: str, device: str,
    counting: Callable[[AnyRun], "CountingLM"], progress: Progress,
) -> Estimate:  # fmt: skip
    """What runs read for tasks. counting: makes the model that counts a run's requests."""
    rows = []
    for job in jobs:
        progress.say(f"counting the requests, and timing a few windows of {job.name}")
        lm = counting(job.run)
        speeds = measured(
            job.run, EvaluationSettings(extend=job.extensions, precisions=(precision,)), [lm.max_length], device
        )
        new_s = _seconds_of(partial(lm.generate, NEW)) / NEW
        for name, task in loaded.tasks.items():
            lm.read.clear()
            asked = replace(loaded, tasks={name: task}, groups={}).questions(lm, shots, limit)
            for (_, text), speed in speeds.items():
                rows.append({
                    "run": job.name, "reads": name, "extension": text, "precision": precision,
                    "tokens": lm.read.total(), "targets": asked["n-samples"][name]["effective"], "documents": None,
                    "seconds": replace(speed, new_s=new_s).seconds(lm.read), "peak_mib": speed.peak_mib,
                })  # fmt: skip
    found = _frame(rows)
    most = int(found["targets"].max())
    seconds = least = float(found["seconds"].sum())
    while least > HOUR and most > 1:
        most = most * 9 // 10
        least = float((found["seconds"] * (most / found["targets"]).clip(upper=1.0)).sum())
    return Estimate(found, device, seconds, {"limit": most} if seconds > HOUR else {}, least)
