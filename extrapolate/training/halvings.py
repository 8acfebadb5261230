"""Models of a half and a quarter of a run's budget, kept to show whether its results still change.

The weights in the middle of a training have a high learning rate, so comparing them with the last ones would mix two
things. A branch therefore leaves the training shortly before the smaller budget is used up and lowers the learning rate
to its end. Its weights are kept, and the training continues from where the branch left it, as if there had been none.
"""

from dataclasses import dataclass

from extrapolate.model.size import parameter_count
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.training_config import TrainingConfig

HALVINGS = 1
DECAY = 0.2  # the share of a smaller budget over which its learning rate falls
FEWEST_STEPS = 100  # of the smallest budget: a shorter training shows nothing
MOST_PARAMETERS = 50_000_000  # of models whose halvings are kept by default: they cost 10 % of the training


@dataclass(frozen=True)
class Branch:
    """Steps `begin` to `end` of a training that ends early."""

    begin: int
    end: int


def branches(steps: int) -> list[Branch]:
    """The branches of a training of so many steps, the earliest first; none if it is too short."""
    ends = [steps // 2**n for n in range(HALVINGS, 0, -1)]
    return [Branch(end - round(DECAY * end), end) for end in ends] if ends[0] >= FEWEST_STEPS else []


def kept(config: TrainedConfig, wanted: bool | None) -> bool:
    """Whether a training keeps its halvings. By default, small models that start from fresh weights do.

    wanted: what the user says, if anything.
    """
    if wanted is None:
        wanted = config.origin is None and parameter_count(config.model) < MOST_PARAMETERS
    return wanted and bool(branches(config.training.steps))


def trained_tokens(training: TrainingConfig, halvings: bool) -> int:
    """The tokens of a training, with those of its branches."""
    steps = training.steps + (sum(one.end - one.begin for one in branches(training.steps)) if halvings else 0)
    return steps * training.batch_size * training.seq_len
