"""Checks that a model's states depend only on each token and those before it.

Exchanges tokens and compares the states before them. Encodings are also checked with random parameters, since an effect
that is too small to notice at first may grow in training.

Shapes: B windows, T tokens, D what enters the head.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import NoReturn

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from extrapolate.encodings.base import POSITIONS, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model.attention import Setting
from extrapolate.model.copies import copy_of, not_copied
from extrapolate.model.draws import DRAWS, EqualDraws, drew, other_generators, repeatable, same_random_numbers
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model
from extrapolate.model.places import FEWEST, few_places, later, places_within, random_windows

# Of the largest number. Our models round products of the same sizes alike; other libraries may not.
LEAST_LOG = -20.0  # nats; less likely tokens are alike
TOLERANCE, TOLERANCE_OF_OTHERS, TOLERANCE_OF_OTHERS_IN_BF16 = 1e-5, 1e-3, 2e-2
LARGE = 1e-3  # above any rounding in float32
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)  # how far parameters move to random ones: the first that gives finite numbers
# The relative rounding of the embedding in float32, how many times its effect counts as rounding in fewer bits, and
# what does not, however much an encoding makes of the last bits.
ROUNDED, TIMES, NO_ROUNDING = 1e-6, 4, 0.15
# In the order of the forward pass, except `bias`, whose absence says the least.
_BLAMED = ("embed", "attention_input", "rotate", "scores", "bias", "weights", "mix", "positions")


@dataclass(frozen=True)
class Leak:
    """A wrong dependence: `what`, which follows the name of the hook at fault in messages, and advice."""

    what: str
    advice: str = "what is computed for a token may depend only on that token and those before it"


OTHER_WINDOWS = Leak("makes a window depend on the windows beside it in a batch")
REMEMBERS = Leak(
    "gives other numbers after other tokens, lengths or positions than at first",
    "keep nothing of a call for the next one",
)
DRAWS_IN_EVALUATION = Leak(
    "draws random numbers in evaluation", "draw them in training alone, so that every evaluation gives the same losses"
)
UNSTEADY = Leak("gives other numbers for the same tokens when called again", "draw random numbers from torch")


def may_leak(model: LanguageModel) -> bool:
    """Whether it has code that the package's own tests have not covered: a user's, or another library's."""
    return not isinstance(model, Model) or any(
        not type(part).__module__.startswith("extrapolate.encodings.")
        for encoding in model.encodings
        for part in encoding.modules()
        if isinstance(part, Encoding)
    )


def leak_of(
    hidden: Callable[[Tensor], Tensor],
    tokens_BT: Tensor,
    vocab_size: int,
    tolerance: float,
    places: int = 0,
    seq_len: int | None = None,
    *,
    may_draw: bool = False,
) -> Leak | None:
    """What the states of `hidden`, [B, T, D], depend on besides each token and those before it; None if nothing.

    Exchanges the tokens from some place on in every window, except in one if there are several. places: how many places
    are tried, if more than there are windows. seq_len: L; an encoding may start again at its multiples. may_draw:
    whether random numbers are expected, as in training.
    """
    shift_BT = torch.randint(1, max(2, vocab_size), tokens_BT.shape, generator=torch.Generator().manual_seed(1))
    others_BT = (tokens_BT + shift_BT.to(tokens_BT.device)) % vocab_size
    first_BT, other_libraries = tokens_BT, other_generators()
    first_BTD, first_drawn = repeatable(hidden, first_BT)
    draws = drew(first_drawn, tokens_BT.device)
    unexpected = draws and not may_draw

    @cache
    def first_of_equal_draws() -> Tensor:
        return repeatable(hidden, first_BT)[0]

    def differ(tokens_BT: Tensor) -> Tensor:
        """Where the states differ, [B, T]; NaN does not count.

        If the tokens decide how many random numbers are drawn, or for which tokens, compares again with equal numbers.
        """
        nonlocal unexpected
        states_BTD, drawn = repeatable(hidden, tokens_BT)
        wrong_BT = (difference(states_BTD, first_BTD) > tolerance).any(dim=-1)
        as_many = torch.equal(drawn, first_drawn)
        unexpected |= not (as_many or may_draw)
        if not as_many or (draws and wrong_BT.any()):
            with nullcontext() if isinstance(_get_current_dispatch_mode(), EqualDraws) else EqualDraws():
                expected_BTD, states_BTD = first_of_equal_draws(), repeatable(hidden, tokens_BT)[0]
            wrong_BT = (difference(states_BTD, expected_BTD) > tolerance).any(dim=-1)
        return wrong_BT

    def depends_on_others(window: int) -> bool:
        """Whether this window depends on the others, or they depend on the first."""
        row_B1 = torch.arange(len(tokens_BT), device=tokens_BT.device)[:, None]
        of_others = differ(torch.where(row_B1 != window, others_BT, tokens_BT))[window]
        return bool(of_others.any() or differ(torch.where(row_B1 == 0, others_BT, tokens_BT))[1:].any())

    for later_BT in later(tokens_BT, places, seq_len):
        wrong_BT = differ(torch.where(later_BT, others_BT, tokens_BT)) & ~later_BT
        if wrong_BT.any():
            break
    window, place = wrong_BT.nonzero()[0].tolist() if wrong_BT.any() else (0, None)
    others = depends_on_others(window)
    if unexpected:
        return DRAWS_IN_EVALUATION
    if other_generators() != other_libraries:
        return UNSTEADY
    if place is None and not others:
        return None
    if differ(tokens_BT).any():
        return UNSTEADY
    return OTHER_WINDOWS if others else Leak(f"lets token {place} see tokens that come after it")


def leak_in(
    model: LanguageModel,
    plan: Plan | Setting,
    tokens_BT: Tensor,
    precision: str = "fp32",
    copies: bool = False,
    places: int = 0,
) -> Leak | None:
    """As `leak_of`, for a model in its present mode; None if rounding explains the differences.

    Later tokens change the rounding of sums over the window, as in a Fourier transform, so a small leak must also show
    in float64. In fewer bits than float32, it must exceed the effect of rounding the embedding differently, or
    NO_ROUNDING. copies: whether every call has its own copy of the model, so that nothing is kept between calls.
    """
    states = partial(_states, model, plan, precision, copies)
    if not isinstance(model, Model):
        tolerance = TOLERANCE_OF_OTHERS if precision == "fp32" else TOLERANCE_OF_OTHERS_IN_BF16
        return leak_of(lambda asked_BT: predictions(states(asked_BT)), tokens_BT, model.vocab_size, tolerance, places)
    search = partial(
        leak_of, tokens_BT=tokens_BT, vocab_size=model.vocab_size, places=places, seq_len=model.seq_len,
        may_draw=model.training,
    )  # fmt: skip
    leak = search(states, tolerance=TOLERANCE)
    if leak in (None, DRAWS_IN_EVALUATION):
        return leak
    if precision != "fp32":
        with _rounded_otherwise(model):
            otherwise_BTD, _ = repeatable(states, tokens_BT)
        rounding = float(difference(otherwise_BTD, repeatable(states, tokens_BT)[0]).max())
        return search(states, tolerance=min(max(TOLERANCE, TIMES * rounding), NO_ROUNDING))
    if large := search(states, tolerance=LARGE):
        return large
    exact = copy.deepcopy(model).double()
    if isinstance(plan, Setting):
        plan = replace(exact.setting(plan.plan), queries_per_chunk=plan.queries_per_chunk)
    try:
        states = partial(_states, exact, plan, precision, copies)
        found = search(states, tolerance=TOLERANCE)
    except RuntimeError as error:
        if "allocate" in str(error):  # out of memory
            raise
        return leak  # it only computes in float32
    return found and leak


def _states(model: LanguageModel, plan: Plan | Setting, precision: str, copies: bool, tokens_BT: Tensor) -> Tensor:
    called = copy_of(model) if copies and isinstance(model, Model) else model
    with torch.autocast(called.device.type, torch.bfloat16, enabled=precision == "bf16"):
        return called.hidden(tokens_BT, called.setting(plan) if isinstance(plan, Plan) else plan)


def states_of(model: LanguageModel, plan: Plan | Setting, tokens_BT: Tensor, precision: str = "fp32") -> Tensor:
    """The states, [B, T, D], with the same random numbers every time."""
    return repeatable(partial(_states, model, plan, precision, False), tokens_BT)[0]


def predictions(logits_BTV: Tensor) -> Tensor:
    """The log-probabilities, cut off below, so that a logit that masks a token does not make differences look small."""
    return logits_BTV.float().log_softmax(-1).clamp(min=LEAST_LOG)


def difference(states_BTD: Tensor, expected_BTD: Tensor) -> Tensor:
    """The difference of states, relative to the largest expected one."""
    return (states_BTD - expected_BTD).abs() / expected_BTD.nan_to_num(0.0, 0.0, 0.0).abs().max()


@contextmanager
def _rounded_otherwise(model: Model) -> Iterator[None]:
    """Inside it, the embedding has errors like those of rounding in float32."""

    def round_otherwise(_: object, inputs: object, x_BTD: Tensor) -> Tensor:
        noise_BTD = torch.randn(x_BTD.shape, generator=torch.Generator().manual_seed(0)).to(x_BTD.device)
        return x_BTD * (1 + ROUNDED * noise_BTD)

    handle = model.embedding.register_forward_hook(round_otherwise)
    try:
        yield
    finally:
        handle.remove()


def refuse(
    model: LanguageModel, leak: Leak, again: Callable[[], Leak | None], owner: object, length: int, case: str = ""
) -> NoReturn:
    """Raises a UserError that describes the leak and the hook at fault.

    again: looks for the leak again; None if it is gone. owner: begins the message. case: follows the length in it.
    """
    hook = culprit(model, lambda: again() is None) if isinstance(model, Model) else model.label()
    raise UserError(f"{owner}: {hook} {leak.what}, at {length} tokens{case}: {leak.advice}")


@torch.no_grad()
def check_in_both_modes(
    model: Model, plan: Plan, length: int, owner: object, precision: str = "fp32", text_BT: Tensor | None = None
) -> None:
    """Raises UserError if random windows of `length` tokens, or these of a text, show a leak in training or evaluation.

    Checks the model as it is, and a copy as at the end of a training.

    Training has gradients and this precision; evaluation has neither, and is in torch's inference mode. Both are
    checked with the encoding's parameters as they are, and with random ones; the latter at every place in evaluation,
    as far as OPERATIONS allow, and with all DRAWS if training draws random numbers. Every call has its own copy of the
    model; `remembers` checks what is kept between calls. owner: begins the message. The model is left in eval mode.
    """
    tokens_BT = random_windows(model.vocab_size, length).to(model.device)
    size = sum(parameter.numel() for parameter in model.blocks.parameters())
    every = places_within(size + model.config.layers * model.config.width * length, length)
    drawn = _with_random_parameters(model, plan, tokens_BT, owner)
    for asked, training in product((model, drawn), (True, False)):
        asked.train(training)
        case = " in training" if training else ""
        with _training_gradients() if training else torch.inference_mode():
            used = precision if training else "fp32"
            places = few_places(length) if training or asked is model else every
            few_BT = tokens_BT[:FEWEST]
            tries: list[tuple[AbstractContextManager[object], Tensor, int, str]]
            tries = [(nullcontext(), tokens_BT, places, used)]
            states = partial(_states, asked, plan, used, True)
            if training and asked is drawn and drew(repeatable(states, few_BT)[1], tokens_BT.device):
                tries += [(EqualDraws(value), few_BT, 0, used) for value in DRAWS]
            if text_BT is not None and asked is drawn:  # with lower precision, rounding can look like a leak
                tries += [(nullcontext(), text_BT, 0, "fp32")]
            for numbers, tried_BT, places, bits in tries:
                find = partial(leak_in, asked, plan, tried_BT, bits, copies=True, places=places)
                with numbers:
                    if leak := find():
                        refuse(asked, leak, find, owner, length, case)
            if not training:
                alone_BTD, beside_BTD = repeatable(states, tokens_BT[:1])[0], repeatable(states, tokens_BT)[0][:1]
                if (difference(alone_BTD, beside_BTD) > LARGE).any():
                    raise UserError(f"{owner}: the encoding gives one window alone other numbers, at {length} tokens")
            if remembers(asked, [(plan, few_BT)] if training else _other_calls(asked, plan, few_BT), used) is not None:
                raise UserError(f"{owner}: the encoding {REMEMBERS.what}, at {length} tokens{case}: {REMEMBERS.advice}")


@contextmanager
def _training_gradients() -> Iterator[None]:
    """Inside it, gradients are enabled as in training, without keeping tensors for a backward pass."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda kept: kept):
        yield


def remembers(model: LanguageModel, asked: Sequence[tuple[Plan, Tensor]], precision: str = "fp32") -> Tensor | None:
    """The first of these tokens, [B, T], whose states depend on earlier calls; None if there are none.

    Earlier calls have other tokens, first in whole windows, then in their second halves; and all of these plans and
    lengths. Before each, the longest is called again, in case a shorter one resets a table that grows with the length.
    Counting steps in training is allowed. A model of another library that cannot be copied is not checked.
    """
    own = isinstance(model, Model)
    tolerance = TOLERANCE if own else TOLERANCE_OF_OTHERS
    longest = max(asked, key=lambda call: call[1].shape[1], default=None)
    for half in (False, True):
        used = model.made_anew()
        if used is None:
            return None
        for plan, tokens_BT in asked:
            kept = tokens_BT.shape[1] // 2 if half else 0
            others_BT = torch.cat([tokens_BT[:, :kept], (tokens_BT[:, kept:] + 1) % model.vocab_size], dim=1)
            states_of(used, plan, others_BT, precision)
        for plan, tokens_BT in asked:
            fresh = model.made_anew()
            assert fresh is not None
            if isinstance(model, Model) and model.training:
                states_of(fresh, plan, tokens_BT, precision)
            if not half and longest is not None and longest[1].shape[1] > tokens_BT.shape[1]:
                states_of(used, *longest, precision)
            both = (states_of(one, plan, tokens_BT, precision) for one in (fresh, used))
            expected_BTD, found_BTD = both if own else map(predictions, both)
            if bool((difference(found_BTD, expected_BTD) > tolerance).any()):
                return tokens_BT
    return None


def _other_calls(model: Model, plan: Plan, tokens_BT: Tensor) -> list[tuple[Plan, Tensor]]:
    """Calls of an evaluation, the one of these tokens first, which must not affect each other."""
    calls = [(plan, tokens_BT)]
    longer = tokens_BT.shape[1] + model.seq_len
    if model.defined_at(longer, plan):
        calls.append((plan, torch.cat([tokens_BT, tokens_BT], dim=1)[:, :longer]))
    if all(POSITIONS in encoding.accepts for encoding in model.encodings):
        calls.append((replace(plan, position_scale=plan.position_scale / 2), tokens_BT))
    return calls


def _with_random_parameters(model: Model, plan: Plan, tokens_BT: Tensor, owner: object) -> Model:
    """A copy as at the end of a training, with random parameters, so that gates that start closed have an effect.

    Encodings' parameters are moved towards -1..1, beyond which powers of them would grow: as far as states stay finite.
    """
    for share in SHARES:
        drawn = _drawn(model, share, owner).eval()
        if repeatable(partial(_states, drawn, plan, "fp32", True), tokens_BT)[0].isfinite().all():
            return drawn
    raise UserError(
        f"{owner}: the encoding gives NaN or infinite numbers once its parameters move from where they start, as they "
        "do in training: keep them in a range with constrain()"
    )


def _drawn(model: Model, share: float, owner: object) -> Model:
    try:
        drawn = copy.deepcopy(model)
    except RuntimeError as error:
        raise not_copied(owner, error) from error
    own = {id(parameter) for encoding in drawn.encodings for parameter in encoding.parameters()}
    with same_random_numbers(model.device), torch.no_grad():
        for parameter in drawn.parameters():
            if not parameter.requires_grad:  # a constant, such as a mask
                continue
            if id(parameter) in own and not parameter.is_complex():
                parameter.lerp_(torch.empty_like(parameter).uniform_(-1, 1), share)
            elif parameter.ndim == 2:
                parameter.normal_(std=1.0 if parameter is drawn.embedding.weight else parameter.shape[1] ** -0.5)
        drawn.constrain()
        drawn.begin_step(1.0)
    return drawn


def culprit(model: Model, holds: Callable[[], bool]) -> str:
    """The hook that breaks a condition, in the words of a message; `the encoding` if it is not a single one."""
    for hook in _BLAMED:
        with _without(model, hook) as taken:
            try:
                better = taken and holds()
            except Exception:  # other hooks may depend on this one
                continue
        if better:
            reads = any(_overrides(encoding, "prepare") for encoding in model.encodings)
            return f"{hook}, or prepare," if hook in ("rotate", "scores", "mix") and reads else hook
    return "the encoding"


@contextmanager
def _without(model: Model, hook: str) -> Iterator[bool]:
    """Inside it, no layer overrides the hook; yields whether any did."""
    changed = [encoding for encoding in model.encodings if _overrides(encoding, hook)]
    for encoding in changed:
        encoding.__dict__[hook] = getattr(Encoding, hook).__get__(encoding)
    try:
        yield bool(changed)
    finally:
        for encoding in changed:
            del encoding.__dict__[hook]


def _overrides(encoding: Encoding, hook: str) -> bool:
    return getattr(type(encoding), hook) is not getattr(Encoding, hook)
