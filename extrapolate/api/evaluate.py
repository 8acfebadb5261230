"""xt.evaluate, xt.evaluate_probes, xt.evaluate_tasks, the estimates of these, and xt.inspect"""

import inspect as python_inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from extrapolate.api.settings import InspectionArguments, OpeningArguments, ProbeArguments, TextArguments
from extrapolate.errors import UserError
from extrapolate.evaluation.settings import EvaluationSettings, OpenedRuns, RunsOnText, SharedSettings, TextSettings
from extrapolate.inspection.settings import InspectionSettings
from extrapolate.names import PRECISIONS
from extrapolate.progress import QUIET, Advance, Progress
from extrapolate.runs.trust import decided
from extrapolate.specs import did_you_mean
from extrapolate.specs.arguments import TEXT, WHOLE, check, path, several
from extrapolate.specs.settings import Flag, public, settings_of

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signatures
    import pandas as pd

    from extrapolate.api.estimating import Estimate
    from extrapolate.api.evaluating import Evaluated
    from extrapolate.api.own_class import ExtensionClass
    from extrapolate.api.run_loop import Job, RunLoop, Runs
    from extrapolate.data.probes.base import Probe
    from extrapolate.data.store import Store
    from extrapolate.interop.benchmarks import Tasks
    from extrapolate.interop.foreign import ForeignRun
    from extrapolate.runs.run import Run

_WHAT = "What to ask"


@public(TextSettings, RunsOnText)
@decided
def evaluate(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[TextArguments]) -> "pd.DataFrame":
    """Evaluates runs at several lengths and returns a row per run, extension, protocol and factor.

    Each run also keeps its rows, in `results/`, and those that are there are not computed again; docs/results.md
    describes the files and their columns.
    Each row scores the same targets as its control and as the other factors of its protocol.

    runs: runs, their folders, folders of them, `hf:NAME_OR_FOLDER`, or models of other libraries: a return value of
    `foreign`, or `my_model.py:load`, a function that returns one. factors: evaluation lengths N as multiples of L.
    extend: extensions, such as `pi`, `yarn:factor=8 + log-n` or a class; `all` for all that apply; `without-own` to
    leave out the run's own; `as-trained` stands for no further extension and is always evaluated. If an extension does
    not apply to a run, the run is evaluated without it, with a warning that is also in `attrs["left_out"]` of the
    table. protocols: `windows`, `fixed-target`, `sliding`, `growing` or `yarn`, also with arguments:
    `sliding:stride=16`. stride: the step of the windows of `sliding` and `yarn` in tokens (default: L/2; for `yarn` at
    most 256). bos: replace the first input of every window with a beginning-of-text or end-of-text token. split: `test`
    or `validation`. max_targets: the maximum number of scored tokens of a protocol; a number lowers every default above
    it, a mapping sets the limit of each protocol that it names. checkpoint: `last`, and the losses by fixed-target of
    half the budget if that model was kept; `all` for every checkpoint that was kept; or `half`. precisions: `fp32`,
    `bf16`, `int8`. keep_losses: also keep the loss of every target, in the run's
    `results/`. device: `cpu`, `cuda` or `auto`. data: the token store, if it has moved since the training.
    seq_len: L of `hf:` checkpoints (default: as in their configuration). trust_code: allow Python files that came with
    the runs to run, even if you have not run them before; see docs/trust.md.

    Raises UserError before starting if a setting is invalid, an extension applies to no run, or a model's predictions
    depend on later tokens. If some of several runs fail, the others are evaluated, and RunsFailed is raised at the end;
    its `evaluated.rows` has the rows of the others.
    """
    from extrapolate.api.evaluating import evaluate_given
    from extrapolate.api.run_loop import table

    found = evaluate_given(runs, settings, progress)
    return table(found.rows, found.left_out)


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

    Each run also keeps its rows, in `results/`. probes: `passkey,mqar:pairs=8`, or `all`. trials: the number
    of windows per probe, length and depth. Other arguments are those of `evaluate`; RunsFailed has
    `evaluated.probe_rows`.
    """
    from extrapolate.api.evaluating import evaluate_given
    from extrapolate.api.run_loop import table
    from extrapolate.data.probes.base import Probe

    check("trials", trials, WHOLE)
    asked = several("probes", probes, ((str, Probe), "a probe"))
    texts = [f"({one.text})" if isinstance(one, Probe) else one for one in asked]
    found = evaluate_given(runs, {**settings, "protocols": (), "probes": texts, "trials": trials}, progress)
    return table(found.probe_rows, found.left_out)


@public(EvaluationSettings, RunsOnText)
@decided
def evaluate_all(runs: "Runs", *, progress: Progress = QUIET, **settings: object) -> "Evaluated":
    """Does what `evaluate` and `evaluate_probes` do in one call: the command `eval-lengths`."""
    from extrapolate.api.evaluating import evaluate_given

    return evaluate_given(runs, settings, progress)


@public(EvaluationSettings, RunsOnText)
@decided
def estimate_evaluation(runs: "Runs", *, progress: Progress = QUIET, **settings: object) -> "Estimate":
    """Estimates what `evaluate` and `evaluate_probes` would read, and how long that takes here.

    Returns an object with `rows`, a frame with a row per run, protocol or probe, extension and precision: the inputs
    that it adds (tokens), the targets and documents that it rests on, seconds, and the peak memory. `seconds` are those
    of all rows; if that is more than an hour, `lower` has the settings to lower, and `lower_s` the seconds that it then
    takes. Checkpoints are imported and text is
    tokenised as for the evaluation itself; nothing else is written. Arguments and errors are those of the two calls.
    """
    from extrapolate.api.estimating import estimate_lengths
    from extrapolate.api.evaluating import prepared
    from extrapolate.api.own_class import with_specs
    from extrapolate.machine.devices import device_of

    given: dict[str, Any] = dict(settings)
    asked = EvaluationSettings.of(with_specs(given))
    _, jobs = prepared(asked, runs, given.get("data"), given.get("seq_len"), progress)
    return estimate_lengths(jobs, asked, device_of(given.get("device") or "auto"), progress)


@public(OpenedRuns)
@decided
def evaluate_tasks(
    runs: "Runs",
    tasks: str | Sequence[str],
    *,
    extend: Annotated[
        "str | ExtensionClass | Sequence[str | ExtensionClass]",
        Flag("an extension: pi, yarn:factor=8 + log-n; all; without-own; repeatable", _WHAT, whole=True),
    ] = (),
    length: Annotated[
        int | None,
        Flag("the most tokens that are read at once; longer texts lose their first", _WHAT, usual="as in training"),
    ] = None,
    shots: Annotated[
        int | None, Flag("examples before each question", _WHAT, usual="as the task says, or 0", least=0)
    ] = None,
    limit: Annotated[
        float | None, Flag("the number of questions of each task; below 1, their share", _WHAT, usual="all")
    ] = None,
    include_path: Annotated[
        str | Path | None, Flag("a folder with your own tasks; needs `trust_code` when they are new", _WHAT)
    ] = None,
    data_dir: Annotated[
        str | Path | None, Flag("copies of data sets, each in a folder of its name on the Hub", _WHAT)
    ] = None,
    precision: Annotated[str, Flag(", ".join(PRECISIONS), "Machine")] = "fp32",
    progress: Progress = QUIET,
    **opening: Unpack[OpeningArguments],
) -> "pd.DataFrame":
    """Evaluates runs on tasks of lm-eval and returns a row per run, extension, task and metric.

    Each run also keeps its rows, in `results/`: docs/results.md describes the columns, docs/benchmarks.md the
    method.

    runs, extend, device, seq_len, trust_code: as for `evaluate`; the run as trained is always included. tasks: names of
    tasks or groups, such as `hellaswag` or `mmlu`, or patterns such as `mmlu_*`. length: the most tokens that a model
    reads at once, and the length that extensions are set for (default: the length of the training windows); longer
    texts lose their first tokens. shots: solved examples before each question (default: as the task says, or none).
    limit: the number of questions of each task, or their share if below 1 (default: all). include_path: a folder with
    your own tasks; unless they have run before, they need `trust_code`. data_dir: a folder with copies of data sets,
    each under its name on the Hub. precision: `fp32`, `bf16` or `int8`.

    Raises UserError if lm-eval, a task, its data or a run is missing, or a run cannot be evaluated at this length;
    RunsFailed at the end if some of several runs failed.
    """
    from extrapolate.api.run_loop import table
    from extrapolate.evaluation.plans import extensions_to_evaluate
    from extrapolate.results import TASKS, kept

    given = dict(
        runs=runs, tasks=tasks, extend=extend, length=length, limit=limit, include_path=include_path,
        data_dir=data_dir, precision=precision, seq_len=opening.get("seq_len"),
    )  # fmt: skip
    loop, jobs, loaded = _ready(given, progress)
    from extrapolate.interop import benchmarks
    from extrapolate.interop.lm_eval import RunLM  # lm-eval is optional

    rows: list[dict[str, Any]] = []

    def work(job: "Job[None]", advance: Advance) -> None:
        for text, applied in extensions_to_evaluate(job.run, job.run.build_model(), job.extensions).items():
            lm = RunLM(
                job.run, length=length, extend=applied, precision=precision,
                device=opening.get("device") or "auto", advance=partial(advance, f"{job.run.name} {text}"),
            )  # fmt: skip
            found = loaded.questions(lm, shots, limit)
            part = list(benchmarks.rows(lm, text, found))
            rows.extend(row | {"run": job.name} for row in part)
            kept.add(job.run.path, TASKS, part)
            benchmarks.check_scored(found, part)

    loop.work(jobs, work, [], "what was asked before this extension is kept")
    asked = table(rows, loop.left_out)
    loop.tell(asked)
    return asked


@decided
def estimate_tasks(
    runs: "Runs", tasks: str | Sequence[str], *, progress: Progress = QUIET, **settings: Any
) -> "Estimate":
    """Estimates what `evaluate_tasks` would read, and how long that takes here.

    Returns the object of `estimate_evaluation`; its rows are about tasks, whose targets are questions. The tasks'
    questions are built as for the evaluation, and their tokens counted. A continuation is counted with as many new
    tokens as the task allows. Arguments and errors are those of `evaluate_tasks`.
    """
    bound = python_inspect.signature(evaluate_tasks).bind(runs, tasks, **settings)
    bound.apply_defaults()
    given = bound.arguments
    _, jobs, loaded = _ready(given, progress)
    from extrapolate.api.estimating import estimate_tasks as estimate
    from extrapolate.interop.lm_eval import CountingLM
    from extrapolate.machine.devices import device_of

    device = device_of(given["device"])
    counting = partial(CountingLM, length=given["length"], precision=given["precision"], device=device)
    return estimate(jobs, loaded, given["shots"], given["limit"], given["precision"], device, counting, progress)


def _ready(given: Mapping[str, Any], progress: Progress) -> "tuple[RunLoop, list[Job[None]], Tasks]":
    """The runs and the tasks of `evaluate_tasks`, whose arguments are given by name."""
    from extrapolate.interop import benchmarks

    benchmarks.check_installed()
    from extrapolate.api.own_class import specs_of
    from extrapolate.api.run_loop import RunLoop
    from extrapolate.evaluation.plans import extensions_to_evaluate, plan_for_texts
    from extrapolate.results import kept

    precision, limit, length = given["precision"], given["limit"], given["length"]
    if precision not in PRECISIONS:
        raise UserError(f"unknown `precision='{precision}'`; {did_you_mean(precision, PRECISIONS)}")
    if limit is not None and not 0 < limit < math.inf:
        raise UserError(f"`limit` must be above 0, not {limit:g}")
    extensions = several("extend", specs_of(given["extend"]), TEXT)
    names = several("tasks", given["tasks"], TEXT)
    folders = [None if given[name] is None else path(name, given[name]) for name in ("include_path", "data_dir")]

    def check_run(run: "Run | ForeignRun") -> None:
        kept.check(run.path)
        run.checkpoints("last")
        run.build_model()

    # Raises what is wrong with the arguments before lm-eval and its data are read, which takes long.
    loop = RunLoop(given["runs"], given.get("seq_len"), progress)
    jobs = loop.jobs(extensions, check_run)
    for job in jobs:
        at = job.run.config.trained_length if length is None else length
        model = job.run.build_model()
        for applied in extensions_to_evaluate(job.run, model, job.extensions).values():
            plan_for_texts(job.run, model, applied, at)
    progress.say("reading the tasks")
    return loop, jobs, benchmarks.Tasks.load(names, *folders)


@public(InspectionSettings, RunsOnText)
@decided
def inspect(runs: "Runs", *, progress: Progress = QUIET, **settings: Unpack[InspectionArguments]) -> "pd.DataFrame":
    """Measures how trained models use position and returns a row per quantity, layer, head and place.

    Each run also keeps its rows, in `results/`: docs/results.md describes the columns, and docs/inspection.md
    every measurement. All numbers are of the last L/2 inputs of some windows of held-out text, which are the same
    inputs at every factor.

    runs: as for `evaluate`. measures: names of measurements, such as `attention` (default: all). factors: lengths N as
    multiples of L. extend: extensions; the run as trained is always included. windows: the maximum number of windows
    (default: 16, or fewer if the longest have more than 2,048 tokens, but at least 4). split: `test` or `validation`.
    Other arguments are those of `evaluate`.

    Raises UserError before starting if a setting is invalid. If some of several runs fail, the others are inspected,
    and RunsFailed is raised at the end, with their rows in `evaluated`.
    """
    from extrapolate.api.own_class import with_specs
    from extrapolate.api.run_loop import RunLoop, table
    from extrapolate.api.training import opened_store
    from extrapolate.inspection import inspection
    from extrapolate.machine.devices import device_of
    from extrapolate.results import INSPECTIONS, kept

    asked = settings_of(InspectionSettings, with_specs(settings))
    store, device = opened_store(settings.get("data")), device_of(settings.get("device") or "auto")
    loop = RunLoop(runs, settings.get("seq_len"), progress)
    rows: list[dict[str, Any]] = []

    def work(job: "Job[Store]", advance: Advance) -> None:
        own = replace(asked, extend=job.extensions)
        for part in inspection.inspect(job.run, job.given, own, device=device, progress=advance):
            kept.add(job.run.path, INSPECTIONS, part)
            rows.extend(row | {"run": job.name} for row in part)

    jobs = loop.jobs_on_text(asked, store, lambda run, text: inspection.check_run(run, text, asked))
    for job in jobs:
        inspection.check(job.run, job.given, replace(asked, extend=job.extensions))
    inputs = [inspection.expected_inputs(job.run, job.given, replace(asked, extend=job.extensions)) for job in jobs]
    loop.work(jobs, work, inputs, "the lengths before this one are kept")
    inspected = table(rows, loop.left_out)
    loop.tell(inspected)
    return inspected
