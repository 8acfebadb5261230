"""Locks a run's folder for an evaluation, and keeps in it only rows of weights that are there."""

import contextlib
from collections.abc import Iterator, Sequence

from extrapolate import files
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.plans import users_files
from extrapolate.progress import Say
from extrapolate.results import kept
from extrapolate.runs.run import Run


@contextlib.contextmanager
def keeping_rows(run: AnyRun, extensions: Sequence[str], say: Say) -> Iterator[None]:
    """Locks a run's folder for an evaluation with extensions, and deletes the rows of weights that are gone.

    Raises InUse if another process writes there.
    """
    with files.locked(run.path):
        files.remove_partials(run.path)
        if isinstance(run, Run):
            run.keep_extensions(users_files(extensions))
        here = {one.sha256 for one in run.checkpoints("last")} | set(kept.weights_in(run.path) or ())
        if gone := kept.delete_of_other_weights(run.path, here):
            which = "weights that are" if gone == 1 else f"{gone} weights that are"
            say(f"{run.path}: deleted the results of {which} no longer in this folder")
        yield
