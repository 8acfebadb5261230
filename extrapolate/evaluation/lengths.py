"""Evaluates one run at several lengths: protocols x extensions x factors, each beside its control."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from extrapolate import specs
from extrapolate.data.store import HELDOUT, Store
from extrapolate.data.tokenizer import token_bytes
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError, about
from extrapolate.evaluation import causality
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.key_tokens import CONTEXT, copies_beyond, gained_beyond
from extrapolate.evaluation.memory import OutOfMemoryError
from extrapolate.evaluation.optimum import optimal_losses, process_of
from extrapolate.evaluation.plans import AppliedExtensions, check_files
from extrapolate.evaluation.precision import in_precision
from extrapolate.evaluation.protocols.base import CONTROL, Key, lengths_of, protocols, targets_hash
from extrapolate.evaluation.rows import TargetsAtLength, common, missing_reason, of_extension, plan_hash
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets, index_in_window, window_of
from extrapolate.evaluation.text import check_text
from extrapolate.evaluation.window_losses import Measured, inputs_of, joined, measure, prefixes_agree
from extrapolate.evaluation.work import (
    Item,
    OnText,
    There,
    Work,
    left_of,
    place_of,
    plans_at,
    windows_of,
    work_of,
)
from extrapolate.folders import join_names
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import PRECISIONS
from extrapolate.progress import QUIET, Advance, Say, unseen
from extrapolate.results import EVAL_TARGETS, kept
from extrapolate.runs.weights import Checkpoint

# The rows of one setting for EVALS, EVAL_DOCUMENTS and EVAL_TARGETS (see `results.tables`); the last are columns, and
# empty without `keep_losses`.
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]], pa.Table]


def check_run(run: AnyRun, store: Store, settings: EvaluationSettings) -> None:
    """Raises UserError if a run cannot be evaluated at all: it is damaged, or its tokens are not the store's."""
    with about("data"):
        check_text(run, store)
    with about("checkpoint"):
        run.checkpoints(settings.checkpoint)
    kept.check(run.path)
    run.build_model()


def check_settings(settings: EvaluationSettings, seq_len: int) -> None:
    """Raises UserError if a setting is invalid for a training length L, tokens, whatever the run and its text."""
    with about("max_targets"):
        settings.check_max_targets(seq_len)
    with about("protocols"):
        if not settings.protocols and not settings.probes:
            raise UserError(f"name at least one protocol: {', '.join(protocols.names())}")
    with about("split"):
        if settings.split not in HELDOUT:
            raise UserError(f"there is no held-out split '{settings.split}': choose from {', '.join(HELDOUT)}")
    with about("precisions"):
        if not settings.precisions:
            raise UserError(f"name at least one precision: {', '.join(PRECISIONS)}")
        for precision in settings.precisions:
            if precision not in PRECISIONS:
                raise UserError(f"unknown precision '{precision}'; {specs.did_you_mean(precision, PRECISIONS)}")
    with about("extend"):
        check_files(settings.extend)


def checked(run: AnyRun, store: Store, settings: EvaluationSettings) -> Work[AnyRun]:
    """The work of an evaluation. Raises UserError if the run cannot be evaluated, or a setting is invalid for it."""
    check_settings(settings, run.config.seq_len)
    check_run(run, store, settings)
    return work_of(run, store, settings)


def evaluate(
    work: Work[AnyRun],
    *,
    there: There | None = None,
    device: str = "cpu",
    progress: Advance = unseen,
    say: Say = QUIET.say,
) -> Iterator[Rows]:
    """Yields rows for the tables of an evaluation, one item of the work at a time, for each of its places.

    there: rows that are not computed again. Calls of `progress` add up to `work.inputs`. Rows have no loss at lengths
    that do not fit into memory (`say` says so), or that the encoding is not defined at. Raises UserError if a model
    looks at later tokens.
    """
    run, store, settings = work.run, work.store, work.settings
    bytes_of = token_bytes(store.tokenizer(), store.manifest["eos_id"])
    told = set[str]()
    for checkpoint, precision, left, loaded, model in models_for(work, work.on_text, there, device, progress):
        if loaded is None or model is None:
            yield from (([], [], EVAL_TARGETS.schema().empty_table()) for _ in work.on_text)
            continue
        longest = max(lengths_of(settings.factors, loaded.seq_len))
        fitted = {item.extension for item in work.on_text if item.applied.fits(run, longest)} - told
        if settings.split == "validation" and fitted:
            told |= fitted
            say(
                f"{run.path}: {join_names(sorted(fitted))}: fitted to the validation split, which is evaluated here "
                "too: on other text the losses may be higher"
            )
        shared = common(run, loaded, checkpoint, precision, settings.split, store.corpus_hash)
        evaluation: _ProtocolEvaluation | None = None
        for item, lengths in zip(work.on_text, left, strict=True):
            if evaluation is None or evaluation.item.protocol != item.protocol:
                evaluation = _ProtocolEvaluation(
                    run, store, bytes_of, settings, loaded, model, precision, item, progress, say
                )
            setting = shared | evaluation.shared | of_extension(run, loaded, item.extension, item.applied)
            yield evaluation.rows(setting, item, lengths)


def models(
    run: AnyRun, settings: EvaluationSettings, device: str
) -> Iterator[tuple[Checkpoint, LanguageModel, str, LanguageModel]]:
    """Every checkpoint and precision: the model as loaded, and as that precision runs it."""
    for checkpoint in run.checkpoints(settings.checkpoint):
        loaded = run.load_model(checkpoint).to(device)
        for precision in settings.precisions:
            yield checkpoint, loaded, precision, in_precision(loaded, precision).to(device)


def models_for(
    work: Work[AnyRun], items: Sequence[Item], there: There | None, device: str, progress: Advance
) -> Iterator[tuple[Checkpoint, str, list[list[int]], LanguageModel | None, LanguageModel | None]]:
    """Every checkpoint and precision: the lengths left for each item, and the model as in `models`.

    Without models if nothing is left: they are not loaded. Raises UserError if a model looks at later tokens.
    """
    lengths = lengths_of(work.settings.factors, work.model.seq_len)
    for checkpoint in work.checkpoints if items else ():
        loaded: LanguageModel | None = None
        for precision in work.settings.precisions:
            left = [left_of(item, (there or {}).get(place_of(checkpoint, precision, item), {})) for item in items]
            if not any(left):
                yield checkpoint, precision, left, None, None
                continue
            loaded = loaded or work.run.load_model(checkpoint).to(device)
            if checkpoint.sha256 not in work.causal:
                causality.check_run(work.run, loaded, work.settings.extend, lengths, progress)
                work.causal.add(checkpoint.sha256)
            yield checkpoint, precision, left, loaded, in_precision(loaded, precision).to(device)


@dataclass
class _ProtocolEvaluation:
    """Evaluates one run by one protocol, and computes each window once: settings with equal plans share them.

    loaded: the model in its own precision; model: as `precision` runs it. shared: columns of the protocol's rows.
    """

    run: AnyRun
    store: Store
    bytes_of: np.ndarray | None  # see `token_bytes`
    settings: EvaluationSettings
    loaded: LanguageModel
    model: LanguageModel
    precision: str
    item: OnText
    progress: Advance
    say: Say

    def __post_init__(self) -> None:
        self.split = split = self.store.split(self.settings.split)
        protocol, layout = self.item.protocol, self.item.layout
        self.bos = layout.control[0].bos
        self.layout, self.windows = layout, layout.by_key()
        own = AppliedExtensions(self.run.own_extension, None)
        self.control_plan = own.plan(self.run, self.model, self.model.seq_len)
        self.targets = Targets.of(layout.control, split, self.bytes_of, self.store.lossless)
        self.shared = {
            "protocol": protocol.text,
            "stride": protocol.stride_at(self.model.seq_len),
            "bos_token": self.bos,
            "targets_hash": targets_hash(layout.control, self.store.corpus_hash, self.settings.split),
        }
        self._known: dict[tuple[Plan, Key], Measured] = {}
        self._looks_at_length: set[tuple[Plan, Key]] = set()
        self._too_long: set[tuple[Plan, Key]] = set()  # memory did not suffice
        # With a token that is not part of the text, the optimum is unknown.
        process = process_of(self.store) if self.bos is None else None
        self.optimum = {
            length: None if process is None else optimal_losses(process, split, groups)
            for length, groups in layout.rows.items()
        }
        longest = self.item.lengths[-1]
        at_longest, best_N = (layout.rows[longest], split, self.model.seq_len), self.optimum[longest]
        if process is None or best_N is None:
            self.key_N = copies_beyond(*at_longest)
        else:
            self.key_N = gained_beyond(*at_longest, process, best_N)
        self.shared |= {"key_context": CONTEXT if process is None else None, "key_within": longest}

    def rows(self, setting: dict[str, Any], item: OnText, lengths: Sequence[int]) -> Rows:
        """The rows of one stack at some lengths."""
        model, what = self.model, f"{setting['run']} {setting['protocol']} {setting['model']}"
        fitting = partial(self.progress, f"{what}, fitting")
        plans: dict[int, Plan] = {}
        for length in plans_at(item, lengths):
            try:
                plans[length] = item.applied.fitted_plan(self.run, model, self.store, length, self.precision, fitting)
            except OutOfMemoryError as error:
                self._tell_out_of_memory(what, error)
        wanted = windows_of(model, item, lengths, plans, self.control_plan)
        for plan, keys in wanted.items():
            self._measure(what, plan, keys)
        rows: list[dict[str, Any]] = []
        document_rows: list[dict[str, Any]] = []
        target_rows = [EVAL_TARGETS.schema().empty_table()]
        for length in lengths:
            control = self._known[self.control_plan, CONTROL]
            here = setting | {"length": length, "factor": length / model.seq_len}
            parts = [(plan, key) for plan, keys in wanted.items() for key in keys if key in self.layout.keys_of(length)]
            measured = self._joined(parts)
            groups = self.layout.rows[length]
            scores = TargetsAtLength(
                self.targets, control.loss_N, index_in_window(groups), window_of(groups), self.optimum[length],
                self.key_N,
            )  # fmt: skip
            reason = missing_reason(measured, self.model, length, plans.get(length))
            identity = None
            if measured is not None and len({plan for plan, _ in parts}) == 1:
                identity = plan_hash(plans[length], self._looks_at_length.isdisjoint(parts), self.bos)
            rows.append(scores.row(here | {"reason": reason, "plan_hash": identity}, measured))
            document_rows.extend(scores.document_rows(here, measured, self.split))
            if self.settings.keep_losses and measured is not None:
                target_rows.append(scores.target_rows(here, measured, self.split))
        return rows, document_rows, pa.concat_tables(target_rows)

    def _joined(self, parts: Sequence[tuple[Plan, Key]]) -> Measured | None:
        """The measurement of a row's windows; None if some of them were not measured."""
        found = [(self.windows[key], self._known.get((plan, key))) for plan, key in parts]
        known = [(groups, measured) for groups, measured in found if measured is not None]
        return joined(known) if known and len(known) == len(found) else None

    def _measure(self, what: str, plan: Plan, keys: list[Key]) -> None:
        while new := [key for key in keys if not ((plan, key) in self._known or (plan, key) in self._too_long)]:
            try:
                self._known |= {(plan, key): found for key, found in self._measured(what, plan, new).items()}
            except OutOfMemoryError as error:
                self._tell_out_of_memory(what, error)
                self._too_long |= {(plan, key) for key in new if key != CONTROL and key[1] >= error.length}

    def _tell_out_of_memory(self, what: str, error: OutOfMemoryError) -> None:
        """Says that windows are n/a. Raises the error if they are no longer than L: nothing is left to compare with."""
        if error.length <= self.model.seq_len:
            raise error
        self.say(f"{what}: {error}; it is n/a")

    def _measured(self, what: str, plan: Plan, new: list[Key]) -> dict[Key, Measured]:
        own = [key for key in new if key != CONTROL]
        factors = ", ".join(f"{row / self.model.seq_len:g}x" for row in dict.fromkeys(row for row, _ in own))
        wanted = {key: self.windows[key] for key in new}
        # Always compares with L: one length alone tells nothing, and other lengths may be evaluated another day. Of the
        # lengths within an evaluation length only the longest: all of them would take as long as the evaluation.
        mine = {length for _, length in own}
        compared = mine & self.layout.rows.keys() | {max(mine, default=self.model.seq_len)}
        share = prefixes_agree(self.loaded, plan, [self.model.seq_len, *compared])
        if not share:
            self._looks_at_length |= {(plan, key) for key in new}
        # `Work.inputs` expects windows to be shared.
        part = 1.0 if share else inputs_of(wanted, share=True).total() / inputs_of(wanted, share=False).total()
        return measure(
            self.model,
            self.split,
            wanted,
            plan,
            precision=self.precision,
            share=share,
            progress=lambda inputs, loss: self.progress(f"{what} {factors}".rstrip(), part * inputs, loss),
        )
