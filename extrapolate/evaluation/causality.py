"""What is evaluated looks at no later token: asked of a run's weights on its text, at every length and plan."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from extrapolate.data.store import Split
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import OutOfMemoryError, Room
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.precision import storage_of
from extrapolate.machine.devices import to_device
from extrapolate.model import causality
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import AS_TRAINED


def check_run(
    run: AnyRun,
    model: LanguageModel,
    split: Split,
    lengths: Sequence[int],
    extensions: Sequence[str],
    precision: str = "fp32",
) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, at one of these lengths or at L.

    model: as `precision` runs it. extensions: as `EvaluationSettings` has them; a constant that is yet to be fitted has
    some value. Lengths that are longer than L and too long for memory are left out, as they are from the evaluation.
    """
    asked: set[tuple[Plan, int]] = set()
    for text, applied in extensions_to_evaluate(run, model, extensions).items():
        for length in sorted({*lengths, *([model.seq_len] if text == AS_TRAINED else [])}):
            plan = applied.expected_plan(run, model, length)
            if (plan, length) not in asked and model.defined_at(length, plan):
                asked.add((plan, length))
                count = causality.window_count(length)
                tokens = split.slice(0, min(count * length, split.n_tokens)).astype(np.int64)
                tokens = np.minimum(tokens, model.vocab_size - 1)  # the store alone may have an end of text
                check_plan(run, model, plan, torch.from_numpy(np.resize(tokens, (count, length))), text, precision)


@torch.inference_mode()
def check_plan(
    run: AnyRun,
    model: LanguageModel,
    plan: Plan,
    tokens_BT: Tensor,
    extension: str = AS_TRAINED,
    precision: str = "fp32",
) -> None:
    """As `check_run`, for one plan and these tokens."""
    tokens_BT = to_device(tokens_BT, model.device)
    length = tokens_BT.shape[1]
    setting_of = partial(model.setting, plan, storage_of(precision))
    try:
        leak = Room(length, len(tokens_BT), setting_of()).enough_for(
            lambda windows, setting: causality.leak_in(model, setting, tokens_BT[:windows], precision)
        )
    except OutOfMemoryError:
        if length <= model.seq_len:
            raise
        return
    if leak is not None:
        case = "" if extension == AS_TRAINED else f" with {extension}"
        case += "" if precision == "fp32" else f" in {precision}"
        again = partial(causality.leak_in, model, tokens_BT=tokens_BT, precision=precision)
        causality.refuse(model, leak, lambda: again(setting_of()), run.path, length, case)
