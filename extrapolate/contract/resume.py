"""Checks exact resume: a training that is saved and resumed ends with the model of an uninterrupted one."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from extrapolate.contract.small_model import resolved_factor, tokens
from extrapolate.errors import UserError
from extrapolate.model.model import Model
from extrapolate.runs.weights import load_weights, unique_weights
from extrapolate.training.own_code import check_reloaded, unsaved

STEPS = 2  # before the state is saved, and after
RATE = 0.1  # of gradient descent: an optimiser's state is not the encoding's


def check_resume(make: Callable[[Mapping[str, Any]], Model], arguments: Mapping[str, Any], file: Path) -> None:
    """Raises UserError if a resume changes any bit of the weights, or a new model with them computes something else.

    make: makes a model with the given arguments of the encoding, which are `arguments` at first and all of them, as a
    run stores them, on resume.
    """
    once = make(arguments)
    _train(once, 0)
    weights = {name: tensor.detach().clone() for name, tensor in unique_weights(once).items()}
    drawn = torch.get_rng_state()
    _train(once, STEPS)
    remake = partial(make, once.encoding.arguments())
    torch.default_generator.manual_seed(1)  # so that unsaved random numbers differ
    again = remake()
    load_weights(again, weights, "the saved state")
    torch.set_rng_state(drawn)
    _train(again, STEPS)
    ours, theirs = again.state_dict(), once.state_dict()
    if different := next((name for name in theirs if not torch.equal(ours[name], theirs[name])), None):
        raise UserError(
            f"{file}: a training that was saved and resumed ends with another {different} than one that was not"
            f"{unsaved(again, once)}: keep what changes or is drawn in a parameter or a buffer (register_buffer), and "
            "draw random numbers from torch"
        )
    check_reloaded(once, remake, file)


def _train(model: Model, first: int) -> None:
    x_BT = tokens(model.train(), resolved_factor(model, 1) + 1)
    for step in range(first, first + STEPS):
        model.begin_step(step / (2 * STEPS))
        with torch.enable_grad():
            model.loss(x_BT[:, :-1], x_BT[:, 1:]).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(RATE * parameter.grad)
        model.zero_grad()
