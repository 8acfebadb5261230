"""Evaluates one run on probes: probes x extensions x factors x depths, each beside its control.

Shapes: W windows, N inputs, A answers of a window, C candidates.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from extrapolate.data.probes.base import Probe, Vocabulary
from extrapolate.data.store import Split, Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError, about
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.lengths import models_for
from extrapolate.evaluation.losses import OnBatch, ignored, scores_at
from extrapolate.evaluation.memory import OutOfMemoryError
from extrapolate.evaluation.plans import AppliedExtensions
from extrapolate.evaluation.rows import common, missing_reason, of_extension
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.work import There, Work, control_cuts
from extrapolate.machine.limits import memory_limit
from extrapolate.machine.memory import forget_peak, peak_mib
from extrapolate.model.language_model import LanguageModel
from extrapolate.progress import QUIET, Advance, Say, unseen
from extrapolate.specs import truncate
from extrapolate.statistics.intervals import wilson

BYTES_A_TOKEN = 16  # of all windows of a length and depth, which are drawn one by one and then held in one array


def check(work: Work[Any]) -> None:
    """Raises UserError if a probe cannot be evaluated."""
    settings, store, longest = work.settings, work.store, max((max(one.lengths) for one in work.on_probes), default=0)
    with about("trials"):
        if settings.trials < 1:
            raise UserError(f"`trials` must be at least 1, not {settings.trials}")
        needed, limit = settings.trials * (longest + 1) * BYTES_A_TOKEN, memory_limit()
        if work.on_probes and needed > limit:
            raise UserError(
                f"`trials={truncate(settings.trials)}` windows of {longest} tokens take at least "
                f"{needed // 10**9:,} GB of memory, and this machine has {limit // 10**9:,} GB: give fewer"
            )
    split, vocabulary = store.split(settings.split), Vocabulary.of(store, work.run.config.vocab_size)
    with about("probes"):
        for item in work.on_probes:
            for length in item.lengths:
                item.probe.sequences(length, 0.0, 1, split, vocabulary)


@dataclass(frozen=True)
class Sequences:
    """The windows of one length and depth: tokens, int64 [W, N + 1], the answers' places, int64 [A], and a hash.

    candidates_WC: see `Probe.candidates`.
    """

    tokens_WN: np.ndarray
    answers_A: np.ndarray
    hash: str
    candidates_WC: np.ndarray

    @classmethod
    def make(
        cls,
        probe: Probe,
        length: int,
        depth: float,
        trials: int,
        store: Store,
        split: Split,
        embedded: int | None = None,
    ) -> "Sequences":
        """Draws the windows, the same for every run and extension on one store. embedded: see `Vocabulary`."""
        vocabulary = Vocabulary.of(store, embedded)
        tokens_WN, answers_A = probe.sequences(length, depth, trials, split, vocabulary)
        content = tokens_WN.astype("<i8").tobytes() + answers_A.astype("<i8").tobytes()
        digest = hashlib.sha256(f"{store.corpus_hash} {split.name} {probe.text}\n".encode() + content)
        return cls(tokens_WN, answers_A, digest.hexdigest()[:16], probe.candidates(tokens_WN, vocabulary))


@dataclass(frozen=True)
class Answers:
    """Scores of every answer given the true ones before it, [W, A].

    right_WA: whether it is the likeliest token. loss_WA: its loss, nats. margin_WA: the mean loss of the other
    candidates minus its own, nats. chosen_WA: whether it is likelier than all of them. The last two are NaN without
    other candidates.
    """

    right_WA: np.ndarray
    loss_WA: np.ndarray
    margin_WA: np.ndarray
    chosen_WA: np.ndarray

    def per_window(self, whole: bool) -> np.ndarray:
        """Accuracy by window, [W]: with `whole`, 1 if all its answers are right, else 0; otherwise the right share."""
        right_WA = self.right_WA.all(axis=1, keepdims=True) if whole else self.right_WA
        return np.asarray(right_WA.mean(axis=1))

    def over_candidates(self) -> dict[str, float | None]:
        """The margin, its standard error over windows, and the share of chosen answers; None if unknown."""
        margin_W = _means(self.margin_WA)
        few = len(margin_W) < 2 or not np.isfinite(margin_W).all()
        return {
            "margin": float(margin_W.mean()) if len(margin_W) else None,
            "margin_stderr": None if few else float(margin_W.std(ddof=1) / len(margin_W) ** 0.5),
            "choice": float(_means(self.chosen_WA).mean()) if len(margin_W) else None,
        }


def _means(values_WA: np.ndarray) -> np.ndarray:
    """The mean over the answers of each window, leaving out NaN, and windows with nothing else."""
    known_WA = ~np.isnan(values_WA)
    some_W = known_WA.any(axis=1)
    sums_W = np.where(known_WA, values_WA, 0).sum(axis=1, dtype=np.float64)
    return np.asarray(sums_W[some_W] / known_WA.sum(axis=1)[some_W])


def score(
    model: LanguageModel,
    tokens_WN: np.ndarray,
    answers_A: np.ndarray,
    candidates_WC: np.ndarray,
    plan: Plan = PLAIN,
    *,
    precision: str = "fp32",
    progress: OnBatch = ignored,
) -> Answers:
    """Scores answers at the same places in all windows, computing logits only for them."""
    scores = scores_at(
        model, tokens_WN.__getitem__, len(tokens_WN), tokens_WN.shape[1] - 1, answers_A - 1, plan,
        precision=precision, likeliest=True, candidates_WC=candidates_WC, progress=progress,
    )  # fmt: skip
    assert scores.likeliest_WP is not None
    assert scores.margin_WP is not None
    assert scores.chosen_WP is not None
    return Answers(scores.likeliest_WP, scores.loss_WP, scores.margin_WP, scores.chosen_WP)


def control_score(
    model: LanguageModel,
    sequences: Sequences,
    seq_len: int,
    plan: Plan = PLAIN,
    *,
    precision: str = "fp32",
    progress: OnBatch = ignored,
) -> Answers:
    """Scores the same answers with only the last L tokens in sight.

    If the answers span more than L/2 tokens, there are several windows, so that each answer has between L/2 and L
    tokens of context.
    """
    tokens_WN, answers_A = sequences.tokens_WN, sequences.answers_A
    parts = [
        score(
            model, tokens_WN[:, start : end + 1], answers - start, sequences.candidates_WC, plan,
            precision=precision, progress=progress,
        )
        for start, end, answers in reversed(control_cuts(answers_A, tokens_WN.shape[1] - 1, seq_len))
    ]  # fmt: skip
    return Answers(*(np.hstack([getattr(part, one.name) for part in parts]) for one in fields(Answers)))


def evaluate(
    work: Work[AnyRun],
    *,
    there: There | None = None,
    device: str = "cpu",
    progress: Advance = unseen,
    say: Say = QUIET.say,
) -> Iterator[list[dict[str, Any]]]:
    """Yields rows of PROBES (see `results.tables`), one item of the work at a time, for each of its places.

    there: rows that are not computed again. Calls of `progress` add up to `work.inputs`. Rows have no accuracy at
    lengths that do not fit into memory (`say` says so), or that the encoding is not defined at. Raises
    UserError if a model looks at later tokens.
    """
    run = work.run
    for checkpoint, precision, left, loaded, model in models_for(work, work.on_probes, there, device, progress):
        if loaded is None or model is None:
            yield from ([] for _ in work.on_probes)
            continue
        control_plan = AppliedExtensions(run.own_extension, None).plan(run, model, model.seq_len)
        shared = common(run, loaded, checkpoint, precision, work.settings.split, work.store.corpus_hash)
        evaluation: _ProbeEvaluation | None = None
        for item, lengths in zip(work.on_probes, left, strict=True):
            if evaluation is None or evaluation.probe != item.probe:
                evaluation = _ProbeEvaluation(
                    run, model, item.probe, work.store, work.settings, precision, control_plan, progress, say
                )
            setting = shared | {"probe": item.asked} | of_extension(run, loaded, item.extension, item.applied)
            yield evaluation.rows(setting, item.applied, lengths)


@dataclass
class _ProbeEvaluation:
    """Scores one probe, and computes each score once: settings with equal plans share them."""

    run: AnyRun
    model: LanguageModel
    probe: Probe
    store: Store
    settings: EvaluationSettings
    precision: str
    control_plan: Plan
    progress: Advance
    say: Say

    def __post_init__(self) -> None:
        self.split = self.store.split(self.settings.split)
        self._sequences: dict[tuple[int, float], tuple[Sequences, Answers]] = {}
        self._known: dict[tuple[int, float, Plan], tuple[Answers, float, float | None]] = {}
        self._too_long: set[tuple[int, Plan]] = set()

    def rows(self, shared: dict[str, Any], applied: AppliedExtensions, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of one stack at some lengths and every depth."""
        model, rows = self.model, []
        for length in lengths:
            factor = length / model.seq_len
            what = f"{shared['run']} probe {shared['probe']} {shared['model']} {factor:g}x"
            advance = partial(self.progress, what)
            plan: Plan | None = None
            try:
                plan = applied.fitted_plan(self.run, model, self.store, length, self.precision, advance)
            except OutOfMemoryError as error:
                self.say(f"{what}: {error}; it is n/a")
            for depth in self.probe.depths:
                sequences, control = self.sequences(length, depth, advance)
                setting = shared | {"length": length, "factor": factor, "depth": depth, "targets_hash": sequences.hash}
                measured = None
                if plan is not None and model.defined_at(length, plan):
                    measured = self.scores(length, depth, plan, advance, what)
                reason = missing_reason(measured, model, length, plan)
                choices_W = (sequences.candidates_WC >= 0).sum(axis=1)
                rows.append(_row(setting | {"reason": reason}, self.probe, measured, control, choices_W))
        return rows

    def sequences(self, length: int, depth: float, advance: OnBatch) -> tuple[Sequences, Answers]:
        """The windows, and the control's scores."""
        if (length, depth) not in self._sequences:
            trials = self.settings.trials
            embedded = self.model.vocab_size
            made = Sequences.make(self.probe, length, depth, trials, self.store, self.split, embedded)
            control = control_score(
                self.model, made, self.model.seq_len, self.control_plan, precision=self.precision, progress=advance
            )
            self._sequences[length, depth] = made, control
        return self._sequences[length, depth]

    def scores(
        self, length: int, depth: float, plan: Plan, advance: OnBatch, what: str
    ) -> tuple[Answers, float, float | None] | None:
        """The scores, inputs per second, and peak memory, MiB; None if memory does not suffice."""
        if (length, plan) in self._too_long:
            return None
        if (length, depth, plan) not in self._known:
            made, _ = self.sequences(length, depth, advance)
            where = self.model.device.type
            forget_peak(where)
            began = time.perf_counter()
            try:
                found = score(
                    self.model, made.tokens_WN, made.answers_A, made.candidates_WC, plan,
                    precision=self.precision, progress=advance,
                )  # fmt: skip
            except OutOfMemoryError as error:
                if length <= self.model.seq_len:
                    raise
                self.say(f"{what}: {error}; it is n/a")
                self._too_long.add((length, plan))
                return None
            rate = len(made.tokens_WN) * length / (time.perf_counter() - began)
            self._known[length, depth, plan] = found, rate, peak_mib(where)
        return self._known[length, depth, plan]


def _row(
    setting: dict[str, Any],
    probe: Probe,
    measured: tuple[Answers, float, float | None] | None,
    control: Answers,
    choices_W: np.ndarray,
) -> dict[str, Any]:
    scores, rate, peak = measured or (None, None, None)
    trials = len(control.right_WA)
    accuracy = None if scores is None else float(scores.per_window(probe.whole).mean())
    low, high = (None, None) if accuracy is None else wilson(accuracy, trials)
    several_W = choices_W[choices_W > 1]
    over = dict.fromkeys(("margin", "margin_stderr", "choice")) if scores is None else scores.over_candidates()
    return setting | {
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "loss": None if scores is None else float(scores.loss_WA.mean(dtype=np.float64)),
        "control_accuracy": float(control.per_window(probe.whole).mean()),
        "control_loss": float(control.loss_WA.mean(dtype=np.float64)),
        "chance": probe.chance_at(setting["length"]),
        **over,
        "control_margin": control.over_candidates()["margin"],
        "choice_chance": float((1 / several_W).mean()) if len(several_W) else None,
        "n_trials": trials,
        "n_answers": control.right_WA.size,
        "tokens_per_s": rate,
        "peak_mib": peak,
        "evaluated_at": datetime.now(UTC).replace(microsecond=0),
    }
