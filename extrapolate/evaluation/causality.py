"""Checks, on a run's weights and text, that no token depends on later ones at any evaluated length and plan."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from extrapolate.data.store import Split, Store
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import OutOfMemoryError, Room, of_memory
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.precision import storage_of
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.machine.devices import to_device
from extrapolate.model import causality
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model
from extrapolate.model.places import places_within, window_count
from extrapolate.names import AS_TRAINED
from extrapolate.progress import Advance, unseen

# The plans and lengths that a run's weights have passed the check at, by step and precision.
Passed = defaultdict[tuple[int, str], set[tuple[Plan, int]]]

UNKNOWN = 10**8  # assumed parameters of a model that does not say how many it has


def check_run(
    run: AnyRun,
    model: LanguageModel,
    store: Store,
    settings: EvaluationSettings,
    lengths: Sequence[int],
    precision: str = "fp32",
    *,
    passed: set[tuple[Plan, int]],
    progress: Advance = unseen,
) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, at one of these lengths or at L.

    model: as `precision` runs it. An extension's constant that is yet to be fitted gets a placeholder; what is scored
    is checked with the fitted one by `losses.check_windows`. Lengths beyond L that do not fit into memory are skipped,
    as in the evaluation. passed: what these weights have passed in this precision; it is not checked again, and grows.
    """
    asked: dict[tuple[Plan, int], str] = {}
    for text, applied in extensions_to_evaluate(run, model, settings.extend).items():
        every = sorted({*lengths, model.seq_len})
        plans = {length: applied.expected_plan(run, model, length) for length in every}
        for length in reversed(every):  # another order, in case one length affects the next
            if applied.expected_plan(run, model, length) != plans[length]:
                raise UserError(
                    f"{text} has another plan for {length} tokens when it is made again: compute it from its arguments "
                    "and the lengths alone, and keep nothing of a call for the next one"
                )
        for length, plan in plans.items():
            if (length in lengths or text == AS_TRAINED) and model.defined_at(length, plan):
                asked.setdefault((plan, length), text)

    windows = partial(_windows, store.split(settings.split), model.vocab_size)
    check_plans(run, model, asked, windows, precision, progress, passed)
    passed.update(asked)


def check_plans(
    run: AnyRun,
    model: LanguageModel,
    asked: Mapping[tuple[Plan, int], str],
    windows: Callable[[int], Tensor],
    precision: str = "fp32",
    progress: Advance = unseen,
    passed: Collection[tuple[Plan, int]] = (),
) -> None:
    """As `check_run`, for these plans and lengths, with the extension of each. windows: of a length, [B, T]."""
    new = [call for call in asked if call not in passed]
    if precision == "fp32" and causality.may_leak(model) and new:  # with those that passed: they may affect each other
        calls = [(plan, to_device(windows(length)[:1], model.device)) for plan, length in asked]
        if (changed_BT := _changed(model, calls)) is not None:
            which, wrong = "the encoding" if isinstance(model, Model) else model.label(), causality.REMEMBERS
            raise UserError(f"{run.path}: {which} {wrong.what}, at {changed_BT.shape[1]} tokens: {wrong.advice}")
    for plan, length in new:
        text = asked[plan, length]
        progress(f"{run.name} causality of {text} at {length} tokens", 0)
        # Training has checked our own models at more places of L tokens.
        more = causality.may_leak(model) and not (isinstance(model, Model) and length == model.seq_len)
        size = model.parameter_count()
        places = places_within(UNKNOWN if size is None else size, length) if more else 0
        check_plan(run, model, plan, windows(length), text, precision, places)


@torch.inference_mode()
def _changed(model: LanguageModel, calls: Sequence[tuple[Plan, Tensor]]) -> Tensor | None:
    """As `causality.remembers`, without the lengths that do not fit into memory."""
    try:
        return causality.remembers(model, calls)
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error) or not calls:
            raise
    longest = max(tokens_BT.shape[1] for _, tokens_BT in calls)
    return _changed(model, [(plan, tokens_BT) for plan, tokens_BT in calls if tokens_BT.shape[1] < longest])


def _windows(split: Split, vocab_size: int, length: int) -> Tensor:
    """Windows from all over the text, [B, T]."""
    starts = np.linspace(0, max(0, split.n_tokens - length), window_count(length)).astype(int)
    found = [split.slice(start, min(start + length, split.n_tokens)) for start in starts.tolist()]
    tokens_BT = np.stack([np.resize(tokens.astype(np.int64), length) for tokens in found])
    return torch.from_numpy(np.minimum(tokens_BT, vocab_size - 1))  # the store alone may have an end of text


@torch.inference_mode()
def check_plan(
    run: AnyRun,
    model: LanguageModel,
    plan: Plan,
    tokens_BT: Tensor,
    extension: str = AS_TRAINED,
    precision: str = "fp32",
    places: int = 0,
) -> None:
    """As `check_run`, for one plan and these tokens. places: see `causality.leak_of`."""
    tokens_BT = to_device(tokens_BT, model.device)
    length = tokens_BT.shape[1]
    setting_of = partial(model.setting, plan, storage_of(precision))
    try:
        leak = Room(length, len(tokens_BT), setting_of()).enough_for(
            lambda windows, setting: causality.leak_in(model, setting, tokens_BT[:windows], precision, places=places)
        )
    except OutOfMemoryError:
        if length <= model.seq_len:
            raise
        return
    if leak is not None:
        case = "" if extension == AS_TRAINED else f" with {extension}"
        case += "" if precision == "fp32" else f" in {precision}"
        again = partial(causality.leak_in, model, tokens_BT=tokens_BT, precision=precision, places=places)
        causality.refuse(model, leak, lambda: again(setting_of()), run.path, length, case)
