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

    from extrapolate.api.evaluating import Evaluated
    from extrapolate.api.in_turn import Runs
    from extrapolate.data.probes.base import Probe


@public(TextSettings, RunsOnText)
@decided
def evaluate(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[TextArguments]) -> "pd.DataFrame":
    """Evaluates runs at several lengths and returns a row per run, extension, protocol and factor.

    Each run also keeps its rows, in evals.parquet and eval_documents.parquet; docs/results.md describes the columns.
    Each row scores the same targets as its control and as the other factors of its protocol.

    runs: runs, their folders, folders of them, `hf:NAME_OR_FOLDER`, or models of other libraries: a return value of
    `foreign`, or `my_model.py:load`, a function that returns one. factors: evaluation lengths N as multiples of L.
    extend: extensions, such as `pi` or `yarn:factor=8 + log-n`; `all` for all that apply; `without-own` to leave out
    the run's own; `as-trained` stands for no further extension and is always evaluated. If an extension does not apply
    to a run, the run is evaluated without it, with a warning that is also in `attrs["left_out"]` of the table.
    protocols: `windows`, `fixed-target`, `sliding`, `growing` or `yarn`, also with arguments: `sliding:stride=16`.
    stride: the step of the windows of `sliding` and `yarn` in tokens (default: L/2; for `yarn` at most 256). bos:
    replace the first input of every window with a beginning-of-text or end-of-text token. split: `test` or
    `validation`. max_targets: the maximum number of scored tokens of a protocol; a number lowers every default above
    it, a mapping sets the limit of each protocol that it names. checkpoint: `last`, or `all` for every checkpoint that
    was kept. precisions: `fp32`, `bf16`, `int8`. position_bucket: the size in tokens of the buckets for losses by
    position, a divisor of L (default: L/2). key_context: the number of tokens before a key token that its copy beyond L
    repeats; see docs/protocols.md. keep_losses: also keep the loss of every target, in the run's eval_targets.parquet.
    device: `cpu`, `cuda` or `auto`. data: the token store, if it has moved since the training. seq_len: L of `hf:`
    checkpoints (default: as in their configuration). trust_code: allow Python files that came with the runs to run,
    even if you have not run them before; see docs/trust.md.

    Raises UserError before starting if a setting is invalid, such as an extension that applies to no run, and if a
    token of a run's model depends on later ones. If some of several runs fail, the others are evaluated, and RunsFailed
    is raised at the end, with their rows in `evaluated.rows`.
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

    Each run also keeps its rows, in eval_probes.parquet. probes: `passkey,mqar:pairs=8`, or `all`. trials: the number
    of windows per probe, length and depth. Other arguments are those of `evaluate`; RunsFailed has
    `evaluated.probe_rows`.
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
    """Does what `evaluate` and `evaluate_probes` do in one call: the command `eval-lengths`."""
    from extrapolate.api.evaluating import evaluate_given

    return evaluate_given(runs, settings, progress)
