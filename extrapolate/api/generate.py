"""xt.generate"""

import math
from collections.abc import Sequence
from pathlib import Path

from extrapolate.api.texts import ids_of, opened
from extrapolate.data.tokenizer import eos_id
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import extension_to_apply, plan_for_texts
from extrapolate.interop.foreign import ForeignRun
from extrapolate.interop.generation import Drawn, generated, likeliest
from extrapolate.names import AS_TRAINED, LONGEST
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs import shown
from extrapolate.specs.arguments import NUMBER, TEXT, WHOLE, check


@decided
def generate(
    run: str | Path | Run | ForeignRun,
    prompt: str | Sequence[int],
    *,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    extend: str = AS_TRAINED,
    trust_code: bool = False,
) -> str:
    """Continues a prompt with a trained model, up to `max_new_tokens` tokens or the end of the text.

    run: a run, its folder, or a model of another library. prompt: a text, or token ids. temperature: 0 always takes the
    likeliest token; above 0, tokens are drawn from the softmax of the logits divided by it. top_k: draw from the k
    likeliest tokens (default: all). seed: the seed of the draws; the same seed gives the same text. extend: one
    extension, or `without-own` (default: as the run was trained), set for the length of the prompt and all new tokens
    together. trust_code: allow Python files that came with the run to run, even if you have not run them before; see
    docs/trust.md.

    Runs on the CPU in float32. Raises UserError if the extension does not apply, or the encoding is not defined at the
    length of the prompt and the new tokens.
    """
    for parameter, value, kind in (
        ("max_new_tokens", max_new_tokens, WHOLE), ("temperature", temperature, NUMBER), ("seed", seed, WHOLE),
        ("extend", extend, TEXT),
    ):  # fmt: skip
        check(parameter, value, kind)
    if not 1 <= max_new_tokens <= LONGEST:
        raise UserError(f"`max_new_tokens` must be between 1 and {LONGEST}, not {shown(max_new_tokens)}")
    if not 0 <= temperature < math.inf:
        raise UserError(f"`temperature` must be 0 or more, not {temperature:g}")
    if not 0 <= seed < 2**63:
        raise UserError(f"`seed` must be between 0 and {2**63 - 1}, not {shown(seed)}")
    if top_k is not None:
        check("top_k", top_k, WHOLE)
        if top_k < 1:
            raise UserError(f"`top_k` must be at least 1, not {top_k}")
    subject = opened(run)
    model = subject.model
    ids = ids_of(subject, model, "prompt", prompt)
    plan = plan_for_texts(subject, model, extension_to_apply(subject, model, extend), len(ids) + max_new_tokens)
    tokenizer = subject.tokenizer
    end = eos_id(tokenizer)
    choose = likeliest if temperature == 0 else Drawn(temperature, top_k, seed)
    new = generated(model, ids, max_new_tokens, model.setting(plan), lambda new: new[-1] == end, choose)
    return str(tokenizer.decode(new))
