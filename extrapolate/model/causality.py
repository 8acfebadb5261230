"""What a model makes of a token may depend on that token and those before it, and on nothing else.

Of any model this is asked by values: tokens are exchanged, and what lies before them must stay as it was. A factor that
is still too small to change a number may grow in training, so the parameters are asked with other values, too.

Shapes: B windows, T tokens, D what enters the head.
"""

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from extrapolate.encodings.base import POSITIONS, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model.attention import Setting
from extrapolate.model.copies import copy_of, made_anew, not_copied
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model
from extrapolate.model.places import FEWEST, few_places, later, places_within, random_windows

# Of the largest number. In ours, products of the same sizes are rounded alike; what another library does is not known.
TOLERANCE, TOLERANCE_OF_OTHERS, TOLERANCE_OF_OTHERS_IN_BF16 = 1e-5, 1e-3, 2e-2
LARGE = 1e-3  # no rounding in float32, whatever float64 shows
# What every random number is in turn, so that both sides of a branch that is rarely taken are asked.
DRAWS = (0.001, 0.999)
# How far an encoding's parameters are moved to random ones: the first that gives finite numbers.
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)
# What float32 rounds, of the embedding, and how many times its effect counts as rounding in fewer bits.
ROUNDED, TIMES = 1e-6, 4
# In the order of the tensors, but for `bias`, whose absence says the least.
_BLAMED = ("embed", "attention_input", "rotate", "scores", "bias", "weights", "mix", "positions")


@dataclass(frozen=True)
class Leak:
    """What else a token depends on: a text that follows the hook at fault, and what to do about it."""

    what: str
    advice: str = "what is computed for a token may depend only on that token and those before it"


OTHER_WINDOWS = Leak("makes a window depend on the windows beside it in a batch")
REMEMBERS = Leak(
    "gives other numbers after other tokens, lengths or positions than at first",
    "keep nothing of a call for the next one",
)
UNSTEADY = Leak("gives other numbers when it is asked for the same tokens again", "draw random numbers from torch")


def leak_of(
    hidden: Callable[[Tensor], Tensor],
    tokens_BT: Tensor,
    vocab_size: int,
    tolerance: float,
    places: int = 0,
    seq_len: int | None = None,
) -> Leak | None:
    """What the states that `hidden` gives, [B, T, D], depend on besides each token and those before it, by values.

    In each window the tokens from some place on are exchanged, in one (of two or more) none. places: how many are tried
    in turn, if more than there are windows. seq_len: L, at whose multiples an encoding may begin anew.
    """
    shift_BT = torch.randint(1, max(2, vocab_size), tokens_BT.shape, generator=torch.Generator().manual_seed(1))
    others_BT = (tokens_BT + shift_BT.to(tokens_BT.device)) % vocab_size
    first_BT, other_libraries = tokens_BT, _other_generators()
    first_BTD, first_drawn = _repeatable(hidden, first_BT)
    draws = _draws(first_drawn, tokens_BT.device)

    @cache
    def first_of_equal_draws() -> Tensor:
        return _repeatable(hidden, first_BT)[0]

    def differ(tokens_BT: Tensor) -> Tensor:
        """Where the states are others, [B, T]; nothing is known of what is no number.

        If tokens decide how many random numbers are drawn, or for which tokens, both are asked again with equal ones.
        """
        states_BTD, drawn = _repeatable(hidden, tokens_BT)
        wrong_BT = (difference(states_BTD, first_BTD) > tolerance).any(dim=-1)
        if not torch.equal(drawn, first_drawn) or (draws and wrong_BT.any()):
            with nullcontext() if isinstance(_get_current_dispatch_mode(), _EqualDraws) else _EqualDraws():
                expected_BTD, states_BTD = first_of_equal_draws(), _repeatable(hidden, tokens_BT)[0]
            wrong_BT = (difference(states_BTD, expected_BTD) > tolerance).any(dim=-1)
        return wrong_BT

    def depends_on_others(window: int) -> bool:
        """Whether this window depends on all others, or these on the first."""
        row_B1 = torch.arange(len(tokens_BT), device=tokens_BT.device)[:, None]
        of_others = differ(torch.where(row_B1 != window, others_BT, tokens_BT))[window]
        return bool(of_others.any() or differ(torch.where(row_B1 == 0, others_BT, tokens_BT))[1:].any())

    for later_BT in later(tokens_BT, places, seq_len):
        wrong_BT = differ(torch.where(later_BT, others_BT, tokens_BT)) & ~later_BT
        if wrong_BT.any():
            break
    window, place = wrong_BT.nonzero()[0].tolist() if wrong_BT.any() else (0, None)
    others = depends_on_others(window)
    if _other_generators() != other_libraries:
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
    """As `leak_of`, of a model in the mode that it is in; None if rounding explains what differs.

    A sum over the window, as in a Fourier transform, is rounded by what is in it. In float64 it would show no leak. In
    fewer bits than float32, what differs is compared with what another rounding of the embedding changes.
    copies: every call has a copy of the model, so that none sees what another kept.
    """
    states = partial(_states, model, plan, precision, copies)
    if not isinstance(model, Model):
        tolerance = TOLERANCE_OF_OTHERS if precision == "fp32" else TOLERANCE_OF_OTHERS_IN_BF16
        return leak_of(states, tokens_BT, model.vocab_size, tolerance, places)
    leak = leak_of(states, tokens_BT, model.vocab_size, TOLERANCE, places, model.seq_len)
    if leak is None:
        return None
    if precision != "fp32":
        with _rounded_otherwise(model):
            otherwise_BTD, _ = _repeatable(states, tokens_BT)
        rounding = float(difference(otherwise_BTD, _repeatable(states, tokens_BT)[0]).max())
        return leak_of(states, tokens_BT, model.vocab_size, max(TOLERANCE, TIMES * rounding), places, model.seq_len)
    if large := leak_of(states, tokens_BT, model.vocab_size, LARGE, places, model.seq_len):
        return large
    exact = copy.deepcopy(model).double()
    if isinstance(plan, Setting):
        plan = replace(exact.setting(plan.plan), queries_per_chunk=plan.queries_per_chunk)
    try:
        states = partial(_states, exact, plan, precision, copies)
        found = leak_of(states, tokens_BT, model.vocab_size, TOLERANCE, places, model.seq_len)
    except RuntimeError as error:
        if "allocate" in str(error):  # memory does not suffice
            raise
        return leak  # it computes in float32 alone
    return found and leak


def _states(model: LanguageModel, plan: Plan | Setting, precision: str, copies: bool, tokens_BT: Tensor) -> Tensor:
    asked = copy_of(model) if copies and isinstance(model, Model) else model
    with torch.autocast(asked.device.type, torch.bfloat16, enabled=precision == "bf16"):
        return asked.hidden(tokens_BT, asked.setting(plan) if isinstance(plan, Plan) else plan)


def states_of(model: LanguageModel, plan: Plan | Setting, tokens_BT: Tensor, precision: str = "fp32") -> Tensor:
    """The states, [B, T, D], with the same random numbers every time."""
    return _repeatable(partial(_states, model, plan, precision, False), tokens_BT)[0]


def difference(states_BTD: Tensor, expected_BTD: Tensor) -> Tensor:
    """By how much states differ from those that are expected, as a part of the largest of these."""
    return (states_BTD - expected_BTD).abs() / expected_BTD.nan_to_num(0.0, 0.0, 0.0).abs().max()


@contextmanager
def _rounded_otherwise(model: Model) -> Iterator[None]:
    """Within it, the embedding gives what it gives if float32 rounds otherwise."""

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
    """Raises the UserError that says what is wrong with a model, and which hook is at fault.

    again: finds the leak, or None if it is gone. owner: what the message begins with; case: follows the length in it.
    """
    hook = culprit(model, lambda: again() is None) if isinstance(model, Model) else model.label()
    raise UserError(f"{owner}: {hook} {leak.what}, at {length} tokens{case}: {leak.advice}")


@torch.no_grad()
def check_in_both_modes(model: Model, plan: Plan, length: int, owner: object, precision: str = "fp32") -> None:
    """Raises UserError if random windows of `length` tokens show a leak, in training or evaluation.

    Training has gradients and this precision; evaluation has neither. Both are asked with the encoding's parameters as
    they are, and with random ones; evaluation with these at every place, as far as OPERATIONS allow. If random numbers
    are drawn in training, low and high ones are tried too. Every call has a copy of the model, so that none sees what
    another kept; one more call asks for that. owner: what the message begins with. The model is left in eval mode.
    """
    tokens_BT = random_windows(model.vocab_size, length).to(model.device)
    size = sum(parameter.numel() for parameter in model.blocks.parameters())
    every = places_within(size + model.config.layers * model.config.width * length, length)
    drawn = _with_random_parameters(model, plan, tokens_BT, owner)
    for asked, training in product((model, drawn), (True, False)):
        asked.train(training)
        case = " in training" if training else ""
        with _training_gradients() if training else nullcontext():
            used = precision if training else "fp32"
            places = few_places(length) if training or asked is model else every
            tries: list[tuple[AbstractContextManager[object], int]] = [(nullcontext(), places)]
            states = partial(_states, asked, plan, used, True)
            if training and _draws(_repeatable(states, tokens_BT[:FEWEST])[1], tokens_BT.device):
                tries += [(_EqualDraws(value), 0) for value in DRAWS]
            for numbers, places in tries:
                find = partial(leak_in, asked, plan, tokens_BT, used, copies=True, places=places)
                with numbers:
                    if leak := find():
                        refuse(asked, leak, find, owner, length, case)
            if not training and _differs_alone(states, tokens_BT):
                raise UserError(f"{owner}: the encoding gives one window alone other numbers, at {length} tokens")
            few_BT = tokens_BT[:FEWEST]
            if remembers(asked, [(plan, few_BT)] if training else _other_calls(asked, plan, few_BT), used) is not None:
                raise UserError(f"{owner}: the encoding {REMEMBERS.what}, at {length} tokens{case}: {REMEMBERS.advice}")


@contextmanager
def _training_gradients() -> Iterator[None]:
    """Within it, gradients are enabled as in training; what only a backward pass would read is not kept."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda kept: kept):
        yield


def _differs_alone(hidden: Callable[[Tensor], Tensor], tokens_BT: Tensor) -> bool:
    """Whether a window alone has other states than in a batch."""
    alone_BTD, beside_BTD = _repeatable(hidden, tokens_BT[:1])[0], _repeatable(hidden, tokens_BT)[0][:1]
    return bool((difference(alone_BTD, beside_BTD) > LARGE).any())


def remembers(model: Model, asked: Sequence[tuple[Plan, Tensor]], precision: str = "fp32") -> Tensor | None:
    """The first of these tokens, [B, T], whose states depend on earlier calls; None if none do.

    Earlier calls have other tokens, and all of these plans and lengths. In training, steps may be counted.
    """
    used = made_anew(model)
    for plan, tokens_BT in asked:
        states_of(used, plan, (tokens_BT + 1) % model.vocab_size, precision)
    for plan, tokens_BT in asked:
        fresh = made_anew(model)
        if model.training:
            states_of(fresh, plan, tokens_BT, precision)
        expected_BTD, found_BTD = (states_of(one, plan, tokens_BT, precision) for one in (fresh, used))
        if bool((difference(found_BTD, expected_BTD) > TOLERANCE).any()):
            return tokens_BT
    return None


def _other_calls(model: Model, plan: Plan, tokens_BT: Tensor) -> list[tuple[Plan, Tensor]]:
    """Calls of an evaluation after which the one of these tokens must give the same: it comes first."""
    calls = [(plan, tokens_BT)]
    longer = tokens_BT.shape[1] + model.seq_len
    if model.defined_at(longer, plan):
        calls.append((plan, torch.cat([tokens_BT, tokens_BT], dim=1)[:, :longer]))
    if all(POSITIONS in encoding.accepts for encoding in model.encodings):
        calls.append((replace(plan, position_scale=plan.position_scale / 2), tokens_BT))
    return calls


def _with_random_parameters(model: Model, plan: Plan, tokens_BT: Tensor, owner: object) -> Model:
    """A copy that opens what starts closed, at the end of a training, with effects that are large enough.

    Encodings' parameters are in -1..1: what decays with a power of one would grow beyond. If that gives NaN, of which
    nothing could be said, or infinite numbers, they stay nearer to where they start.
    """
    for share in SHARES:
        drawn = _drawn(model, share, owner).eval()
        if _repeatable(partial(_states, drawn, plan, "fp32", True), tokens_BT)[0].isfinite().all():
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
        for encoding in drawn.encodings:  # the model itself is asked at the beginning of a training
            encoding.begin_step(1.0)
    return drawn


def _repeatable(hidden: Callable[[Tensor], Tensor], tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The states, with the same random numbers every time, and the generators after them; torch's is left as it was."""
    with same_random_numbers(tokens_BT.device):
        states_BTD = hidden(tokens_BT).detach().float()
        on_device = [torch.cuda.get_rng_state(tokens_BT.device)] if tokens_BT.is_cuda else []
        return states_BTD, torch.cat([torch.get_rng_state(), *on_device])


def _draws(drawn: Tensor, device: torch.device) -> bool:
    """Whether random numbers were drawn, by the generators after them; on a GPU, whether any may have been."""
    with same_random_numbers(device):
        before = torch.get_rng_state()
    return not torch.equal(drawn[: len(before)], before) or device.type == "cuda"


def _other_generators() -> tuple[object, ...]:
    """What Python's and NumPy's generators have drawn so far: a resumed training would not repeat that."""
    of_numpy = np.random.get_state(legacy=False)["state"]
    return random.getstate(), of_numpy["key"].tobytes(), of_numpy["pos"]


class _EqualDraws(TorchDispatchMode):
    """Within it, all random floating-point numbers are equal: it does not matter how many are drawn."""

    def __init__(self, value: float = 0.5) -> None:
        super().__init__()
        self.value = value

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and isinstance(found, Tensor) and found.is_floating_point():
            found.fill_(self.value)
        return found


@contextmanager
def same_random_numbers(device: torch.device) -> Iterator[None]:
    """Within it, torch draws the same numbers every time, on the CPU and on a device; then goes on as it would have."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":  # torch.manual_seed keeps the stack for every other device: that takes a millisecond
            torch.default_generator.manual_seed(0)
        else:
            torch.manual_seed(0)
        yield


def culprit(model: Model, holds: Callable[[], bool]) -> str:
    """The hook without which something holds, as a message says it; `the encoding` where it is no single one."""
    for hook in _BLAMED:
        with _without(model, hook) as taken:
            try:
                better = taken and holds()
            except Exception:  # the other hooks may need what this one gives them
                continue
        if better:
            reads = any(_overrides(encoding, "prepare") for encoding in model.encodings)
            return f"{hook}, or prepare," if hook in ("rotate", "scores", "mix") and reads else hook
    return "the encoding"


@contextmanager
def _without(model: Model, hook: str) -> Iterator[bool]:
    """Every layer has the hook that does nothing; whether that is another one than it had."""
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
