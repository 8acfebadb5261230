"""Checks exact resume: a training that is saved and resumed ends with the weights of an uninterrupted one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from extrapolate.contract.autocast import same
from extrapolate.contract.small_model import resolved_factor, tokens
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.model.model import Model
from extrapolate.runs.weights import load_weights, unique_weights
from extrapolate.training.causality import check_reloaded, unsaved

STEPS = 2  # before the state is saved, and after
RATE = 0.1
GENERATOR = "the random generator"


class _Trained:
    """Trains a model by plain gradient descent: an optimiser's state is not the encoding's, and its import is slow."""

    def __init__(self, model: Model) -> None:
        self.model = model.train()
        self.x_BT = tokens(model, resolved_factor(model, 1) + 1)
        self.step = 0

    def steps(self) -> None:
        for _ in range(STEPS):
            self.model.begin_step(self.step / (2 * STEPS))
            self.step += 1
            with torch.enable_grad():
                self.model.loss(self.x_BT[:, :-1], self.x_BT[:, 1:]).backward()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(RATE * parameter.grad)
            self.model.zero_grad()

    def saved(self) -> bytes:
        """What a run saves, without the optimiser."""
        weights = {name: tensor.contiguous() for name, tensor in unique_weights(self.model).items()}
        return save(weights | {GENERATOR: torch.get_rng_state()})

    def load(self, content: bytes) -> None:
        weights = load(content)
        torch.set_rng_state(weights.pop(GENERATOR))
        self.step = STEPS
        load_weights(self.model, weights, "the saved state")


def check_resume(make: Callable[[Mapping[str, Any]], Model], arguments: Mapping[str, Any], file: Path) -> None:
    """Raises UserError if a resume changes any bit of the weights, or a new model with them computes something else.

    make: makes a model with the given arguments of the encoding, which are `arguments` at first and all of them, as a
    run stores them, on resume.
    """
    once = _Trained(make(arguments))
    once.steps()
    state = once.saved()
    once.steps()
    torch.default_generator.manual_seed(1)  # so that unsaved random numbers differ
    again = _Trained(make(once.model.encoding.arguments()))
    again.load(state)
    again.steps()
    ours, theirs = (dict(trained.model.state_dict()) for trained in (again, once))
    if different := next((name for name in theirs if not same(ours[name], theirs[name])), None):
        raise UserError(
            f"{file}: a training that was saved and resumed ends with another {different} than one that was not"
            f"{unsaved(again.model, once.model)}: keep what changes or is drawn in a parameter or a buffer "
            "(register_buffer), and draw random numbers from torch"
        )
    check_reloaded(once.model, lambda: make(once.model.encoding.arguments()), PLAIN, once.x_BT, file)
