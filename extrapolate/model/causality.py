"""Checks that what a model computes for a token depends on that token and those before it, and on nothing else.

Shapes: B windows, T tokens, D what enters the head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from extrapolate.encodings.base import POSITIONS, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model.hooks import culprit, move_from_constants
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model, is_users

# Of the largest number. Products of the same sizes are rounded alike, so our own layers give the same bits; an encoding
# may sum over the window, as a Fourier transform does, and then later tokens change the last bits.
TOLERANCE = 1e-5
TOLERANCE_OF_OTHERS = 1e-3  # other libraries may compute in fewer bits
LEAST_LOG = -20.0  # nats; less likely tokens are alike
DISTINCT = 4  # tokens in the second window, which recur there as they do in text


def may_leak(model: LanguageModel) -> bool:
    """Whether it has code that the package's own tests do not cover: a user's, or another library's."""
    if not isinstance(model, Model):
        return True
    parts = (part for encoding in model.encodings for part in encoding.modules())
    return any(isinstance(part, Encoding) and is_users(type(part)) for part in parts)


def check_causal(model: LanguageModel, plan: Plan, length: int, owner: object, *, training: bool = True) -> None:
    """Raises UserError if a token sees a later one, another window of the batch, or an earlier call.

    Computes two random windows of `length` tokens under a plan, exchanges tokens and windows, and repeats a call after
    others. Each call has its own copy of the model, in which constant parameters, such as a gate that begins at zero,
    are moved from where they start; neither the model nor torch's random state changes. training: also check a model of
    ours as at the beginning of a training. owner: a file or an extension, which begins the message.
    """
    for trains in (False, True) if training and isinstance(model, Model) else (False,):
        with same_random_numbers(model.device):
            moved = _moved(model, trains)
        if found := _seen(moved, plan, length, trains):
            again = partial(_seen, moved, plan, length, trains)
            hook = culprit(moved, again) if isinstance(moved, Model) else "the model"
            what, advice = found
            case = " in training only" if trains else ""
            raise UserError(f"{owner}: {hook} lets {what}, at {length} tokens{case}: {advice}")


def _moved(model: LanguageModel, training: bool) -> LanguageModel:
    if not isinstance(model, Model):
        return model
    moved = model.copied()
    with torch.no_grad():
        move_from_constants(moved.encodings)
    moved.constrain()
    moved.begin_step(0.0 if training else 1.0)
    return moved.train(training)


def _seen(model: LanguageModel, plan: Plan, length: int, training: bool) -> tuple[str, str] | None:
    """What is seen that must not be, and what to do instead; None if nothing is."""
    draw = torch.Generator().manual_seed(1)
    shape, vocab_size = (2, length + 1), model.vocab_size
    longer_BT, shift_BT = (torch.randint(low, max(low + 1, vocab_size), shape, generator=draw) for low in (0, 1))
    longer_BT[1] %= DISTINCT
    others_BT = ((longer_BT + shift_BT) % vocab_size).to(model.device)
    before = [(others_BT, plan)] if model.defined_at(length + 1, plan) else []
    others_BT, tokens_BT = others_BT[:, :length], longer_BT[:, :length].to(model.device)
    moves = all(POSITIONS in encoding.accepts for encoding in model.encodings)
    before.append((others_BT, replace(plan, position_scale=plan.position_scale / 2) if moves else plan))
    tolerance = TOLERANCE if isinstance(model, Model) else TOLERANCE_OF_OTHERS

    def states(*calls: tuple[Tensor, Plan], seed: int = 0) -> Tensor:
        """The states of the last of some calls of a copy, [B, T, D]."""
        called = model.copied()
        for tokens_BT, plan in calls:
            with same_random_numbers(model.device, seed), torch.set_grad_enabled(training):
                states_BTD = called.hidden(tokens_BT, called.resolve(plan)).detach().float()
        return states_BTD if isinstance(model, Model) else predictions(states_BTD)

    def differ(states_BTD: Tensor, expected_BTD: Tensor) -> Tensor:
        """Where states differ by more than rounding, [B, T]; NaN does not count."""
        largest = expected_BTD.nan_to_num(0.0, 0.0, 0.0).abs().max()
        return ((states_BTD - expected_BTD).abs() > tolerance * largest).any(dim=-1)

    asked = (tokens_BT, plan)
    expected_BTD = states(asked)
    # Training may count its calls; evaluation may not, nor draw random numbers.
    as_many_BTD = states(*[asked] * (1 + len(before))) if training else expected_BTD
    if differ(states(*before, asked, seed=0 if training else 1), as_many_BTD).any():
        advice = "keep nothing of a call for the next one, and draw random numbers from torch, in training alone"
        return "a call depend on an earlier call", advice

    def changed(exchanged_BT: Tensor) -> Tensor:
        return differ(states((torch.where(exchanged_BT, others_BT, tokens_BT), plan)), expected_BTD)

    row_B1, index_T = torch.arange(2, device=model.device)[:, None], torch.arange(length, device=model.device)
    if changed(row_B1 == 1)[0].any() or changed(row_B1 == 0)[1].any():
        return "a window see another window of the batch", "compute nothing from the batch, such as a mean over it"
    for place in sorted({1, length // 3, length // 2, length - 1} - {0}):
        wrong_BT = changed(index_T >= place)[:, :place]
        if wrong_BT.any():
            row, token = wrong_BT.nonzero()[0].tolist()
            seen, end = token + 1, length  # exchanging the tokens from `seen` on matters, from `end` on not
            while end - seen > 1:
                middle = (seen + end) // 2
                seen, end = (middle, end) if changed(index_T >= middle)[row, token] else (seen, middle)
            advice = "what is computed for a token may depend only on that token and those before it"
            return f"token {token} see token {seen}, which comes after it", advice
    return None


def predictions(logits_BTV: Tensor) -> Tensor:
    """The log-probabilities, cut off below, so that a logit that masks a token does not make differences look small."""
    return logits_BTV.float().log_softmax(-1).clamp_(min=LEAST_LOG)


@contextmanager
def same_random_numbers(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Inside it, torch draws the same numbers every time; restores its random state."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed takes a millisecond, to record the stack for other devices
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield
