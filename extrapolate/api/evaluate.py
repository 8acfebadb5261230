"""xt.evaluate and xt.evaluate_probes"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from extrapolate.api.settings import ProbeArguments, TextArguments
from extrapolate.evaluation.settings import EvaluationSettings, RunsOnText, SharedSettings, TextSettings
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.trust import decided
from extrapolate.specs.arguments import WHOLE, check, several
from extrapolate.specs.settings import public

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signatures
    import pandas as pd

    from extrapolate.api.evaluated_runs import Runs
    from extrapolate.api.evaluating import Evaluated
    from extrapolate.data.probes.base import Probe


@public(TextSettings, RunsOnText)
@decided
def evaluate(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[TextArguments]) -> "pd.DataFrame":
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
    from extrapolate.api.evaluating import evaluate_given
    from extrapolate.api.in_turn import table

    found = evaluate_given(runs, settings, progress)
    return table(found.rows, found.left_out, progress)


@public(SharedSettings, RunsOnText)
@decided
def evaluate_probes(
    runs: "Runs",
    probes: "str | Sequence[str | Probe]" = "all",
    *,
    trials: int = EvaluationSettings.trials,
    progress: Progress = QUIET,
    **settings: Unpack[ProbeArguments],
) -> "pd.DataFrame":
    """Evaluates runs on probes and returns a row per run, extension, probe, factor and depth.

    The rows are kept with each run too, in its eval_probes.parquet. probes: `passkey,mqar:pairs=8`, or `all`. trials:
    windows of a probe at each length and depth. The rest is as for `evaluate`; RunsFailed has `evaluated.probe_rows`.
    """
    from extrapolate.api.evaluating import evaluate_given
    from extrapolate.api.in_turn import table
    from extrapolate.data.probes.base import Probe

    check("trials", trials, WHOLE)
    asked = several("probes", probes, ((str, Probe), "a probe"))
    texts = [f"({one.text})" if isinstance(one, Probe) else one for one in asked]
    found = evaluate_given(runs, {**settings, "protocols": (), "probes": texts, "trials": trials}, progress)
    return table(found.probe_rows, found.left_out, progress)


@public(EvaluationSettings, RunsOnText)
@decided
def evaluate_all(runs: "Runs", *, progress: Progress = QUIET, **settings: object) -> "Evaluated":
    """What `evaluate` and `evaluate_probes` do, both at once: the command `eval-lengths`."""
    from extrapolate.api.evaluating import evaluate_given

    return evaluate_given(runs, settings, progress)
