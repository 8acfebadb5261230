"""No token may depend on later ones: a check before and after each training, with the run's own settings."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions.recipe import Recipe
from extrapolate.model import causality
from extrapolate.model.hooks import move_from_constants
from extrapolate.model.model import Model
from extrapolate.model.places import FEWEST, random_windows, window_count
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import model_of
from extrapolate.training.reloading import check_reloaded

# Sizes that no encoding depends on. The vocabulary is larger than a batch, whose extremes would never change otherwise.
SMALL = {"vocab_size": 4096, "ff_width": 64}
_passed: set[tuple[object, ...]] = set()  # of this process, which may train many runs that differ in their seeds alone


def check_causality(config: TrainedConfig, user_encoding: Path | None, extension: Recipe | None) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, in training or in evaluation.

    The model that is checked has the run's encoding, layers and widths of attention, a small vocabulary, and windows as
    long as the run's. It takes a second or two, once per process, and leaves torch's random numbers as they were.
    """
    training = config.training
    sizes = config.model.model_copy(update=SMALL)
    decisive = (
        *(sizes.model_dump_json(), config.encoding.model_dump_json(), config.extension, config.extension_sha256),
        *(config.seq_len, config.trained_length, training.device, training.precision, training.micro_batch_size),
    )
    if decisive in _passed:
        return
    make = partial(model_of, config.model_copy(update={"model": sizes}), user_encoding)
    with causality.same_random_numbers(torch.device(training.device)):
        model = make()
        with torch.no_grad():
            move_from_constants(model.encodings)
        model.constrain()
        model.to(training.device)
        plan = PLAIN if extension is None else extension.plan(model.encoding, model.seq_len, config.trained_length)
        owner = user_encoding or config.encoding.name
        causality.check_in_both_modes(model, plan, training.seq_len, owner, training.precision)
        if training.micro_batch_size > window_count(training.seq_len):
            tokens_BT = random_windows(model.vocab_size, training.seq_len, training.micro_batch_size)
            _refuse_leaks(model.train(), plan, tokens_BT, training.precision, owner, " in a whole batch of training")
        few_BT = random_windows(model.vocab_size, training.seq_len)[:FEWEST].to(model.device)
        model.train().begin_step(0.5)
        causality.states_of(model, plan, few_BT, training.precision)
        check_reloaded(model, make, plan, few_BT, owner)
    _passed.add(decisive)


def check_trained(model: Model, make: Callable[[], Model], plan: Plan, config: TrainedConfig, owner: object) -> None:
    """Raises UserError if a trained model sees later tokens or other windows, such as from some step on.

    Also raises it if a new model with the trained weights computes other numbers. make: builds the model, with fresh
    weights.

    A few windows as long as the run's are tried: the check before the training is the thorough one. The model's mode is
    left as it was.
    """
    training = config.training
    tokens_BT = random_windows(model.vocab_size, training.seq_len)[:FEWEST].to(model.device)
    was = model.training
    try:
        for mode in (True, False):
            model.train(mode)
            used, case = (training.precision, "at the end of") if mode else ("fp32", "after")
            _refuse_leaks(model, plan, tokens_BT, used, owner, f" {case} the training")
    finally:
        model.train(was)
    check_reloaded(model, make, plan, tokens_BT, owner)


@torch.no_grad()
def _refuse_leaks(model: Model, plan: Plan, tokens_BT: Tensor, precision: str, owner: object, case: str) -> None:
    """Raises UserError if the model, in the mode that it is in, sees later tokens or other windows in these windows."""
    find = partial(causality.leak_in, model, plan, tokens_BT.to(model.device), precision, copies=True)
    if leak := find():
        causality.refuse(model, leak, find, owner, tokens_BT.shape[1], case)
