"""A model of half of a run's budget, kept to show whether its results still change.

The weights in the middle of a training have a high learning rate, so comparing them with the last ones would mix two
things. A branch therefore leaves the training shortly before half of the budget is used up and lowers the learning rate
to its end. Its weights are kept, and the training continues from where the branch left it, as if there had been none.
"""

from dataclasses import dataclass

from extrapolate.model.size import parameter_count
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.training_config import TrainingConfig

DECAY = 0.2  # the share of half the budget over which its learning rate falls
FEWEST_STEPS = 200  # of the whole: a shorter training shows nothing
MOST_PARAMETERS = 50_000_000  # of models that keep it by default: it costs 10 % of the training


@dataclass(frozen=True)
class Branch:
    """Steps `begin` to `end` of a training that ends early."""

    begin: int
    end: int


def branch_of(steps: int) -> Branch | None:
    """The branch of a training with this number of steps; None if it is too short."""
    end = steps // 2
    return Branch(end - round(DECAY * end), end) if steps >= FEWEST_STEPS else None


def kept(config: TrainedConfig, wanted: bool | None) -> bool:
    """Whether a training keeps a model of half its budget. By default, small models that start from fresh weights do.

    wanted: what the user says, if anything.
    """
    if wanted is None:
        wanted = config.origin is None and parameter_count(config.model) < MOST_PARAMETERS
    return wanted and branch_of(config.training.steps) is not None


def trained_tokens(training: TrainingConfig, half: bool) -> int:
    """The tokens of a training, with those of its branch."""
    branch = branch_of(training.steps) if half else None
    steps = training.steps + (branch.end - branch.begin if branch else 0)
    return steps * training.batch_size * training.seq_len
