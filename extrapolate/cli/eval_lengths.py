"""extrapolate eval-lengths"""

import shlex
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extrapolate.cli import registered
from extrapolate.cli.flags import AsJson, Device
from extrapolate.errors import UserError
from extrapolate.names import (
    ALL,
    AS_TRAINED,
    DEFAULT_PROTOCOLS,
    LEFT_OUT,
    PRECISIONS,
    WITHOUT_OWN,
)
from extrapolate.specs import split_outside_parentheses, unwrapped

if TYPE_CHECKING:
    from extrapolate.api.evaluate_together import Evaluated
    from extrapolate.evaluation.lengths import EvaluationSettings


_WHAT, _TEXT, _RUNS, _MACHINE = (
    partial(typer.Option, rich_help_panel=title) for title in ("What to evaluate", "Text", "Runs", "Machine")
)
FEW = 4  # runs that are named one by one
BY_WINDOW = "perplexity where every window counts alike, as published"


class Which(StrEnum):
    LAST, ALL = "last", "all"


def eval_lengths(
    runs: Annotated[list[Path], typer.Argument(help="runs, folders of them, hf:NAME_OR_FOLDER, or my_model.py:load")],
    factors: Annotated[str, _WHAT(help="evaluation lengths as multiples of the training length")] = "1,2,4,8,16",
    extend: Annotated[
        list[str] | None,
        _WHAT(
            help=f"an extension: pi, yarn:factor=8 + log-n; {ALL}: every one that applies; {WITHOUT_OWN}: leave out "
            f"the run's own; {AS_TRAINED}: nothing more, as is always evaluated; repeatable"
        ),
    ] = None,
    protocols: Annotated[
        list[str] | None,
        _WHAT(
            "--protocol",
            help=f"{registered.protocols()}, several, or {LEFT_OUT}; repeatable  "
            f"[default: {','.join(DEFAULT_PROTOCOLS)}]",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        _WHAT(min=1, help="tokens by which windows of sliding and yarn move on  [default: L/2; for yarn at most 256]"),
    ] = None,
    bos: Annotated[
        bool, _WHAT("--bos", help="begin every window with a beginning-of-text or end-of-text token")
    ] = False,
    probes: Annotated[
        list[str] | None,
        _WHAT(
            help=f"{registered.probes()}, with arguments such as mqar:pairs=8; several, all, or {LEFT_OUT}; repeatable"
        ),
    ] = None,
    trials: Annotated[int, _WHAT("--probe-trials", help="windows for each probe, length and depth")] = 64,
    split: Annotated[str, _TEXT(help="the held-out text: test or validation")] = "test",
    max_targets: Annotated[
        str | None,
        _TEXT(
            help="the most scored tokens of a protocol: 4096 lowers the defaults; windows=500000,fixed-target=16384 "
            f"sets each  [default: {registered.most_targets()}]"
        ),
    ] = None,
    position_bucket: Annotated[
        int | None,
        _TEXT(min=1, help="tokens in a bucket of the losses by position; it divides L  [default: L/2]"),
    ] = None,
    keep_losses: Annotated[
        bool, _TEXT("--keep-losses", help="also keep the loss of every scored token, in eval_targets.parquet")
    ] = False,
    checkpoint: Annotated[
        Which, _RUNS(help="last: the final weights; all: also those that --keep-every kept")
    ] = Which.LAST,
    precisions: Annotated[
        str, _MACHINE("--precision", help=f"{', '.join(PRECISIONS)}, or several: fp32,int8")
    ] = "fp32",
    device: Annotated[Device, _MACHINE(envvar="EXTRAPOLATE_DEVICE", help="what computes")] = Device.AUTO,
    data: Annotated[Path | None, _TEXT(help="token store  [default: the one of the training]")] = None,
    seq_len: Annotated[
        int | None, _RUNS(min=2, help="with hf: training length L, tokens  [default: as the checkpoint says]")
    ] = None,
    trust_code: Annotated[
        bool, _RUNS("--trust-code", help="run Python files that came with the runs; read them first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate runs at several lengths.

    Runs are evaluated plain and with extensions, each with those that apply to it. The rows are added to each run's
    evals.parquet. A run that fails does not stop the others: the command says why, and ends with exit code 1.

    hf:NAME_OR_FOLDER is a checkpoint of Hugging Face, of a kind that docs/checkpoints.md names: it becomes the run
    ckpt/hf-NAME.
    my_model.py:load is a function of your file that returns a model of another library: see docs/checkpoints.md.
    """
    from extrapolate.api.evaluate import evaluate_with
    from extrapolate.api.failures import RunsFailed
    from extrapolate.cli.flags import CommandLine
    from extrapolate.data.probes.base import parse_probes
    from extrapolate.evaluation.lengths import EvaluationSettings
    from extrapolate.evaluation.protocols.base import with_arguments
    from extrapolate.terminal import say

    named = ",".join(DEFAULT_PROTOCOLS) if protocols is None else _joined(protocols, "--protocol")
    cap, caps = _max_targets(max_targets or "")
    settings = EvaluationSettings(
        factors=tuple(numbers_of(factors)),
        extensions=tuple(dict.fromkeys(extend or [])),
        protocols=() if named == LEFT_OUT else with_arguments(_specs_of(named), stride, bos),
        split=split,
        max_targets=cap,
        max_targets_of=caps,
        checkpoint=checkpoint.value,
        precisions=names_of(precisions),
        probes=() if probes is None else parse_probes(_joined(probes, "--probes")),
        probe_trials=trials,
        position_bucket=position_bucket,
        keep_losses=keep_losses,
    )
    shown = partial(_show, settings=settings, as_json=as_json)
    try:
        found = evaluate_with(
            settings, runs, device=device.value, data=data, seq_len=seq_len, trust_code=trust_code,
            progress=CommandLine(),
        )  # fmt: skip
    except RunsFailed as failure:
        shown(failure.evaluated)
        raise
    shown(found)
    say(f"make a report with: extrapolate report {_named(runs)}")


def _named(runs: list[Path]) -> str:
    """The runs as `report` takes them: a checkpoint of elsewhere has become a run in ckpt/."""
    places = list(dict.fromkeys(str(run) if run.is_dir() else "ckpt" for run in runs))
    return shlex.join(places[:FEW]) + (" and the other runs" if len(places) > FEW else "")


def _show(found: "Evaluated", settings: "EvaluationSettings", as_json: bool) -> None:
    """Prints the rows, or a table for each protocol and for the probes."""
    from extrapolate.cli.render import print_json, print_line, print_table
    from extrapolate.evaluation.protocols.base import known_by
    from extrapolate.reports import tables
    from extrapolate.reports.probes import printed

    if as_json:
        print_json([*found.rows, *found.probe_rows])
        return
    for name in settings.protocols:
        if not any(row["protocol"] == name for row in found.rows):
            continue  # the runs failed before it
        table = tables.formatted(tables.quick_table(found.rows, name))
        print_table(table, f"{name}, loss in nats per token", names=list(table.columns).index("model") + 1)
        if known_by(name).by_window:
            table = tables.formatted(tables.quick_table(found.rows, name, "window_perplexity"))
            print_table(table, f"{name}, {BY_WINDOW}", names=list(table.columns).index("model") + 1)
        for line in tables.verdicts(found.rows, name):
            print_line(line)
    for table, title in printed(found.probe_rows):
        print_table(table, title)


def _joined(given: list[str], flag: str) -> str:
    """The values of a repeatable flag, joined by commas. Raises UserError if `off` is not the only one."""
    texts = list(dict.fromkeys(text.strip() for text in given))
    if LEFT_OUT in texts and len(texts) > 1:
        raise UserError(f"{flag} {LEFT_OUT} leaves out all: give it alone, or leave it out")
    return ",".join(texts)


def _specs_of(text: str) -> list[str]:
    """What commas part; where several arguments are given, within parentheses."""
    return [unwrapped(part.strip()) for part in split_outside_parentheses(text, ",")]


def names_of(text: str) -> tuple[str, ...]:
    """What commas part, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def numbers_of(text: str) -> list[float]:
    """The factors that commas part. Raises UserError if one is no number."""
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UserError(f"--factors '{text}' is not a list of numbers: expected something like 1,2,4,8,16") from None


def _max_targets(text: str) -> tuple[int | None, dict[str, int]]:
    """The number that stands alone, and the numbers of protocols: `4096,windows=8192` is 4096 and {windows: 8192}."""
    cap: int | None = None
    caps: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        protocol, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not (number.isdecimal() and len(number) < 20) or int(number) < 1 or (equals and not protocol):
            raise UserError(
                f"--max-targets '{text}': '{part}' is not a number of tokens; write 4096, or "
                "windows=500000,fixed-target=16384, or both: 4096,windows=8192"
            )
        if protocol in caps or (not equals and cap is not None):
            raise UserError(f"--max-targets '{text}' has two numbers for {protocol or 'all protocols'}: give one")
        if equals:
            caps[protocol] = int(number)
        else:
            cap = int(number)
    return cap, caps
