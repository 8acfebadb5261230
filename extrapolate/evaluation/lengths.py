"""Evaluates one run at several lengths: protocols x extensions x factors, each beside its control."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from extrapolate import specs
from extrapolate.data.store import HELDOUT, Store
from extrapolate.data.tokenizer import token_bytes
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation import causality
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.fitting import FIT_TARGETS
from extrapolate.evaluation.key_tokens import CONTEXT, copies_beyond, gained_beyond
from extrapolate.evaluation.losses import validation_windows
from extrapolate.evaluation.memory import OutOfMemoryError
from extrapolate.evaluation.optimum import optimal_losses, process_of
from extrapolate.evaluation.plans import AppliedExtensions, check_files, extensions_to_evaluate
from extrapolate.evaluation.precision import in_precision
from extrapolate.evaluation.protocols.base import (
    CONTROL,
    Key,
    Layout,
    Protocol,
    lengths_of,
    parse_protocol,
    protocols,
    targets_hash,
)
from extrapolate.evaluation.rows import TargetsAtLength, common, of_extension, plan_hash, reason_of
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets, index_in_window, window_of
from extrapolate.evaluation.text import beginning_token, check_text
from extrapolate.evaluation.window_losses import Inputs, Measured, inputs_of, joined, measure, prefixes_agree
from extrapolate.folders import listed
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import AS_TRAINED, PRECISIONS
from extrapolate.progress import QUIET, Advance, Say, unseen
from extrapolate.results import EVAL_TARGETS, kept
from extrapolate.runs.weights import Checkpoint

# The rows of one setting for EVALS, EVAL_DOCUMENTS and EVAL_TARGETS (see `results.tables`); the last are columns, and
# empty without `keep_losses`.
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]], pa.Table]

MOST_LOSSES = 2**23  # of targets, in a file


def check_run(run: AnyRun, store: Store, settings: EvaluationSettings) -> None:
    """Raises UserError if a run cannot be evaluated at all: it is damaged, or its tokens are not the store's."""
    check_text(run, store)
    run.checkpoints(settings.checkpoint)
    kept.check(run.path)
    run.build_model()


def check_settings(settings: EvaluationSettings, seq_len: int) -> None:
    """Raises UserError if a setting is invalid for a training length L, tokens, whatever the run and its text."""
    settings.check_max_targets(seq_len)
    if not settings.protocols and not settings.probes:
        raise UserError(f"name at least one protocol: {', '.join(protocols.names())}")
    if settings.split not in HELDOUT:
        raise UserError(f"there is no held-out split '{settings.split}': choose from {', '.join(HELDOUT)}")
    if not settings.precisions:
        raise UserError(f"name at least one precision: {', '.join(PRECISIONS)}")
    for precision in settings.precisions:
        if precision not in PRECISIONS:
            raise UserError(f"unknown precision '{precision}'; {specs.did_you_mean(precision, PRECISIONS)}")
    check_files(settings.extend)


def check(run: AnyRun, store: Store, settings: EvaluationSettings) -> None:
    """Raises UserError before starting if a setting is invalid for the run."""
    check_settings(settings, run.config.seq_len)
    check_run(run, store, settings)
    model = run.build_model()
    split = store.split(settings.split)
    chosen = extensions_to_evaluate(run, model, settings.extend)

    def check_plans(lengths: Iterable[int]) -> None:
        for applied in chosen.values():
            recipe = applied.joined()
            for length in lengths:
                if recipe is None or recipe.to_fit is None:
                    applied.plan(run, model, length)
                else:
                    validation_windows(store.split("validation"), length, FIT_TARGETS)

    check_plans(lengths_of(settings.factors, model.seq_len))
    for protocol in settings.protocols:
        layout = settings.layout(protocol, split, model.seq_len)
        check_plans(set(layout.plan_lengths()) - layout.rows.keys())
        losses = sum(len(group.start_W) * group.scored for group in layout.control) * len(layout.rows)
        if settings.keep_losses and losses > MOST_LOSSES:
            raise UserError(
                f"`keep_losses=True` would keep {losses} losses of each extension by {protocol}, and {MOST_LOSSES} is "
                "the most: lower `max_targets`, or evaluate fewer lengths at once"
            )
        if parse_protocol(protocol).bos:
            beginning_token(run, store)


def evaluate(
    run: AnyRun,
    store: Store,
    settings: EvaluationSettings,
    *,
    device: str = "cpu",
    progress: Advance = unseen,
    say: Say = QUIET.say,
) -> Iterator[Rows]:
    """Yields rows for the tables of an evaluation, one setting at a time.

    The plain model is always evaluated. Calls of `progress` add up to `expected_inputs`. Rows have no loss at lengths
    that do not fit into memory (`say` says so), or that the encoding is not defined at. Raises UserError if a model
    looks at later tokens.
    """
    bytes_of = token_bytes(store.tokenizer(), store.manifest["eos_id"])
    told: set[str] = set()
    for checkpoint, loaded, precision, model in models(run, settings, device):
        if precision == settings.precisions[0]:
            lengths = lengths_of(settings.factors, loaded.seq_len)
            causality.check_run(run, loaded, settings.extend, lengths, progress)
        chosen = extensions_to_evaluate(run, loaded, settings.extend)
        longest = max(lengths_of(settings.factors, loaded.seq_len))
        fitted = {text for text, applied in chosen.items() if applied.fits(run, longest)} - told
        if settings.split == "validation" and fitted:
            told |= fitted
            say(
                f"{run.path}: {listed(sorted(fitted))}: fitted to the validation split, which is evaluated here too: "
                "on other text the losses may be higher"
            )
        shared = common(run, loaded, checkpoint, precision, settings.split, store.corpus_hash)
        for protocol in map(parse_protocol, settings.protocols):
            evaluation = _ProtocolEvaluation(
                run, store, bytes_of, settings, loaded, model, precision, protocol, progress, say
            )
            for text, applied in chosen.items():
                setting = shared | evaluation.shared | of_extension(run, loaded, text, applied)
                yield evaluation.rows(setting, applied, chosen[AS_TRAINED])


def models(
    run: AnyRun, settings: EvaluationSettings, device: str
) -> Iterator[tuple[Checkpoint, LanguageModel, str, LanguageModel]]:
    """Every checkpoint and precision: the model as loaded, and as that precision runs it."""
    for checkpoint in run.checkpoints(settings.checkpoint):
        loaded = run.load_model(checkpoint).to(device)
        for precision in settings.precisions:
            yield checkpoint, loaded, precision, in_precision(loaded, precision).to(device)


def expected_inputs(run: AnyRun, store: Store, settings: EvaluationSettings) -> Inputs:
    """How many inputs `evaluate` computes; too low for models that look at the length."""
    times = len(run.checkpoints(settings.checkpoint)) * len(settings.precisions)
    return total_inputs((inputs for *_, inputs in inputs_by_setting(run, store, settings)), times)


def total_inputs(parts: Iterable[Inputs], times: int) -> Inputs:
    """The inputs of all settings together, multiplied by `times`."""
    found: Inputs = Counter()
    for inputs in parts:
        found.update(inputs)
    return Counter({windows: times * inputs for windows, inputs in found.items()})


def inputs_by_setting(run: AnyRun, store: Store, settings: EvaluationSettings) -> Iterator[tuple[str, str, Inputs]]:
    """The inputs of one checkpoint in one precision: of each protocol with each extension, in the order of `evaluate`.

    An extension computes what those before it have not.
    """
    model, split = run.build_model(), store.split(settings.split)
    chosen = extensions_to_evaluate(run, model, settings.extend)
    control_plan = chosen[AS_TRAINED].plan(run, model, model.seq_len)
    for protocol in settings.protocols:
        layout = settings.layout(protocol, split, model.seq_len)
        windows = layout.by_key()
        known: set[tuple[Plan, Key]] = set()
        for text, applied in chosen.items():
            found: Inputs = Counter()
            plans = {length: applied.expected_plan(run, model, length) for length in layout.plan_lengths()}
            for plan, keys in _by_plan(model, layout, plans, control_plan).items():
                found += inputs_of({key: windows[key] for key in keys if (plan, key) not in known}, share=True)
                known |= {(plan, key) for key in keys}
            found.update({(length, length): applied.inputs_to_fit(run, model, store, length) for length in plans})
            yield protocol, text, found


def _by_plan(
    model: LanguageModel, layout: Layout, plans: Mapping[int, Plan], control_plan: Plan
) -> dict[Plan, list[Key]]:
    """The keys to measure under each plan, and the control's; rows that the encoding is not defined for are left out.

    plans: by length. Rows with a length that has no plan are left out, too.
    """
    wanted: dict[Plan, list[Key]] = {}
    for row in layout.rows:
        keys = layout.keys_of(row)
        if all(n in plans and model.defined_at(n, plans[n]) for _, n in keys):
            for key in keys:
                wanted.setdefault(plans[key[1]], []).append(key)
    wanted.setdefault(control_plan, []).append(CONTROL)
    return wanted


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
    protocol: Protocol
    progress: Advance
    say: Say

    def __post_init__(self) -> None:
        self.split = split = self.store.split(self.settings.split)
        layout = self.settings.layout(self.protocol.text, split, self.model.seq_len)
        self.bos = beginning_token(self.run, self.store) if self.protocol.bos else None
        layout = layout if self.bos is None else layout.beginning_with(self.bos)
        self.layout, self.windows, self.lengths = layout, layout.by_key(), sorted(layout.rows)
        self.targets = Targets.of(layout.control, split, self.bytes_of, self.store.lossless)
        self.shared = {
            "protocol": self.protocol.text,
            "stride": self.protocol.stride_at(self.model.seq_len),
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
        longest = self.lengths[-1]
        at_longest, best_N = (layout.rows[longest], split, self.model.seq_len), self.optimum[longest]
        if process is None or best_N is None:
            self.key_N = copies_beyond(*at_longest)
        else:
            self.key_N = gained_beyond(*at_longest, process, best_N)
        self.shared |= {"key_context": CONTEXT if process is None else None, "key_within": longest}

    def rows(self, setting: dict[str, Any], applied: AppliedExtensions, as_trained: AppliedExtensions) -> Rows:
        """The rows of one recipe at every length."""
        model, what = self.model, f"{setting['run']} {setting['protocol']} {setting['model']}"
        fitting = partial(self.progress, f"{what}, fitting")
        plans: dict[int, Plan] = {}
        for length in self.layout.plan_lengths():
            try:
                plans[length] = applied.fitted_plan(self.run, model, self.store, length, self.precision, fitting)
            except OutOfMemoryError as error:
                self._not_measured(what, error)
        control_plan = as_trained.plan(self.run, model, model.seq_len)
        wanted = _by_plan(model, self.layout, plans, control_plan)
        for plan, keys in wanted.items():
            self._measure(what, plan, keys)
        control = self._known[control_plan, CONTROL]
        rows: list[dict[str, Any]] = []
        document_rows: list[dict[str, Any]] = []
        target_rows = [EVAL_TARGETS.schema().empty_table()]
        for length in self.lengths:
            here = setting | {"length": length, "factor": length / model.seq_len}
            parts = [(plan, key) for plan, keys in wanted.items() for key in keys if key in self.layout.keys_of(length)]
            measured = self._joined(parts)
            groups = self.layout.rows[length]
            scores = TargetsAtLength(
                self.targets, control.loss_N, index_in_window(groups), window_of(groups), self.optimum[length],
                self.key_N,
            )  # fmt: skip
            reason = reason_of(measured, self.model, length, plans.get(length))
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
                self._not_measured(what, error)
                self._too_long |= {(plan, key) for key in new if key != CONTROL and key[1] >= error.length}

    def _not_measured(self, what: str, error: OutOfMemoryError) -> None:
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
        # `expected_inputs` expects windows to be shared.
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
