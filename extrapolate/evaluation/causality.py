"""What is evaluated looks at no later token: asked of a run's weights on its text, at every length and plan."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from extrapolate.data.store import Split
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.memory import OutOfMemoryError, Room
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.subject import Subject
from extrapolate.machine.devices import to_device
from extrapolate.model import causality
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import AS_TRAINED


def check_run(
    run: Subject, model: LanguageModel, split: Split, lengths: Sequence[int], extensions: Sequence[str]
) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, at one of these lengths or at L.

    extensions: as `EvaluationSettings` has them; a constant that is yet to be fitted has some value. Lengths that are
    longer than L and too long for memory are left out, as they are from the evaluation.
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
                check_plan(run, model, plan, torch.from_numpy(np.resize(tokens, (count, length))), text)


@torch.inference_mode()
def check_plan(run: Subject, model: LanguageModel, plan: Plan, tokens_BT: Tensor, extension: str = AS_TRAINED) -> None:
    """As `check_run`, for one plan and these tokens."""
    tokens_BT = to_device(tokens_BT, model.device)
    length = tokens_BT.shape[1]
    try:
        leak = Room(length, len(tokens_BT), model.setting(plan)).enough_for(
            lambda windows, setting: causality.leak_in(model, setting, tokens_BT[:windows])
        )
    except OutOfMemoryError:
        if length <= model.seq_len:
            raise
        return
    if leak is not None:
        case = "" if extension == AS_TRAINED else f" with {extension}"
        causality.refuse(model, leak, lambda: causality.leak_in(model, plan, tokens_BT), run.path, length, case)
