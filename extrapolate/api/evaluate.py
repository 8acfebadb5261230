"""xt.evaluate and xt.evaluate_probes"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files, results
from extrapolate.api.tokenize import store_with
from extrapolate.data.build import StoreSettings
from extrapolate.data.probes.base import Probe, parse_probes
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths
from extrapolate.evaluation import probes as probing
from extrapolate.evaluation.lengths import EvaluationSettings
from extrapolate.evaluation.names import DEFAULT_PROTOCOLS, PROBES_TABLE
from extrapolate.evaluation.plans import users_files
from extrapolate.evaluation.protocols.base import lengths_of
from extrapolate.folders import listed, unique_names
from extrapolate.interop import foreign
from extrapolate.interop.foreign import ForeignRun
from extrapolate.interop.imported import PREFIX, import_checkpoint
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.machine.devices import device_of
from extrapolate.machine.ranks import Ranks, check_devices, joined
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.find import find_runs
from extrapolate.runs.run import Run

Runs = str | Path | Run | ForeignRun | Iterable[str | Path | Run | ForeignRun]


@dataclass(frozen=True)
class Evaluated:
    """What one evaluation found: rows of losses and of probes, as `evals.parquet` and `eval_probes.parquet` have them.

    A run's name is as long as it takes to tell the runs apart.
    """

    rows: list[dict[str, Any]]
    probe_rows: list[dict[str, Any]]


def evaluate(
    runs: Runs,
    *,
    factors: Sequence[float] = (1, 2, 4, 8, 16),
    extend: str | Sequence[str] = (),
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    split: str = "test",
    max_targets: int | Mapping[str, int] | None = None,
    checkpoint: str = "last",
    precisions: Sequence[str] = ("fp32",),
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Evaluates runs at several lengths, and returns the rows: one a run, extension, protocol and factor.

    The rows are kept with each run too, in its evals.parquet and eval_documents.parquet; docs/results.md has the
    columns. Each row scores the same targets as its control, and as the other factors of its protocol.

    runs: runs, their folders, folders of them, `hf:NAME_OR_FOLDER`, or models of other libraries: what `foreign` gives,
    or `my_model.py:load`, a function that returns it. factors: evaluation lengths N as multiples of L.
    extend: extensions, such as `pi` or `yarn:factor=8 + log-n`; `all` that apply; `without-own`: without the one that
    belongs to the run; `as-trained`: nothing more, as is always evaluated.
    protocols: `windows`, `fixed-target`, `sliding`. split: `test` or `validation`. max_targets: the most scored tokens
    of a protocol; a number lowers the defaults, a mapping sets each. checkpoint: `last`, or `all` that were kept.
    precisions: `fp32`, `bf16`, `int8`. device: `cpu`, `cuda` or `auto`. data: the token store, where it is not where
    the run was trained. seq_len: L of `hf:` checkpoints, where it is not what their configuration says. trust_code:
    Python files that came with the runs may run, though you have not run them before: see docs/trust.md.

    Raises UserError where anything asked for cannot be evaluated, before any work is done.
    """
    cap, caps = (None, dict(max_targets)) if isinstance(max_targets, Mapping) else (max_targets, {})
    settings = replace(
        _settings(factors, extend, split, checkpoint, precisions),
        protocols=tuple(protocols),
        max_targets=cap,
        max_targets_of=caps,
    )
    return pd.DataFrame(
        evaluate_with(
            settings, runs, device=device, data=data, seq_len=seq_len, trust_code=trust_code, progress=progress
        ).rows
    )


def evaluate_probes(
    runs: Runs,
    probes: str | Sequence[Probe] = "all",
    *,
    trials: int = 64,
    factors: Sequence[float] = (1, 2, 4, 8, 16),
    extend: str | Sequence[str] = (),
    split: str = "test",
    checkpoint: str = "last",
    precisions: Sequence[str] = ("fp32",),
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Evaluates runs on probes, and returns the rows: one a run, extension, probe, factor and depth.

    The rows are kept with each run too, in its eval_probes.parquet. probes: `passkey,mqar:pairs=8`, or `all`. trials:
    windows of a probe at each length and depth. The rest is as for `evaluate`.
    """
    settings = replace(
        _settings(factors, extend, split, checkpoint, precisions),
        protocols=(),
        probes=parse_probes(probes) if isinstance(probes, str) else tuple(probes),
        probe_trials=trials,
    )
    found = evaluate_with(
        settings, runs, device=device, data=data, seq_len=seq_len, trust_code=trust_code, progress=progress
    )
    return pd.DataFrame(found.probe_rows)


def _settings(
    factors: Sequence[float], extend: str | Sequence[str], split: str, checkpoint: str, precisions: Sequence[str]
) -> EvaluationSettings:
    """What text and probes are both evaluated with."""
    return EvaluationSettings(
        factors=tuple(factors),
        extensions=(extend,) if isinstance(extend, str) else tuple(extend),
        split=split,
        checkpoint=checkpoint,
        precisions=tuple(precisions),
    )


def evaluate_with(
    settings: EvaluationSettings,
    runs: Runs,
    *,
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
    timed: bool = True,
) -> Evaluated:
    """What `evaluate` and `evaluate_probes` do, both at once: see there.

    timed: the rows have the speed of the evaluation; not where other work runs beside.
    """
    keep_freed_memory()
    with joined("what was evaluated before this setting is kept: run the same command again") as ranks:
        return _evaluate_together(
            ranks, settings, runs, device, data, seq_len, trust_code, progress if ranks.first else QUIET, timed
        )


def _evaluate_together(
    ranks: Ranks,
    settings: EvaluationSettings,
    runs: Runs,
    device: str,
    data: str | Path | Store | None,
    seq_len: int | None,
    trust_code: bool,
    progress: Progress,
    timed: bool,
) -> Evaluated:
    """All processes evaluate the same settings, and share the windows of each; the first writes."""
    where = device_of(device)
    check_devices(where)
    found = ranks.in_turn(lambda: _subjects(runs, seq_len, progress))
    for run in found if trust_code else []:
        if isinstance(run, Run):
            run.trust_code()
    work = ranks.in_turn(lambda: [(run, _store_of(run, data, settings, progress)) for run in found])
    for run, store in work:
        lengths.check(run, store, settings)
        probing.check(run, store, settings)
    users = users_files(settings.extensions)
    names = unique_names(run.path.resolve() for run in found)
    expected = sum(
        lengths.expected_inputs(run, store, settings) + probing.expected_inputs(run, store, settings)
        for run, store in work
    )
    evaluated = Evaluated([], [])
    done = 0.0
    with progress.display("tokens", stopped="stopped; what was evaluated before this setting is kept") as display:

        def advance(what: str, inputs: float) -> None:
            nonlocal done
            done += inputs
            display.update(what, done, expected)

        advance("evaluating", 0)
        for run, store in work:
            name = {"run": names[run.path.resolve()]}
            with ranks.in_first(partial(files.locked, run.path)):
                if ranks.first:
                    files.remove_partials(run.path)
                    if isinstance(run, Run):
                        run.keep_extensions(users)
                for rows, documents in lengths.evaluate(
                    run, store, settings, device=where, progress=advance, say=progress.say
                ):
                    rows = _as_timed(rows, timed)
                    if ranks.first:
                        results.merge(run.path / "eval_documents.parquet", documents, results.EVAL_DOCUMENTS, run.name)
                        results.merge(run.path / "evals.parquet", rows, results.EVALS, run.name)
                    evaluated.rows.extend(row | name for row in rows)
                for rows in probing.evaluate(run, store, settings, device=where, progress=advance, say=progress.say):
                    rows = _as_timed(rows, timed)
                    if ranks.first:
                        results.merge(run.path / PROBES_TABLE, rows, results.PROBES, run.name)
                    evaluated.probe_rows.extend(row | name for row in rows)
    ranks.wait()
    return evaluated


def _as_timed(rows: list[dict[str, Any]], timed: bool) -> list[dict[str, Any]]:
    return rows if timed else [row | {"tokens_per_s": None} for row in rows]


def _subjects(runs: Runs, seq_len: int | None, progress: Progress) -> list[Run | ForeignRun]:
    """What was named: the runs at and below folders, what checkpoints of Hugging Face became, others' models."""
    named = [runs] if isinstance(runs, str | Path | Run | ForeignRun) else list(runs)
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
            paths.append(_imported(str(one), seq_len, progress))
        elif file.endswith(".py") and not Path(one).exists():  # a folder of that name is a folder
            models.append(foreign.loaded(Path(file), function))
        else:
            paths.append(Path(one))
    return [*_finished(paths, progress), *models]


def _imported(name: str, seq_len: int | None, progress: Progress) -> Path:
    progress.say(f"reading {name}")
    run = import_checkpoint(name.removeprefix(PREFIX), seq_len)
    extension = f", {run.config.extension}" if run.config.extension else ""
    progress.say(f"{name} is {run.path}: training length {run.config.seq_len}{extension}")
    return run.path


def _finished(paths: list[Path], progress: Progress) -> list[Run]:
    """The runs at and below folders, without what holds no weights, unless that was named itself."""
    named = {path.resolve() for path in paths}
    found, others = find_runs(paths)
    if others:
        progress.say(f"left out, for they are not runs of extrapolate: {listed(others)}; evaluate them as hf:FOLDER")
    left_out = [run for run in found if not run.finished and run.path.resolve() not in named]
    if not left_out or len(left_out) == len(found):
        return found
    if foreigners := [run.path for run in left_out if run.foreign]:
        progress.say(f"left out, for another library runs their models: {listed(foreigners)}; evaluate the file")
    if unfinished := [run.path for run in left_out if not run.foreign]:
        progress.say(f"left out, for their training is not finished: {listed(unfinished)}")
    return [run for run in found if run not in left_out]


def _store_of(
    run: Run | ForeignRun, data: str | Path | Store | None, settings: EvaluationSettings, progress: Progress
) -> Store:
    """The store named, the one the run was trained on, or for an imported run data/<its name>, made on first use."""
    if data is not None:
        return data if isinstance(data, Store) else Store.open(Path(data))
    if isinstance(run.config, TrainedConfig):
        return Store.open(Path(run.config.data.path))
    default = Path("data") / run.name
    if default.exists():
        return Store.open(default)
    progress.say(
        f"no `data` is given: tokenising this Python's standard library into {default}, with the tokenizer of "
        f"{run.path}"
    )
    least = max(StoreSettings.min_heldout_tokens, max(lengths_of(settings.factors, run.config.seq_len)) + 1)
    tokenizer = str(run.path / "tokenizer.json")
    return store_with(StoreSettings(tokenizer=tokenizer, min_heldout_tokens=least), default, progress)
