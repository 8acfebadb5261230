"""Several runs that train at once: see `stacked` for how their models are computed as one."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from extrapolate import files
from extrapolate.data.store import Store
from extrapolate.machine.load import Load
from extrapolate.progress import Advance, unseen
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import WEIGHTS, Run
from extrapolate.training.causality import check_causality
from extrapolate.training.data import TrainingData
from extrapolate.training.loop import NotFinite, Report, Training, check_memory, open_run, remove_state
from extrapolate.training.stacked import Stacked
from extrapolate.training.stopping import Interrupted, stop_requests


@dataclass(frozen=True)
class Planned:
    """A run among several that are trained at once: see `train` for what it has."""

    config: TrainedConfig
    path: Path
    user_encoding: Path | None = None
    report: Report = lambda row: None


def train_many(
    planned: Sequence[Planned],
    store: Store,
    *,
    resume: bool = False,
    save_every: int | None = None,
    keep_every: int | None = None,
    progress: Advance = unseen,
) -> list[Run]:
    """Trains several runs at once, which differ in seeds and learning rates alone: one call computes all gradients.

    Each is what `train` makes, and is resumed alone or with others, wherever each of them stands. Arguments and errors
    are those of `train`. A run whose loss is no longer finite ends alone, and the error is raised when the others are
    done.
    """
    runs, living = [], []
    lost: list[NotFinite] = []
    check_memory(planned[0].config, len(planned))
    if new := [one for one in planned if not (one.path / WEIGHTS).is_file()]:
        check_causality(new[0].config, new[0].user_encoding, None)
    with ExitStack() as held:
        for one in planned:
            held.enter_context(files.locked(one.path))
            files.remove_partials(one.path)
            runs.append(open_run(one.config, store, one.path, resume, one.user_encoding))
            if runs[-1].finished:
                remove_state(one.path)
            else:
                living.append(Training(runs[-1], TrainingData(one.config.training, store), None, one.report, progress))
        for training in living:
            training.begin()
            held.enter_context(training.log)
        requests = held.enter_context(stop_requests())
        while living:
            stacked = Stacked([training.learner for training in living])
            before = len(living)
            while len(living) == before:
                began, load = time.perf_counter(), Load.now()
                losses = stacked.gradients([training.batch() for training in living])
                share_s = (time.perf_counter() - began) / len(living)  # what each adds to the time of all
                asked = list(requests)  # all stop after the same round
                for training, loss in zip(tuple(living), losses, strict=True):
                    training.requests = asked
                    try:
                        training.follow(training.take(loss, share_s, load), save_every, keep_every)
                    except Interrupted:
                        continue
                    except NotFinite as error:
                        lost.append(error)
                        living.remove(training)
                        continue
                    if training.done:
                        training.end()
                        living.remove(training)
                if asked and living:
                    raise Interrupted(
                        f"stopped, and the last step of each of {len(living)} runs is saved; the same command with "
                        "`resume=True` continues"
                    )
    if lost:
        raise NotFinite("; ".join(map(str, lost)))
    return runs
