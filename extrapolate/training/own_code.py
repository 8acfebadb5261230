"""Checks of a user's encoding or extension before a training, and of what the weights hold after it.

Shapes: B windows, T tokens.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.model.causality import check_causal, same_random_numbers
from extrapolate.model.model import Model, find, is_users
from extrapolate.model.whole import check_chunks
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import model_of
from extrapolate.runs.weights import load_weights, unique_weights

SMALL = {"vocab_size": 4096, "ff_width": 64}  # sizes that no encoding depends on
OTHER_SEED = 987_654_321  # so that what the constructor draws differs
TOLERANCE = 1e-3  # of the largest logit: compiled training rounds differently


def check_own_code(config: TrainedConfig, user_encoding: Path | None, extension: ExtensionStack | None) -> None:
    """Raises UserError if a user's encoding or extension is wrong in ways that would make losses wrong in silence.

    The package's own are not checked, since its tests do. Checks a model with the run's layers, widths of attention and
    window length, and a small vocabulary. Takes some seconds, and does not change torch's random state.
    """
    of_user = user_encoding is not None or is_users(find(config.encoding.name))
    if not of_user and (extension is None or not extension.files):
        return
    sizes = config.model.model_copy(update=SMALL)
    make = partial(model_of, config.model_copy(update={"model": sizes}), user_encoding)
    with same_random_numbers(torch.device(config.training.device)):
        model = make(drawn=True).to(config.training.device)
        plan = PLAIN if extension is None else extension.plan(model.encoding, model.seq_len, config.trained_length)
        owner: object = user_encoding or config.encoding.name
        check_causal(model, plan, config.training.seq_len, owner if of_user or extension is None else extension.text)
        if of_user:
            check_reloaded(model, make, owner)
            check_chunks(model, owner)


@torch.no_grad()
def check_reloaded(trained: Model, make: Callable[[], Model], owner: object) -> None:
    """Raises UserError if a new model with the weights of a trained one computes other numbers in evaluation.

    make: builds a model, which may lack weights. Compares it with a copy of the trained one after `begin_step(1.0)`.
    Neither the trained one nor torch's random state changes.
    """
    with same_random_numbers(trained.device, seed=OTHER_SEED):
        fresh = make().eval()
    load_weights(fresh, unique_weights(trained), "the model")
    fresh = fresh.to(trained.device)
    ended = trained.copied().eval()
    ended.begin_step(1.0)
    tokens_BT = torch.randint(trained.vocab_size, (2, trained.seq_len), generator=torch.Generator().manual_seed(1))
    ours_BTD, theirs_BTD = (model.hidden(tokens_BT.to(trained.device)) for model in (fresh, ended))
    if bool(((ours_BTD - theirs_BTD).abs() > TOLERANCE * theirs_BTD.abs().max()).any()):
        raise UserError(
            f"{owner}: a new instance of the encoding with the trained weights computes other numbers than the trained "
            f"one{unsaved(fresh, ended)}: keep what training changes or the constructor draws in a parameter or a "
            "buffer (register_buffer), and let a new instance have the values that begin_step(1.0) sets"
        )


def unsaved(model: Model, other: Model) -> str:
    """The part of a message that names an encoding's attribute that differs between the models; empty if none does."""
    usual = vars(nn.Module()).keys()
    for some, others in zip(model.encodings, other.encodings, strict=True):
        mine, theirs = (vars(one) | dict(one.named_buffers()) for one in (some, others))
        for name, value in theirs.items():
            own = mine.get(name)
            if isinstance(value, Tensor):
                differs = not (isinstance(own, Tensor) and torch.equal(own, value))
            else:
                differs = isinstance(value, int | float | list | tuple) and own != value
            if differs and name not in usual:
                return f", for self.{name} is not saved"
    return ""
