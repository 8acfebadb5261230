"""The runs that `xt.evaluate` is given, opened, and the text of each."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from extrapolate.api.tokenize import store_with
from extrapolate.data.build import StoreSettings
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import lengths_of
from extrapolate.folders import listed
from extrapolate.interop import foreign
from extrapolate.interop.foreign import ForeignRun
from extrapolate.interop.imported import PREFIX, import_checkpoint
from extrapolate.progress import Progress
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import Run, find_runs
from extrapolate.specs.arguments import several

Runs = str | Path | Run | ForeignRun | Iterable[str | Path | Run | ForeignRun]


def subjects(
    runs: Runs, seq_len: int | None, progress: Progress
) -> tuple[list[Run | ForeignRun], dict[Path, UserError]]:
    """What was named: the runs at and below folders, what checkpoints of Hugging Face became, others' models; and what
    is wrong with those that cannot be opened."""
    named = several("runs", runs, ((str, Path, Run, ForeignRun), "a run or a folder"))
    if not named:
        raise UserError("name at least one run, or a folder of runs")
    if seq_len is not None and not any(str(one).startswith(PREFIX) for one in named):
        raise UserError("`seq_len` is for hf: checkpoints: a run has the training length that it was trained at")
    models: list[ForeignRun] = []
    paths: list[Path] = []
    for one in named:
        file, _, function = str(one).rpartition(":")
        if isinstance(one, ForeignRun):
            models.append(one)
        elif isinstance(one, Run):
            paths.append(one.path)
        elif str(one).startswith(PREFIX):
            paths.append(imported(str(one), seq_len, progress))
        elif file.endswith(".py") and not Path(one).exists():  # a folder of that name is a folder
            models.append(foreign.loaded(Path(file), function))
        else:
            paths.append(Path(one))
    found, damaged = _finished(paths, progress)
    return [*found, *models], damaged


def imported(name: str, seq_len: int | None, progress: Progress) -> Path:
    """The run that a checkpoint of Hugging Face became, `hf:NAME_OR_FOLDER`. Raises UserError if it cannot."""
    progress.say(f"reading {name}")
    run = import_checkpoint(name.removeprefix(PREFIX), seq_len)
    extension = f", {run.config.extension}" if run.config.extension else ""
    progress.say(f"{name} is {run.path}: training length {run.config.seq_len}{extension}")
    return run.path


def _finished(paths: list[Path], progress: Progress) -> tuple[list[Run], dict[Path, UserError]]:
    """The runs at and below folders, without what holds no weights, unless that was named itself."""
    named = {path.resolve() for path in paths}
    found, others, unsearched, damaged = find_runs(paths)
    for what in unsearched:
        progress.say(what)
    if others:
        progress.say(f"left out, for they are not runs of extrapolate: {listed(others)}; evaluate them as hf:FOLDER")
    left_out = [run for run in found if not run.finished and run.path.resolve() not in named]
    if not left_out or len(left_out) == len(found):
        return found, damaged
    if foreigners := [run.path for run in left_out if run.foreign]:
        progress.say(f"left out, for another library runs their models: {listed(foreigners)}; evaluate the file")
    if unfinished := [run.path for run in left_out if not run.foreign]:
        progress.say(f"left out, for their training is not finished: {listed(unfinished)}")
    return [run for run in found if run not in left_out], damaged


def store_of(run: Run | ForeignRun, factors: Sequence[float], progress: Progress) -> Store:
    """The store that a run was trained on, or for an imported run data/<its name>, made on first use.

    Raises UserError if that store has other text now.
    """
    if isinstance(run.config, TrainedConfig):
        data = run.config.data
        store = Store.open(Path(data.path))
        if store.corpus_hash != data.corpus_hash:
            raise UserError(
                f"{run.path} was trained on corpus {data.corpus_hash}, and {data.path} is {store.corpus_hash} now; "
                "name the token store that it is to be evaluated on with `data`"
            )
        return store
    default = Path("data") / run.name
    if default.exists():
        return Store.open(default)
    progress.say(
        f"no `data` is given: tokenising this Python's standard library into {default}, with the tokenizer of "
        f"{run.path}"
    )
    least = max(StoreSettings.min_heldout_tokens, max(lengths_of(factors, run.config.seq_len)) + 1)
    tokenizer = str(run.path / "tokenizer.json")
    return store_with(StoreSettings(tokenizer=tokenizer, min_heldout_tokens=least), default, progress)


def say_other_text(evaluated: Iterable[tuple[Run | ForeignRun, Store]], progress: Progress) -> None:
    """Says which runs are evaluated on other text than they were trained on."""
    others = [
        (run.path, store.path)
        for run, store in evaluated
        if isinstance(run.config, TrainedConfig) and store.corpus_hash != run.config.data.corpus_hash
    ]
    if others:
        progress.say(
            f"{others[0][1]} is not the text that {listed([run for run, _ in others])} learned from: nothing checks "
            "that none of its held-out documents is in both"
        )
