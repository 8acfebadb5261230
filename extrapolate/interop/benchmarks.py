"""Loads tasks of lm-eval, scores runs on them, and makes the rows of tables."""

import contextlib
import hashlib
import inspect
import json
import logging
import os
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import filter as matching
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extrapolate.errors import UserError
from extrapolate.evaluation.rows import common, label_of
from extrapolate.results.tables import TASKS
from extrapolate.runs import trust
from extrapolate.runs.run import file_sha256
from extrapolate.specs import did_you_mean

if TYPE_CHECKING:
    from extrapolate.interop.lm_eval import RunLM

OWN_TASKS = Path(__file__).parent / "tasks"  # the probes, also for lm-eval's own command
MISSING = "benchmarks need the package lm-eval: pip install 'extrapolate[lm-eval]'"
BOOTSTRAP = 1000  # resamples for the standard error of a metric that is not a mean, such as perplexity
# A task's settings that decide what an answer scores.
SCORING = ("output_type", "metric_list", "filter_list", "process_results", "generation_kwargs")
COPIES = (
    "without the Hub, put a copy of the data set into COPIES/NAME, with its name on the Hub as NAME, and give "
    "`data_dir='COPIES'` (docs/benchmarks.md)"
)


def check_installed() -> None:
    """Raises UserError if lm-eval is missing."""
    try:
        import lm_eval
    except ImportError:
        raise UserError(MISSING) from None
    assert lm_eval


@dataclass(frozen=True)
class Tasks:
    """Tasks and groups of lm-eval with their data, which any number of models can be scored on."""

    tasks: dict[str, Any]
    groups: dict[str, Any]

    @classmethod
    def load(cls, names: Sequence[str], include_path: Path | None, data_dir: Path | None) -> "Tasks":
        """Loads tasks by names or patterns, such as `mmlu_*`.

        include_path: a folder with the user's own tasks. data_dir: a folder with copies of data sets, each under its
        name on the Hub. Raises UserError if lm-eval, a task or its data is missing, or a file of `include_path` that
        can bring code is not trusted.
        """
        check_installed()
        if not names:
            raise UserError("name at least one task: `tasks='hellaswag'`")
        for name, folder in (("include_path", include_path), ("data_dir", data_dir)):
            if folder is not None and not folder.is_dir():
                raise UserError(f"`{name}={folder}` is no folder")
        for file in () if include_path is None else sorted(include_path.rglob("*")):
            if file.suffix in (".py", ".yaml", ".yml"):  # a YAML file can call any function, and its templates are code
                trust.check(file_sha256(file), file)
        import datasets
        from lm_eval.tasks import TaskManager

        logging.getLogger("lm_eval").setLevel(logging.ERROR)  # these libraries log every task and file
        datasets.disable_progress_bars()
        own = [str(folder.resolve()) for folder in (OWN_TASKS, include_path) if folder is not None]
        manager = TaskManager(include_path=own, include_defaults=False)
        if not all(matching(manager.all_tasks, name) for name in names):  # lm-eval's own thousands take seconds
            manager = TaskManager(include_path=own)
        chosen = []
        for name in names:
            if not (found := matching(manager.all_tasks, name)):
                raise UserError(f"lm-eval has no task '{name}'; {did_you_mean(name, manager.all_tasks)}")
            chosen += found
        tasks: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        # The library looks for a folder with a data set's name before it asks the Hub.
        with _metrics_of_lm_eval(), _as_it_is_now(include_path), contextlib.chdir(data_dir or Path()):
            for name in dict.fromkeys(chosen):
                try:
                    made = manager.load([name])
                except Exception as error:  # a task is anybody's code, and may raise anything
                    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                    raise UserError(f"the task {name} or its data cannot be loaded: {reason}; {COPIES}") from error
                tasks |= made["tasks"]
                groups |= made.get("groups", {})
        for name, task in tasks.items():
            if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
                raise UserError(f"the task {name} runs what a model writes, or shows it pictures: neither is done here")
        return cls(tasks, groups)

    def questions(self, model: Any, shots: int | None, limit: float | None) -> dict[str, Any]:
        """Runs lm-eval's `evaluate` on one of its models, and returns the results.

        Few-shot examples are drawn like those of its `simple_evaluate`, which would spend seconds describing the
        machine. A task that is fixed at zero examples stays so.
        """
        from lm_eval import evaluate
        from lm_eval.defaults import DEFAULT_OTHER_SEED

        for task in self.tasks.values():
            own = task.get_config("num_fewshot")
            if own is None or (shots is not None and own != 0):
                task.set_config(key="num_fewshot", value=shots or 0)
            task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
        os.environ.setdefault("DISABLE_MULTIPROC", "1")  # its workers end by a signal that is Ctrl-C to this program
        printed = contextlib.redirect_stdout(sys.stderr)
        with warnings.catch_warnings(), printed, _metrics_of_lm_eval():  # stdout is for results
            warnings.simplefilter("ignore")
            task_dict = {"tasks": self.tasks, "groups": self.groups}
            found = dict(evaluate(model, task_dict, limit=limit, bootstrap_iters=BOOTSTRAP))
        groups = {name: _aggregation_of(group) for name, group in self.groups.items()}
        return found | {"code": {name: _code_of(task) for name, task in self.tasks.items()}, "aggregation": groups}


@contextlib.contextmanager
def _metrics_of_lm_eval() -> Iterator[None]:
    """Refuses metrics whose name is also a folder, because `evaluate` would run a script in it."""
    import evaluate

    load = evaluate.load

    def load_by_name(path: str, *arguments: Any, **options: Any) -> Any:
        if Path(path).exists():
            raise UserError(f"the metric {path} would be the Python file in the folder {Path(path).resolve()}")
        return load(path, *arguments, **options)

    evaluate.load = load_by_name
    try:
        yield
    finally:
        evaluate.load = load


@contextlib.contextmanager
def _as_it_is_now(own: Path | None) -> Iterator[None]:
    """Imports modules of a user's tasks from their source, not from an earlier import or compiled files.

    What is found from the current folder stays so in another one: a folder of data has no modules.
    """
    paths, compiled = sys.path[:], sys.pycache_prefix
    with tempfile.TemporaryDirectory() as empty:
        sys.path[:] = [os.path.abspath(path) for path in paths]
        if own is not None:
            sys.pycache_prefix = empty
            for name in [name for name in sys.modules if name.startswith(f"{own.resolve()}{os.sep}")]:
                del sys.modules[name]  # lm-eval calls them by their paths
        try:
            yield
        finally:
            sys.path[:], sys.pycache_prefix = paths, compiled


def rows(model: "RunLM", extension: str, found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of TASKS (see `results.tables`), one for each metric of each task or group of tasks."""
    run = model.run
    shared = common(run, model.loaded, model.checkpoint, model.precision, "", "")
    shared |= {
        "model": label_of(run.config, model.loaded, model.applied.joined(), model.applied.taken_off),
        "extension": extension,
        "extension_sha256": model.applied.sha256(),
        "length": model.max_length,
        "factor": model.max_length / run.config.seq_len,
        "lm_eval_version": metadata.version("lm-eval"),
        "evaluated_at": datetime.now(UTC).replace(microsecond=0),
    }
    known = {column.name for column in TASKS.columns}
    shared = {name: value for name, value in shared.items() if name in known}
    children = found.get("group_subtasks", {})
    scored = {name for name, metrics in found["results"].items() if any("," in metric for metric in metrics)}
    group_of = {child: group for group, inside in children.items() if group in scored for child in inside}
    hashes = {
        task: _hash_of(
            samples, found["versions"].get(task), found["configs"].get(task, {}), found["code"].get(task, "")
        )
        for task, samples in found["samples"].items()
    }

    for task, metrics in found["results"].items():
        leaves = _leaves(task, children)
        version = found["versions"].get(task)
        members = " ".join(f"{leaf}={hashes[leaf]}" for leaf in leaves) if task in children else None
        for name, value in metrics.items():
            metric, comma, filtered = name.partition(",")
            if not comma or metric.endswith("_stderr") or _number(value) is None:
                continue
            yield shared | {
                "task": task,
                "group": group_of.get(task),
                "metric": metric,
                "filter": filtered,
                "shots": _shots(task, found),
                "value": _number(value),
                "stderr": _number(metrics.get(f"{metric}_stderr,{filtered}")),
                "n_questions": sum(found["n-samples"][leaf]["effective"] for leaf in leaves),
                "n_cut": sum(asked in leaves for asked, _ in model.cut),
                "task_version": None if version is None else str(version),
                "members": members,
                "targets_hash": _hash([found["aggregation"].get(task, ""), members]) if members else hashes[task],
            }


def check_scored(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError if a task has no score that is a number, and so no row."""
    if unscored := sorted(found["samples"].keys() - {row["task"] for row in rows}):
        raise UserError(f"no score of {', '.join(unscored)} is a number: return numbers from process_results")


def _shots(task: str, found: Mapping[str, Any]) -> int:
    leaves = _leaves(task, found.get("group_subtasks", {}))
    return int(found["n-shot"].get(task, found["n-shot"].get(leaves[0], 0)))


def _number(value: Any) -> float | None:
    """The value of a metric; None for texts such as N/A, and for lists."""
    try:
        return None if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return None


def _leaves(task: str, children: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of a group and of the groups in it, or the task itself."""
    if task not in children:
        return [task]
    return list(dict.fromkeys(leaf for child in children[task] for leaf in _leaves(child, children)))


def _aggregation_of(group: Any) -> str:
    """How a group averages the scores of its tasks, with the source of functions."""
    listed = getattr(group, "aggregate_metric_list", None) or []
    settings = [one if isinstance(one, Mapping) else vars(one) for one in listed]
    return json.dumps(settings, default=lambda one: inspect.getsource(one) if callable(one) else type(one).__qualname__)


def _code_of(task: Any) -> str:
    """A hash of the Python files in and below the folders that a user's task has functions, or its class, from.

    Empty if there are none. Leaves out hidden folders and installed packages.
    """
    import lm_eval

    folders: set[Path] = set()

    def find(value: Any) -> None:
        if isinstance(value, Mapping | list | tuple):
            for one in value.values() if isinstance(value, Mapping) else value:
                find(one)
        elif callable(value):
            with contextlib.suppress(TypeError):  # it has no source
                folders.add(Path(inspect.getfile(inspect.unwrap(value))).resolve().parent)

    config = getattr(task, "config", None)
    find([type(task), {} if config is None else vars(config)])
    known = [Path(str(lm_eval.__file__)).parent, Path(__file__).parents[1], *map(Path, sysconfig.get_paths().values())]
    own = [folder for folder in folders if not any(map(folder.is_relative_to, known))]
    files = [(path, path.relative_to(folder).parts) for folder in own for path in folder.rglob("*.py")]
    texts = [
        path.read_bytes() for path, parts in files if not any(one[0] == "." or one == "site-packages" for one in parts)
    ]
    return _hash(sorted(hashlib.sha256(text).hexdigest() for text in texts)) if texts else ""


def _hash_of(samples: Sequence[Mapping[str, Any]], version: object, config: Mapping[str, Any], code: str = "") -> str:
    """A hash of a task's version and scoring, and its questions, with their prompts, choices and right answers.

    lm-eval's own hash of a prompt covers only the text before the choices, and that of a target may be of an index. In
    its `config`, functions are their source. code: of a user's own task.
    """
    names = ("doc_id", "doc_hash", "arguments", "target_hash")
    asked = {json.dumps([sample[name] for name in names], default=str) for sample in samples}
    scoring = json.dumps([config.get(name) for name in SCORING], default=lambda value: type(value).__qualname__)
    return _hash([str(version), scoring, code, *sorted(asked)])


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
