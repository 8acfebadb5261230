"""extrapolate eval-lengths"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from extrapolate.data.store import Store
    from extrapolate.evaluation.lengths import EvaluationSettings
    from extrapolate.runs.run import Run


class Which(StrEnum):
    LAST, ALL = "last", "all"


class Device(StrEnum):
    AUTO, CPU, CUDA = "auto", "cpu", "cuda"


def eval_lengths(
    runs: Annotated[list[Path], typer.Argument(help="run directories, folders of them, or hf:NAME_OR_FOLDER")],
    factors: Annotated[str, typer.Option(help="evaluation lengths as multiples of the training length")] = "1,2,4,8,16",
    extend: Annotated[
        list[str] | None,
        typer.Option(
            help="an extension: pi, yarn:factor=8 + log-n; all that apply: all; without the run's own: none; repeatable"
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="windows, fixed-target, sliding, several, or none")
    ] = "windows,fixed-target",
    probes: Annotated[
        str | None, typer.Option(help="passkey,mqar:pairs=8, or all: needle, passkey, copy, mqar")
    ] = None,
    probe_trials: Annotated[int, typer.Option(help="windows of a probe at each length and depth")] = 64,
    split: Annotated[str, typer.Option(help="test or validation")] = "test",
    max_targets: Annotated[
        str | None,
        typer.Option(
            help="the most scored tokens a protocol: 4096 lowers the defaults, windows=500000,fixed-target=16384 sets "
            "each  \\[default: windows 131072, others 8192]"
        ),
    ] = None,
    checkpoint: Annotated[Which, typer.Option(help="the final weights, or also those kept along the way")] = Which.LAST,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8, or several: fp32,int8")] = "fp32",
    device: Annotated[Device, typer.Option()] = Device.AUTO,
    data: Annotated[
        Path | None, typer.Option(help="the token store, where it is not where the run was trained")
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(min=2, help="with hf:, the training length L, where its configuration says another")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as JSON lines")] = False,
) -> None:
    """Evaluate runs at several lengths, plain and with extensions. Adds to each run's evals.parquet.

    hf:NAME_OR_FOLDER is a Llama, Mistral or Qwen 3 checkpoint of Hugging Face: it becomes the run ckpt/hf-NAME.
    """
    from extrapolate import files, results
    from extrapolate.cli.progress import Progress, say
    from extrapolate.cli.render import print_table
    from extrapolate.data.probes.base import build_list
    from extrapolate.evaluation import lengths
    from extrapolate.evaluation import probes as probing
    from extrapolate.evaluation.names import PROBES_TABLE
    from extrapolate.folders import listed, unique_names
    from extrapolate.machine.allocator import keep_freed_memory
    from extrapolate.machine.devices import device_of
    from extrapolate.report import tables
    from extrapolate.report.probes import printed
    from extrapolate.runs.find import find_runs

    keep_freed_memory()
    cap, caps = _max_targets(max_targets or "")
    settings = lengths.EvaluationSettings(
        factors=tuple(_numbers(factors)),
        extensions=tuple(dict.fromkeys(extend or [])),
        protocols=()
        if protocol == "none"
        else tuple(dict.fromkeys(p.strip() for p in protocol.split(",") if p.strip())),
        split=split,
        max_targets=cap,
        max_targets_of=caps,
        checkpoint=checkpoint.value,
        precisions=tuple(dict.fromkeys(part.strip() for part in precision.split(",") if part.strip())),
        probes=() if probes is None else build_list(probes),
        probe_trials=probe_trials,
    )
    where = device_of(device.value)
    runs = _brought_in(runs, seq_len)
    named = {path.resolve() for path in runs}
    found, others = find_runs(runs)
    if others:
        say(f"left out, for they are not runs of extrapolate: {listed(others)}; evaluate them as hf:FOLDER")
    unfinished = [run for run in found if not run.finished and run.path.resolve() not in named]
    if unfinished and len(unfinished) < len(found):
        say(f"left out, for their training is not finished: {listed([run.path for run in unfinished])}")
        found = [run for run in found if run not in unfinished]
    stores = [_store_of(run, data, settings) for run in found]
    for run, store in zip(found, stores, strict=True):
        lengths.check(run, store, settings)
        probing.check(run, store, settings)
    names = unique_names(run.path.resolve() for run in found)
    expected = sum(
        lengths.expected_inputs(run, store, settings) + probing.expected_inputs(run, store, settings)
        for run, store in zip(found, stores, strict=True)
    )
    rows: list[dict[str, Any]] = []
    probe_rows: list[dict[str, Any]] = []
    done = 0.0
    with Progress("tokens", stopped="stopped; what was evaluated before this setting is kept") as progress:

        def advance(what: str, inputs: float) -> None:
            nonlocal done
            done += inputs
            progress.update(what, done, expected)

        advance("evaluating", 0)
        for run, store in zip(found, stores, strict=True):
            with files.locked(run.path):
                files.remove_partials(run.path)
                for new, documents in lengths.evaluate(run, store, settings, device=where, progress=advance):
                    results.merge(run.path / "eval_documents.parquet", documents, results.EVAL_DOCUMENTS, run.name)
                    results.merge(run.path / "evals.parquet", new, results.EVALS, run.name)
                    rows.extend(row | {"run": names[run.path.resolve()]} for row in new)
                for new in probing.evaluate(run, store, settings, device=where, progress=advance):
                    results.merge(run.path / PROBES_TABLE, new, results.PROBES, run.name)
                    probe_rows.extend(row | {"run": names[run.path.resolve()]} for row in new)
    if as_json:
        for row in [*rows, *probe_rows]:
            sys.stdout.write(json.dumps(row, default=str) + "\n")
        return
    for name in settings.protocols:
        table = tables.formatted(tables.quick_table(rows, name))
        print_table(table, f"{name}, loss in nats per token", names=list(table.columns).index("model") + 1)
        for line in tables.verdicts(rows, name):
            print(line)
    for table, title in printed(probe_rows):
        print_table(table, title)


def _brought_in(runs: list[Path], seq_len: int | None) -> list[Path]:
    """The paths, with the run that each checkpoint of Hugging Face became in its place."""
    from extrapolate.cli.progress import say
    from extrapolate.interop.imported import PREFIX, bring_in

    if seq_len is not None and not any(str(path).startswith(PREFIX) for path in runs):
        raise ValueError("--seq-len is for hf: checkpoints: a run has the training length that it was trained at")
    paths = []
    for path in runs:
        if not str(path).startswith(PREFIX):
            paths.append(path)
            continue
        say(f"reading {path}")
        run = bring_in(str(path).removeprefix(PREFIX), seq_len)
        extension = f", {run.config.extension}" if run.config.extension else ""
        say(f"{path} is {run.path}: training length {run.config.seq_len}{extension}")
        paths.append(run.path)
    return paths


def _store_of(run: "Run", data: Path | None, settings: "EvaluationSettings") -> "Store":
    """The store named, the one the run was trained on, or for an imported run data/<its name>, made on first use."""
    from extrapolate.cli.progress import say
    from extrapolate.cli.tokenize import make_store
    from extrapolate.data.store import Store, StoreSettings
    from extrapolate.evaluation.protocols import lengths_of

    if data is not None:
        return Store.open(data)
    if run.config.imported is None:
        return Store.open(Path(run.config.data.path))
    default = Path("data") / run.name
    if not default.exists():
        say(f"no --data: tokenising this Python's standard library into {default}, with the tokenizer of {run.path}")
        least = max(StoreSettings.min_heldout_tokens, max(lengths_of(settings.factors, run.config.seq_len)) + 1)
        tokenizer = str(run.path / "tokenizer.json")
        make_store(StoreSettings(tokenizer=tokenizer, min_heldout_tokens=least), default)
    return Store.open(default)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--factors '{text}' is not a list of numbers: expected something like 1,2,4,8,16") from None


def _max_targets(text: str) -> tuple[int | None, dict[str, int]]:
    """The number that stands alone, and the numbers of protocols: `4096,windows=8192` is 4096 and {windows: 8192}."""
    cap: int | None = None
    caps: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        protocol, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not number.isdecimal() or int(number) < 1 or (equals and not protocol):
            raise ValueError(
                f"--max-targets '{text}': '{part}' is not a number of tokens; write 4096, or "
                "windows=500000,fixed-target=16384, or both: 4096,windows=8192"
            )
        if protocol in caps or (not equals and cap is not None):
            raise ValueError(f"--max-targets '{text}' has two numbers for {protocol or 'all protocols'}: give one")
        if equals:
            caps[protocol] = int(number)
        else:
            cap = int(number)
    return cap, caps
