"""Evaluates one run at several lengths: protocols x extensions x factors, each beside its control."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from extrapolate import __version__, provenance
from extrapolate.config import RunConfig, short_hash
from extrapolate.data.probes import Probe
from extrapolate.data.store import HELDOUT, Split, Store
from extrapolate.data.tokenizer import token_bytes
from extrapolate.evaluation.fitting import FIT_TARGETS, fitted
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.memory import forget_peak, peak_mib
from extrapolate.evaluation.names import ALL, OFF, PLAIN_NAME, PRECISIONS
from extrapolate.evaluation.precision import in_precision, stored
from extrapolate.evaluation.protocols import (
    DEFAULT_MAX_TARGETS,
    PROTOCOLS,
    Layout,
    Windows,
    lengths_of,
    targets_hash,
)
from extrapolate.evaluation.validation import validation_windows
from extrapolate.extensions import recipe as recipes
from extrapolate.extensions.base import PLAIN, Plan
from extrapolate.extensions.recipe import Recipe
from extrapolate.model import Model
from extrapolate.results import EVAL_DOCUMENTS, EVALS, read
from extrapolate.runs import Checkpoint, Run
from extrapolate.specs import did_you_mean


@dataclass(frozen=True)
class EvaluationSettings:
    """What to evaluate. Factors are N/L; max_targets counts scored tokens per protocol (None: the default).

    `extensions` are recipes; "all" stands for every one that applies, "none" for taking off the run's own.
    `probes` are evaluated by `evaluation.probes`, in so many trials at each length and depth.
    """

    factors: tuple[float, ...] = (1, 2, 4, 8, 16)
    extensions: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ("windows", "fixed-target")
    split: str = "test"
    max_targets: int | None = None
    checkpoint: str = "last"
    precisions: tuple[str, ...] = ("fp32",)
    probes: tuple[Probe, ...] = ()
    probe_trials: int = 64

    def layout(self, protocol: str, split: Split, seq_len: int) -> Layout:
        """The windows of one protocol."""
        most = DEFAULT_MAX_TARGETS[protocol] if self.max_targets is None else self.max_targets
        return PROTOCOLS[protocol](split.lengths, seq_len, lengths_of(self.factors, seq_len), most)


# Rows are kept for stretches of so many times L, by a target's place in its document: where documents are few, the
# stretches stand in for them.
BLOCK_FACTOR = 16


@dataclass(frozen=True)
class _Sums:
    """Per document and block, [documents, blocks]: the summed loss (nats), the number of targets, and their bytes."""

    loss_DB: np.ndarray
    targets_DB: np.ndarray
    bytes_DB: np.ndarray
    seconds: float
    peak_mib: float | None


def check(run: Run, store: Store, settings: EvaluationSettings) -> None:
    """Raises ValueError where anything asked for cannot be evaluated, before any work is done."""
    for protocol in settings.protocols:
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol '{protocol}'; {did_you_mean(protocol, PROTOCOLS)}")
    if not settings.protocols and not settings.probes:
        raise ValueError(f"name at least one protocol: {', '.join(PROTOCOLS)}")
    if settings.split not in HELDOUT:
        raise ValueError(f"there is no held-out split '{settings.split}': choose from {', '.join(HELDOUT)}")
    if store.corpus_hash != run.config.data.corpus_hash:
        raise ValueError(
            f"{run.path} was trained on corpus {run.config.data.corpus_hash}, and {store.path} is {store.corpus_hash}; "
            "name the run's own token store with --data"
        )
    if not settings.precisions:
        raise ValueError(f"name at least one precision: {', '.join(PRECISIONS)}")
    for precision in settings.precisions:
        if precision not in PRECISIONS:
            raise ValueError(f"unknown precision '{precision}'; {did_you_mean(precision, PRECISIONS)}")
    run.checkpoints(settings.checkpoint)
    for name, table in (("evals.parquet", EVALS), ("eval_documents.parquet", EVAL_DOCUMENTS)):
        if (run.path / name).exists():
            read(run.path / name, table)
    model = run.build_model()
    split = store.split(settings.split)
    for applied in _recipes(run, model, settings).values():
        if (recipe := applied.joined()) is not None:
            recipes.check_applies(recipe, model)
        for length in lengths_of(settings.factors, model.seq_len):
            if recipe is None or recipe.to_fit is None:
                applied.plan(run, model, length)
            else:
                validation_windows(store.split("validation"), length, FIT_TARGETS)
    for protocol in settings.protocols:
        settings.layout(protocol, split, model.seq_len)


@dataclass(frozen=True)
class _Applied:
    """What is applied: the run's own extension, unless it is taken off, and another."""

    own: Recipe | None
    extra: Recipe | None

    def joined(self) -> Recipe | None:
        """Both in one, for checks and labels. Raises ValueError where they clash."""
        if self.own is None or self.extra is None:
            return self.extra if self.own is None else self.own
        return self.own.joined(self.extra)

    def plan(self, run: Run, model: Model, length: int) -> Plan:
        """The run's own counts from the L of its line, the other from the length that the run was trained at."""
        plan = PLAIN if self.own is None else self.own.plan(model.encoding, model.seq_len, length)
        if self.extra is None:
            return plan
        return plan.joined(self.extra.plan(model.encoding, run.config.training.seq_len, length))


def _recipes(run: Run, model: Model, settings: EvaluationSettings) -> dict[str, _Applied]:
    """What to apply, by its name in the tables: the run as it was trained first, then the extensions asked for.

    Raises ValueError on unknown ones, or one that clashes with the run's own.
    """
    own = None if run.config.extension is None else recipes.build(run.config.extension)
    found = {PLAIN_NAME: _Applied(own, None)}
    texts = list(settings.extensions)
    if ALL in texts:
        joinable = [name for name in recipes.applicable(model) if own is None or recipes.joins(own, name)]
        texts = [text for text in texts if text != ALL] + [name for name in joinable if name not in texts]
    for text in texts:
        if text == PLAIN_NAME:
            found |= {} if own is None else {OFF: _Applied(None, None)}
            continue
        recipe = recipes.build(text)
        found[recipe.text] = _Applied(own, recipe)
        found[recipe.text].joined()
    return found


def evaluate(
    run: Run,
    store: Store,
    settings: EvaluationSettings,
    *,
    device: str = "cpu",
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Yields rows for `evals.parquet` and for `eval_documents.parquet` (see `results.py`), a setting at a time.

    The plain model is always evaluated. `progress(what, done, total)` counts input tokens of one measurement.
    """
    split = store.split(settings.split)
    bytes_of = _byte_counter(store, split)
    for checkpoint in run.checkpoints(settings.checkpoint):
        loaded = run.load_model(checkpoint)
        chosen = _recipes(run, loaded, settings)
        for precision in settings.precisions:
            model = in_precision(loaded, precision).to(device)
            for protocol in settings.protocols:
                layout = settings.layout(protocol, split, model.seq_len)
                evaluation = _ProtocolEvaluation(model, split, layout, precision, bytes_of, progress)
                common = _common(run, loaded, checkpoint, protocol, precision, settings.split)
                common["targets_hash"] = targets_hash(layout.control, store.corpus_hash, settings.split)
                control_plan = chosen[PLAIN_NAME].plan(run, model, model.seq_len)
                control = evaluation.sums(layout.control, control_plan, f"{run.name} {protocol} control")
                for text, applied in chosen.items():
                    common |= {"extension": text, "model": label_of(run.config, loaded, applied.joined(), text == OFF)}
                    yield _measure(evaluation, run, store, common, applied, control)


def label_of(config: RunConfig, model: Model, recipe: Recipe | None, taken_off: bool = False) -> str:
    """The name in tables: `RoPE + YaRN`, `RoPE + PI(4), tuned at 256`, `NoPE, from RoPE`."""
    label = model.label() + (f" + {recipe.label()}" if recipe else "")
    origin = config.origin
    if origin is None:
        return label
    if config.training.seq_len != origin.seq_len or origin.label == model.label():
        label += f", tuned at {config.training.seq_len}"
    if taken_off and config.extension is not None:
        label += f" with {recipes.build(config.extension).label()}, taken off"
    return label if origin.label == model.label() else f"{label}, from {origin.label}"


def _measure(
    evaluation: "_ProtocolEvaluation",
    run: Run,
    store: Store,
    common: dict[str, Any],
    applied: _Applied,
    control: "_Sums",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of one recipe at every length."""
    model, layout, precision = evaluation.model, evaluation.layout, evaluation.precision
    rows: list[dict[str, Any]] = []
    document_rows: list[dict[str, Any]] = []
    for length in sorted(layout.rows):
        setting = common | {"length": length, "factor": length / model.seq_len}
        what = f"{common['run']} {common['protocol']} {common['model']} {setting['factor']:g}x"
        here = applied
        if applied.extra is not None and applied.extra.to_fit is not None:
            plan_of = partial(_plan_with, applied, run, model, length)
            split, trained = store.split("validation"), run.config.training.seq_len
            here = replace(applied, extra=fitted(applied.extra, plan_of, model, split, trained, length, precision))
        plan = here.plan(run, model, length)
        reached = model.encoding.reaches(length, plan)
        sums = evaluation.sums(layout.rows[length], plan, what) if reached else None
        inputs = sum(len(w.start_W) * w.length for w in layout.rows[length])
        rows.append(_row(setting, sums, control, inputs))
        document_rows.extend(_document_rows(setting, sums, control, evaluation.split))
    return rows, document_rows


def _plan_with(applied: _Applied, run: Run, model: Model, length: int, extra: Recipe) -> Plan:
    return replace(applied, extra=extra).plan(run, model, length)


class _ProtocolEvaluation:
    """Sums of losses over windows, each computed once: settings whose plans are equal share them."""

    def __init__(
        self,
        model: Model,
        split: Split,
        layout: Layout,
        precision: str,
        bytes_of: Callable[[Windows], np.ndarray],
        progress: Callable[[str, int, int], None],
    ) -> None:
        self.model, self.split, self.layout, self.precision = model, split, layout, precision
        self.bytes_of, self.progress = bytes_of, progress
        self._known: dict[tuple[Plan, tuple[int, ...]], _Sums] = {}

    def sums(self, groups: tuple[Windows, ...], plan: Plan, what: str) -> _Sums:
        plan = stored(plan, self.precision)
        key = (plan, tuple(id(group) for group in groups))
        if key not in self._known:
            self._known[key] = self._compute(groups, plan, what)
        return self._known[key]

    def _compute(self, groups: tuple[Windows, ...], plan: Plan, what: str) -> _Sums:
        total = sum(len(group.start_W) * group.length for group in groups)
        done = 0

        def advance(tokens: int) -> None:
            nonlocal done
            done += tokens
            self.progress(what, done, total)

        block = BLOCK_FACTOR * self.model.seq_len
        shape = (len(self.split.ids), int(self.split.lengths.max(initial=0)) // block + 1)
        loss_DB, targets_DB, bytes_DB = (np.zeros(shape) for _ in range(3))
        device = self.model.embedding.weight.device.type
        forget_peak(device)
        began = time.perf_counter()
        for group in groups:
            losses = target_losses(self.model, self.split, group, plan, precision=self.precision, progress=advance)
            where = (group.document_W, (group.start_W + group.length - group.scored) // block)
            np.add.at(loss_DB, where, losses.sum(axis=1, dtype=np.float64))
            np.add.at(targets_DB, where, group.scored)
            np.add.at(bytes_DB, where, self.bytes_of(group))
        seconds = time.perf_counter() - began
        return _Sums(loss_DB, targets_DB.astype(np.int64), bytes_DB, seconds, peak_mib(device))


def _byte_counter(store: Store, split: Split) -> Callable[[Windows], np.ndarray]:
    """The bytes of text in the targets of each window: exact for byte-level tokenizers, else documents' means."""
    per_token = token_bytes(store.tokenizer())

    def exact(windows: Windows) -> np.ndarray:
        assert per_token is not None
        ends = split.offsets[windows.document_W] + windows.start_W + windows.length + 1
        return np.array([per_token[split.slice(end - windows.scored, end)].sum() for end in ends], dtype=np.float64)

    def mean(windows: Windows) -> np.ndarray:
        return (split.bytes / np.maximum(split.lengths, 1))[windows.document_W] * windows.scored

    return mean if per_token is None else exact


def _row(setting: dict[str, Any], sums: _Sums | None, control: _Sums, inputs: int) -> dict[str, Any]:
    n_targets, n_bytes = int(control.targets_DB.sum()), float(control.bytes_DB.sum())
    total = None if sums is None else float(sums.loss_DB.sum())
    loss = None if total is None else total / n_targets
    return setting | {
        "loss": loss,
        "perplexity": None if loss is None else _exp(loss),
        "bits_per_byte": None if total is None or not n_bytes else total / math.log(2) / n_bytes,
        "control_loss": float(control.loss_DB.sum()) / n_targets,
        "n_targets": n_targets,
        "n_documents": int(control.targets_DB.any(axis=1).sum()),
        "n_bytes": n_bytes,
        "tokens_per_s": None if sums is None else inputs / sums.seconds,
        "peak_mib": None if sums is None else sums.peak_mib,
        "evaluated_at": datetime.now(UTC).replace(microsecond=0),
    }


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def _document_rows(setting: dict[str, Any], sums: _Sums | None, control: _Sums, split: Split) -> list[dict[str, Any]]:
    shared = {column.name: setting[column.name] for column in EVAL_DOCUMENTS.columns if column.name in setting}
    return [
        shared
        | {
            "document": split.ids[d],
            "block": b,
            "loss": None if sums is None else sums.loss_DB[d, b] / control.targets_DB[d, b],
            "control_loss": control.loss_DB[d, b] / control.targets_DB[d, b],
            "n_targets": int(control.targets_DB[d, b]),
            "n_bytes": control.bytes_DB[d, b],
        }
        for d, b in np.argwhere(control.targets_DB).tolist()
    ]


def _common(
    run: Run, model: Model, checkpoint: Checkpoint, protocol: str, precision: str, split: str
) -> dict[str, Any]:
    """What every row of a run, checkpoint, precision and protocol shares."""
    config = run.config
    setting = {name: section for name, section in config.decisive().items() if name != "encoding"}
    return {
        "run": run.name,
        "protocol": protocol,
        "split": split,
        "step": checkpoint.step,
        "precision": precision,
        "encoding": config.encoding.name,
        "encoding_arguments": json.dumps(config.encoding.arguments),
        "display": model.encoding.display,
        "caption": model.encoding.caption,
        "seq_len": config.seq_len,
        "trained_length": config.training.seq_len,
        "origin": None if config.origin is None else config.origin.run,
        "tokens": checkpoint.tokens,
        "seed": config.training.seed,
        "preset": config.preset,
        "parameters": model.parameter_count(),
        "training_precision": config.training.precision,
        "own_extension": config.extension,
        # Of a tuned run only the tuning is known, which beside a whole training would mislead.
        "training_seconds": None if config.origin else run.training_seconds(),
        "config_hash": config.config_hash(),
        "setting_hash": short_hash(setting),
        "corpus_hash": config.data.corpus_hash,
        "weights_sha256": checkpoint.sha256,
        "training_version": str(run.provenance.get("version", "")),
        "training_commit": str(run.provenance.get("commit", "")),
        "training_machine": str(run.provenance.get("machine", "")),
        "version": __version__,
        "commit": provenance.commit(),
        "machine": provenance.machine(),
    }
