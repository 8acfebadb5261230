"""What an evaluation computes, worked out once: no weights are needed, so it is known before anything is trained."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from extrapolate import results
from extrapolate.data.probes.base import Probe, Vocabulary
from extrapolate.data.store import Store
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError, about
from extrapolate.evaluation.any_run import Subject
from extrapolate.evaluation.fitting import FIT_TARGETS
from extrapolate.evaluation.losses import validation_windows
from extrapolate.evaluation.memory import MEMORY
from extrapolate.evaluation.plans import AppliedExtensions, extensions_to_evaluate
from extrapolate.evaluation.protocols.base import (
    CONTROL,
    Key,
    Layout,
    Protocol,
    lengths_of,
    parse_protocol,
    targets_hash,
)
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.text import beginning_token
from extrapolate.evaluation.window_losses import Inputs, inputs_of
from extrapolate.model.language_model import LanguageModel
from extrapolate.results import kept
from extrapolate.runs import provenance
from extrapolate.runs.weights import Checkpoint
from extrapolate.version import __version__

MOST_LOSSES = 2**23  # of targets, in a file
S = TypeVar("S", bound=Subject)
S_co = TypeVar("S_co", bound=Subject, covariant=True)
Row = dict[str, Any]
Place = tuple[str, str, str, str]  # the hash of the weights, the precision, what is asked, and the extension
There = Mapping[Place, Mapping[int, Sequence[Row]]]  # rows that are there already, by evaluation length


@dataclass(frozen=True)
class OnText:
    """One protocol with one extension, by its name in tables.

    layout: the windows and targets of every evaluation length, with the token of `bos`. plans: by length, with a
    placeholder for a constant that is yet to be fitted.
    """

    protocol: Protocol
    extension: str
    applied: AppliedExtensions
    layout: Layout
    plans: Mapping[int, Plan]

    @property
    def asked(self) -> str:
        """The protocol, as rows name it."""
        return self.protocol.text

    @property
    def lengths(self) -> list[int]:
        """The evaluation lengths, tokens, in ascending order."""
        return sorted(self.layout.rows)

    @property
    def targets(self) -> int:
        """How many tokens are scored at each length."""
        return sum(len(group.start_W) * group.scored for group in self.layout.control)


@dataclass(frozen=True)
class OnProbe:
    """One probe with one extension. lengths: tokens, in ascending order. plans: as in `OnText`."""

    probe: Probe
    extension: str
    applied: AppliedExtensions
    lengths: list[int]
    plans: Mapping[int, Plan]

    @property
    def asked(self) -> str:
        """The probe, as rows name it."""
        return self.probe.text


Item = OnText | OnProbe


@dataclass(frozen=True)
class Work(Generic[S_co]):
    """What is evaluated of a run on the text of a store: every item, of each checkpoint in each precision.

    run: one that can be evaluated, or a study's cell, which has no weights yet. model: the run's, with arbitrary
    weights. causal: the hashes of weights that were found to see no later tokens. The plain model is always evaluated,
    and comes first.
    """

    run: S_co
    store: Store
    settings: EvaluationSettings
    model: LanguageModel
    checkpoints: Sequence[Checkpoint]
    on_text: Sequence[OnText]
    on_probes: Sequence[OnProbe]
    causal: set[str] = field(default_factory=set)

    @cached_property
    def control_plan(self) -> Plan:
        """The plan of the control: that of the plain model at L."""
        return AppliedExtensions(self.run.own_extension, None).plan(self.run, self.model, self.model.seq_len)

    @property
    def items(self) -> list[Item]:
        """All items, in the order of the evaluation."""
        return [*self.on_text, *self.on_probes]

    def places(self, items: Sequence[Item]) -> Iterator[Place]:
        """Where the rows of items lie, in the order of the evaluation."""
        for checkpoint in self.checkpoints:
            for precision in self.settings.precisions:
                yield from (place_of(checkpoint, precision, item) for item in items)

    def inputs(self, items: Sequence[Item], there: There | None = None) -> Inputs:
        """How many inputs the evaluation of items computes; too low for models that look at the length."""
        found: Inputs = Counter()
        for _, _, inputs in self.inputs_by_item(items, there):
            found += inputs  # which leaves out what is 0
        return found

    def inputs_by_item(self, items: Sequence[Item], there: There | None = None) -> Iterator[tuple[str, Item, Inputs]]:
        """The inputs of each item, of each checkpoint in each precision; it has what those before it computed.

        there: rows that are not computed again.
        """
        for checkpoint in self.checkpoints:
            for precision in self.settings.precisions:
                known: set[tuple[Any, ...]] = set()
                for item in items:
                    lengths = left_of(item, (there or {}).get(place_of(checkpoint, precision, item), {}))
                    if isinstance(item, OnProbe):
                        inputs = self._of_probe(item, lengths, known)
                    else:
                        inputs = self._of_text(item, lengths, known)
                    for length in plans_at(item, lengths):
                        inputs[length, length] += item.applied.inputs_to_fit(self.run, self.model, self.store, length)
                    yield precision, item, inputs

    def _of_text(self, item: OnText, lengths: Collection[int], known: set[tuple[Any, ...]]) -> Inputs:
        found, windows = Counter[tuple[int, int]](), item.layout.by_key()
        for plan, keys in windows_of(self.model, item, lengths, item.plans, self.control_plan).items():
            found += inputs_of({key: windows[key] for key in keys if (item.asked, plan, key) not in known}, share=True)
            known |= {(item.asked, plan, key) for key in keys}
        return found

    def _of_probe(self, item: OnProbe, lengths: Collection[int], known: set[tuple[Any, ...]]) -> Inputs:
        found, model, split = Counter[tuple[int, int]](), self.model, self.store.split(self.settings.split)
        vocabulary = Vocabulary.of(self.store, model.vocab_size)
        for length in lengths:
            _, answers_A = item.probe.sequences(length, 0.0, 1, split, vocabulary)
            windows, plan = len(item.probe.depths) * self.settings.trials, item.plans[length]
            if (item.asked, length) not in known:
                control = sum(end - start for start, end, _ in control_cuts(answers_A, length, model.seq_len))
                found[model.seq_len, len(answers_A)] += windows * control
            if (item.asked, length, plan) not in known and model.defined_at(length, plan):
                found[length, len(answers_A)] += windows * length
            known |= {(item.asked, length), (item.asked, length, plan)}
        return found

    def there(self) -> There:
        """The rows that the run keeps and that would be computed again alike, by the same version.

        None of losses if those of all targets are to be kept too.
        """
        known = {
            "config_hash": self.run.config.config_hash(), "corpus_hash": self.store.corpus_hash,
            "split": self.settings.split, "version": __version__, "commit": provenance.commit(),
        }  # fmt: skip
        weights, found = [one.sha256 for one in self.checkpoints], dict[Place, dict[int, list[Row]]]()
        of_item, whole = dict[tuple[str, str], dict[str, Any]](), dict[Place, bool]()
        for item in self.on_text if not self.settings.keep_losses else ():
            targets = targets_hash(item.layout.control, self.store.corpus_hash, self.settings.split)
            same = {"targets_hash": targets, "key_within": item.lengths[-1]}
            of_item[item.asked, item.extension] = known | same | {"extension_sha256": item.applied.sha256()}
        for probed in self.on_probes:
            same = {"n_trials": self.settings.trials, "extension_sha256": probed.applied.sha256()}
            of_item[probed.asked, probed.extension] = known | same
        for table in (results.EVALS, results.PROBES):
            rows = kept.read_kept(self.run.path, table, weights)
            for row in [] if rows is None else rows.to_pylist():
                asked = row[table.by], row["extension"]
                same = of_item.get(asked, {"config_hash": None})
                if row["reason"] != MEMORY and all(row[name] == value for name, value in same.items()):
                    place = (row["weights_sha256"], row["precision"], *asked)
                    found.setdefault(place, {}).setdefault(row["length"], []).append(row)
                    if table is results.EVALS and place not in whole:
                        by_document = kept.path_of(self.run.path, results.EVAL_DOCUMENTS, row)
                        whole[place] = by_document.is_file()
        return {place: rows for place, rows in found.items() if whole.get(place, True)}

    def with_rows_there(self, rows: Sequence[Row], there: There, place: Place) -> list[Row]:
        """Rows that were computed, and those that are there for the other lengths of this evaluation, by length."""
        asked = lengths_of(self.settings.factors, self.model.seq_len)
        known = {length: at for length, at in there.get(place, {}).items() if length in asked}
        computed = {row["length"] for row in rows}
        more = [row for length, at in known.items() if length not in computed for row in at]
        return sorted([*more, *rows], key=lambda row: row["length"])

    def count(self, there: There) -> int:
        """How many rows of this evaluation are there."""
        return sum(len(self.with_rows_there([], there, place)) for place in self.places(self.items))


def place_of(checkpoint: Checkpoint, precision: str, item: Item) -> Place:
    """Where the rows of an item lie."""
    return checkpoint.sha256, precision, item.asked, item.extension


def left_of(item: Item, there: Mapping[int, Sequence[Row]]) -> list[int]:
    """The lengths of an item that have no rows yet; of a probe, also those of other depths."""
    rows = len(item.probe.depths) if isinstance(item, OnProbe) else 1
    return [length for length in item.lengths if len(there.get(length, ())) != rows]


def plans_at(item: Item, lengths: Collection[int]) -> list[int]:
    """The lengths whose plans are needed to evaluate at some lengths, tokens, in ascending order."""
    if isinstance(item, OnProbe):
        return sorted(lengths)
    return sorted({length for row in lengths for _, length in item.layout.keys_of(row)})


def windows_of(
    model: LanguageModel, item: OnText, lengths: Collection[int], plans: Mapping[int, Plan], control_plan: Plan
) -> dict[Plan, list[Key]]:
    """The keys of the windows to compute under each plan for some lengths, and the control's.

    Lengths that the encoding is not defined for, or that have no plan, are left out.
    """
    wanted: dict[Plan, list[Key]] = {}
    for row in lengths:
        keys = item.layout.keys_of(row)
        if all(n in plans and model.defined_at(n, plans[n]) for _, n in keys):
            for key in keys:
                wanted.setdefault(plans[key[1]], []).append(key)
    if lengths:
        wanted.setdefault(control_plan, []).append(CONTROL)
    return wanted


def control_cuts(answers_A: np.ndarray, last: int, seq_len: int) -> list[tuple[int, int, np.ndarray]]:
    """The control's windows, the last first: their first and last token, and the places of the answers in them."""
    cuts: list[tuple[int, int, np.ndarray]] = []
    left = len(answers_A)
    while left:
        end = last if not cuts else int(answers_A[left - 1])
        start = max(0, end - seq_len)
        here = np.flatnonzero(answers_A[:left] > max(start, end - max(1, seq_len // 2)))
        cuts.append((start, end, answers_A[here]))
        left = int(here[0])
    return cuts


def work_of(run: S, store: Store, settings: EvaluationSettings, model: LanguageModel | None = None) -> Work[S]:
    """Works out an evaluation. Raises UserError if a setting is invalid for the run or its text.

    model: the run's, with arbitrary weights (default: it is built).
    """
    model, split = model or run.build_model(), store.split(settings.split)
    factors = lengths_of(settings.factors, model.seq_len)

    def plans(applied: AppliedExtensions, lengths: Sequence[int]) -> dict[int, Plan]:
        if (stack := applied.joined()) is not None and stack.to_fit is not None:
            for length in lengths:
                validation_windows(store.split("validation"), length, FIT_TARGETS)
        return {length: applied.expected_plan(run, model, length) for length in lengths}

    with about("extend"):
        chosen = extensions_to_evaluate(run, model, settings.extend)
        at_factors = {text: plans(applied, factors) for text, applied in chosen.items()}
    on_text: list[OnText] = []
    for protocol in map(parse_protocol, settings.protocols):
        with about("factors"):
            layout = settings.layout(protocol.text, split, model.seq_len)
        if protocol.bos:
            layout = layout.beginning_with(beginning_token(run, store))
        with about("extend"):
            on_text += [
                OnText(protocol, text, applied, layout, plans(applied, layout.plan_lengths()))
                for text, applied in chosen.items()
            ]
        with about("keep_losses"):
            losses = on_text[-1].targets * len(layout.rows)
            if settings.keep_losses and losses > MOST_LOSSES:
                raise UserError(
                    f"`keep_losses=True` would keep {losses} losses of each extension by {protocol.text}, and "
                    f"{MOST_LOSSES} is the most: lower `max_targets`, or evaluate fewer lengths at once"
                )
    on_probes = [
        OnProbe(probe, text, applied, factors, at_factors[text])
        for probe in settings.parsed_probes()
        for text, applied in chosen.items()
    ]
    return Work(run, store, settings, model, run.checkpoints(settings.checkpoint), on_text, on_probes)
