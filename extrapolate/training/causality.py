"""What is trained looks at no later token: asked before each training, of the run's own encoding and settings."""

from pathlib import Path

import torch

from extrapolate.encodings.plan import PLAIN
from extrapolate.extensions.recipe import Recipe
from extrapolate.model import causality
from extrapolate.model.hooks import move_from_constants
from extrapolate.model.model import Model
from extrapolate.runs.config import TrainedConfig

# What no encoding knows of. So many words that a window and a batch lack most: else their extremes never change.
SMALL = {"vocab_size": 4096, "ff_width": 64}
_passed: set[tuple[object, ...]] = set()  # of this process, which may train many runs that differ in their seeds alone


def check_causality(config: TrainedConfig, user_encoding: Path | None, extension: Recipe | None) -> None:
    """Raises UserError if a token depends on later ones, or on other windows, in training or in evaluation.

    The model that is asked has the run's encoding, layers and widths of attention, a small vocabulary, and windows as
    long as the run's: a second or two, once in a process. torch's random numbers are left as they were.
    """
    training, name = config.training, config.encoding.name
    sizes = config.model.model_copy(update=SMALL)
    decisive = (
        *(sizes.model_dump_json(), config.encoding.model_dump_json(), config.extension, config.extension_sha256),
        *(config.seq_len, config.trained_length, training.device, training.precision),
    )
    if decisive in _passed:
        return
    if user_encoding is not None:
        name = f"{user_encoding}:{name.rpartition(':')[2]}"
    with causality.same_random_numbers(torch.device(training.device)):
        model = Model(sizes, name, config.encoding.arguments, config.seq_len)
        with torch.no_grad():
            move_from_constants(model.encodings)
        model.constrain()
        model.to(training.device)
        plan = PLAIN if extension is None else extension.plan(model.encoding, model.seq_len, config.trained_length)
        owner = user_encoding or config.encoding.name
        causality.check_in_both_modes(model, plan, training.seq_len, owner, training.precision)
    _passed.add(decisive)
