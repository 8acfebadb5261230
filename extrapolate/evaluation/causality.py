"""Checks what a user's or another library's code sees, once per plan, before an evaluation."""

from collections.abc import Sequence

from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import of_memory
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.model.causality import check_causal, may_leak
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import AS_TRAINED
from extrapolate.progress import Advance, unseen


def check_run(
    run: AnyRun, model: LanguageModel, extensions: Sequence[str], lengths: Sequence[int], progress: Advance = unseen
) -> None:
    """Raises UserError if a token sees more than the tokens before it, under any plan that is evaluated.

    Checks a user's encoding or extension and a model of another library, under each plan at the longest length that has
    it and fits into memory. An extension's constant that is yet to be fitted gets a placeholder.
    """
    asked: dict[Plan, tuple[str, list[int]]] = {}
    for text, applied in extensions_to_evaluate(run, model, extensions).items():
        stack = applied.joined()
        if not (may_leak(model) or (stack is not None and stack.files)):
            continue
        plans = {length: applied.expected_plan(run, model, length) for length in sorted({*lengths, model.seq_len})}
        for length in reversed(plans):  # another order, in case one length affects the next
            if applied.expected_plan(run, model, length) != plans[length]:
                raise UserError(
                    f"{text} has another plan for {length} tokens when it is made again: compute it from its arguments "
                    "and the lengths alone, and keep nothing of a call for the next one"
                )
            if model.defined_at(length, plans[length]):
                asked.setdefault(plans[length], (text, []))[1].append(length)
    for plan, (text, longest_first) in asked.items():
        owner = run.path if text == AS_TRAINED else f"{run.path} with {text}"
        progress(f"{run.name} causality of {text} at {longest_first[0]} tokens", 0)
        check_longest(model, plan, longest_first, owner)


def check_longest(model: LanguageModel, plan: Plan, lengths: Sequence[int], owner: object) -> None:
    """Runs `check_causal` at the first of the lengths for which memory suffices."""
    for length in lengths:
        try:
            check_causal(model, plan, length, owner, training=False)
            break
        except (MemoryError, RuntimeError) as error:
            if not of_memory(error):
                raise
