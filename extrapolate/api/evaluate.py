"""xt.evaluate and xt.evaluate_probes"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from extrapolate.api.applying import table
from extrapolate.api.arguments import NUMBER, TEXT, WHOLE, check, several
from extrapolate.api.evaluate_together import Evaluated, Together
from extrapolate.api.evaluated_runs import Runs
from extrapolate.data.probes.base import Probe, parse_probes
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation.lengths import EvaluationSettings
from extrapolate.evaluation.protocols.base import with_arguments
from extrapolate.machine.distributed import joined
from extrapolate.machine.memory import keep_freed_memory
from extrapolate.names import DEFAULT_PROTOCOLS
from extrapolate.progress import QUIET, Progress
from extrapolate.specs import shown

CHECKPOINTS = ("last", "all")


def evaluate(
    runs: Runs,
    *,
    factors: Sequence[float] = (1, 2, 4, 8, 16),
    extend: str | Sequence[str] = (),
    protocols: str | Sequence[str] = DEFAULT_PROTOCOLS,
    stride: int | None = None,
    bos: bool = False,
    split: str = "test",
    max_targets: int | Mapping[str, int] | None = None,
    checkpoint: str = "last",
    precisions: str | Sequence[str] = "fp32",
    position_bucket: int | None = None,
    keep_losses: bool = False,
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Evaluates runs at several lengths and returns a row per run, extension, protocol and factor.

    The rows are kept with each run too, in its evals.parquet and eval_documents.parquet; docs/results.md has the
    columns. Each row scores the same targets as its control, and as the other factors of its protocol.

    runs: runs, their folders, folders of them, `hf:NAME_OR_FOLDER`, or models of other libraries: what `foreign` gives,
    or `my_model.py:load`, a function that returns it. factors: evaluation lengths N as multiples of L.
    extend: extensions, such as `pi` or `yarn:factor=8 + log-n`; `all` that apply; `without-own`: without the one that
    belongs to the run; `as-trained`: nothing more, as is always evaluated. A run to which one does not apply is
    evaluated without it: a warning says so, and `attrs["left_out"]` of what is returned.
    protocols: `windows`, `fixed-target`, `sliding`, `yarn`, or with arguments, `sliding:stride=16`. stride: how far
    windows of `sliding` and `yarn` move on, tokens (default: L/2; for `yarn` at most 256). bos: a beginning-of-text
    token, or the end-of-text token, is the first input of every window. split: `test` or `validation`. max_targets: the
    most scored tokens of a protocol; a number lowers the defaults, a mapping sets each. checkpoint: `last`, or `all`
    that were kept. precisions: `fp32`, `bf16`, `int8`. position_bucket: the size of the buckets that losses by position
    are kept for, tokens; it divides L (default: L/2). keep_losses: the loss of every target is kept too, in the run's
    eval_targets.parquet. device: `cpu`, `cuda` or `auto`. data: the token store, where it is not where the run was
    trained. seq_len: L of `hf:` checkpoints, where it is not what their configuration says.
    trust_code: Python files that came with the runs may run, though you have not run them before: see docs/trust.md.

    Raises UserError if anything asked for cannot be evaluated, such as an extension that applies to none of the
    runs, before any work is done, or a run's tokens see later ones; RunsFailed at the end where some of several runs
    failed, such as damaged ones: the others are evaluated, and the error has their rows in `evaluated.rows`.
    """
    cap, caps = (None, dict(max_targets)) if isinstance(max_targets, Mapping) else (max_targets, {})
    several("max_targets", caps, TEXT)
    several("max_targets", caps.values() if cap is None else cap, WHOLE)
    for name, value in (("stride", stride), ("position_bucket", position_bucket)):
        if value is not None:
            check(name, value, WHOLE)
    settings = replace(
        _settings(factors, extend, split, checkpoint, precisions),
        protocols=with_arguments(several("protocols", protocols, TEXT), stride, bos),
        max_targets=cap,
        max_targets_of=caps,
        position_bucket=position_bucket,
        keep_losses=keep_losses,
    )
    found = evaluate_with(
        settings, runs, device=device, data=data, seq_len=seq_len, trust_code=trust_code, progress=progress
    )
    return table(found.rows, found.left_out, progress)


def evaluate_probes(
    runs: Runs,
    probes: str | Sequence[str | Probe] = "all",
    *,
    trials: int = 64,
    factors: Sequence[float] = (1, 2, 4, 8, 16),
    extend: str | Sequence[str] = (),
    split: str = "test",
    checkpoint: str = "last",
    precisions: str | Sequence[str] = "fp32",
    device: str = "auto",
    data: str | Path | Store | None = None,
    seq_len: int | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> pd.DataFrame:
    """Evaluates runs on probes and returns a row per run, extension, probe, factor and depth.

    The rows are kept with each run too, in its eval_probes.parquet. probes: `passkey,mqar:pairs=8`, or `all`. trials:
    windows of a probe at each length and depth. The rest is as for `evaluate`; RunsFailed has `evaluated.probe_rows`.
    """
    check("trials", trials, WHOLE)
    asked = several("probes", probes, ((str, Probe), "a probe"))
    settings = replace(
        _settings(factors, extend, split, checkpoint, precisions),
        protocols=(),
        probes=tuple(probe for one in asked for probe in (parse_probes(one) if isinstance(one, str) else [one])),
        probe_trials=trials,
    )
    found = evaluate_with(
        settings, runs, device=device, data=data, seq_len=seq_len, trust_code=trust_code, progress=progress
    )
    return table(found.probe_rows, found.left_out, progress)


def _settings(
    factors: Sequence[float],
    extend: str | Sequence[str],
    split: str,
    checkpoint: str,
    precisions: str | Sequence[str],
) -> EvaluationSettings:
    """What text and probes are both evaluated with."""
    if checkpoint not in CHECKPOINTS:
        raise UserError(f"`checkpoint` must be {' or '.join(CHECKPOINTS)}, not {shown(checkpoint)}")
    return EvaluationSettings(
        factors=several("factors", factors, NUMBER),
        extensions=several("extend", extend, TEXT),
        split=split,
        checkpoint=checkpoint,
        precisions=several("precisions", precisions, TEXT),
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
        together = Together(ranks, settings, device, timed, progress if ranks.first else QUIET)
        return together.evaluate(runs, data, seq_len, trust_code)
