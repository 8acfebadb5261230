"""What is evaluated is the model that was trained: the saved weights have all of it.

Shapes: B windows, T tokens, D width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model import causality
from extrapolate.model.copies import copy_of, not_copied
from extrapolate.model.model import Model
from extrapolate.runs.weights import load_weights, unique_weights

TOLERANCE = 1e-3  # of the largest number: compiled training rounds otherwise


@torch.no_grad()
def check_reloaded(trained: Model, make: Callable[[], Model], plan: Plan, tokens_BT: Tensor, owner: object) -> None:
    """Raises UserError if a new model with the weights of a trained one computes other numbers in evaluation.

    make: builds a model with fresh weights. The trained one is asked as it is at the end of training, when all is done.
    Its mode and torch's random numbers stay as they were.
    """
    with causality.same_random_numbers(trained.device):
        torch.rand(1)  # numbers that are drawn anew must not come out the same by chance
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
    """The attribute of an encoding that is another in one model than in the other, as a message says it, or nothing."""
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
