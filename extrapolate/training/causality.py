"""Checks before and after each training: no token depends on later ones, and the saved weights hold the whole model.

Shapes: B windows, T tokens, D width.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.recipe import Recipe
from extrapolate.model import causality
from extrapolate.model.copies import copy_of, not_copied
from extrapolate.model.draws import same_random_numbers
from extrapolate.model.hooks import move_from_constants
from extrapolate.model.model import Model
from extrapolate.model.places import FEWEST, random_windows, window_count
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import model_of
from extrapolate.runs.weights import load_weights, unique_weights

# Sizes that no encoding depends on. A vocabulary smaller than a batch would keep the batch's extremes the same.
SMALL = {"vocab_size": 4096, "ff_width": 64}
TOLERANCE = 1e-3  # of the largest number; compiled training rounds differently
_passed: set[tuple[object, ...]] = set()  # in this process, which may train many runs that differ only in their seeds


def check_causality(
    config: TrainedConfig, user_encoding: Path | None, extension: Recipe | None, text_BT: Tensor | None = None
) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, in training or in evaluation.

    Checks a model with the run's encoding, layers, widths of attention and window length, and a small vocabulary, as at
    the beginning, half-way and at the end of the training; a user's encoding also with windows of the run's text,
    [B, T], if there are any, and compiled, if the training is. Takes some seconds, once per process, and does not
    change torch's random state.
    """
    training = config.training
    sizes = config.model.model_copy(update=SMALL)
    decisive = (
        *(sizes.model_dump_json(), config.encoding.model_dump_json(), config.extension, config.extension_sha256),
        *(config.seq_len, config.trained_length, training.device, training.precision, training.micro_batch_size),
        *(training.compile, config.data.corpus_hash),
    )
    if decisive in _passed:
        return
    make = partial(model_of, config.model_copy(update={"model": sizes}), user_encoding)
    with same_random_numbers(torch.device(training.device)):
        model = make()
        with torch.no_grad():
            move_from_constants(model.encodings)
        model.constrain()
        model.to(training.device).begin_step(0.0)
        plan = PLAIN if extension is None else extension.plan(model.encoding, model.seq_len, config.trained_length)
        owner = user_encoding or config.encoding.name
        of_user = causality.may_leak(model)
        text_BT = None if text_BT is None or not of_user else (text_BT % model.vocab_size).to(model.device)
        causality.check_in_both_modes(model, plan, training.seq_len, owner, training.precision, text_BT)
        few_BT = random_windows(model.vocab_size, training.seq_len)[:FEWEST].to(model.device)
        model.train().begin_step(0.5)
        _refuse_leaks(model, plan, few_BT, training.precision, owner, " half-way through training")
        if training.micro_batch_size > window_count(training.seq_len):
            tokens_BT = random_windows(model.vocab_size, training.seq_len, training.micro_batch_size)
            _refuse_leaks(model, plan, tokens_BT, training.precision, owner, " in a whole batch of training")
        if training.compile and of_user:
            _check_compiled(model, plan, few_BT, owner)
        causality.states_of(model, plan, few_BT, training.precision)
        check_reloaded(model, make, plan, few_BT, owner)
    _passed.add(decisive)


def _check_compiled(model: Model, plan: Plan, tokens_BT: Tensor, owner: object) -> None:
    """Raises UserError if compiled code sees later tokens: an encoding can do other things there.

    Compiles for torch's own operators, which takes a fraction of the time of compiling for the processor.
    """
    setting = model.setting(plan)
    hidden = torch.compile(model.hidden, backend="eager")
    leak = causality.leak_of(
        lambda asked_BT: hidden(asked_BT, setting), tokens_BT, model.vocab_size, causality.LARGE, may_draw=True
    )
    if leak is not None:
        raise UserError(
            f"{owner}: the encoding {leak.what}, at {tokens_BT.shape[1]} tokens in compiled code: {leak.advice}"
        )


def check_trained(
    model: Model,
    make: Callable[[], Model],
    plan: Plan,
    config: TrainedConfig,
    owner: object,
    text_BT: Tensor | None = None,
) -> None:
    """Raises UserError if a trained model sees later tokens or other windows, for example since some step.

    Also raises it if a new model with the trained weights computes other numbers. make: builds the model, with fresh
    weights. Tries only a few random windows as long as the run's, and for a user's encoding those of a text, [B, T]:
    the check before training is the thorough one.
    """
    training = config.training
    tokens_BT = random_windows(model.vocab_size, training.seq_len)[:FEWEST].to(model.device)
    tried: list[tuple[Tensor, str | None]] = [(tokens_BT, None)]
    if text_BT is not None and causality.may_leak(model):
        tried.append((text_BT, "fp32"))  # with lower precision, rounding can look like a leak
    was = model.training
    try:
        for mode in (True, False):
            model.train(mode)
            used, case = (training.precision, "at the end of") if mode else ("fp32", "after")
            for windows_BT, bits in tried:
                _refuse_leaks(model, plan, windows_BT, bits or used, owner, f" {case} the training")
    finally:
        model.train(was)
    check_reloaded(model, make, plan, tokens_BT, owner)


def _refuse_leaks(model: Model, plan: Plan, tokens_BT: Tensor, precision: str, owner: object, case: str) -> None:
    """Raises UserError if the model, in its present mode, sees later tokens or other windows."""
    find = partial(causality.leak_in, model, plan, tokens_BT.to(model.device), precision, copies=True)
    with torch.no_grad() if model.training else torch.inference_mode():  # as validation
        if leak := find():
            causality.refuse(model, leak, find, owner, tokens_BT.shape[1], case)


@torch.no_grad()
def check_reloaded(trained: Model, make: Callable[[], Model], plan: Plan, tokens_BT: Tensor, owner: object) -> None:
    """Raises UserError if a new model with the weights of a trained one computes other numbers in evaluation.

    make: builds a model with fresh weights. Compares it with the trained one after `begin_step(1.0)`. Neither the mode
    of the trained one nor torch's random state changes.
    """
    with same_random_numbers(trained.device):
        torch.rand(1)  # so that numbers drawn in the constructor differ
        fresh = make().to(trained.device).eval()
        load_weights(fresh, unique_weights(trained), "the model")
    was = trained.training
    try:
        try:
            ended = copy_of(trained.eval())
        except RuntimeError as error:
            raise not_copied(owner, error) from error
        ended.begin_step(1.0)
        ours_BTD, theirs_BTD = (causality.states_of(model, plan, tokens_BT) for model in (fresh, ended))
    finally:
        trained.train(was)
    if bool((causality.difference(ours_BTD, theirs_BTD) > TOLERANCE).any()):
        raise UserError(
            f"{owner}: a new instance of the encoding with the trained weights computes other numbers than the trained "
            f"one{unsaved(fresh, ended)}: keep what training changes or the constructor draws in a parameter or a "
            "buffer (register_buffer), and let a new instance have the values that begin_step(1.0) sets"
        )


def unsaved(model: Model, other: Model) -> str:
    """The part of a message that names an encoding's attribute that differs between the models; empty if none does."""
    for some, others in zip(model.encodings, other.encodings, strict=True):
        usual = vars(nn.Module()).keys()
        kept = {name: value for name, value in vars(others).items() if name not in usual}
        kept |= dict(others.named_buffers())
        mine = vars(some) | dict(some.named_buffers())
        for name, value in kept.items():
            own = mine.get(name)
            if isinstance(value, Tensor):
                saved = isinstance(own, Tensor) and torch.equal(own, value)
            else:
                saved = own == value or not isinstance(value, int | float | list | tuple)
            if not saved:
                return f", for self.{name} is not saved"
    return ""
