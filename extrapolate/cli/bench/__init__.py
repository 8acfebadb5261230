"""extrapolate bench"""

from typing import Annotated

import typer

from extrapolate.cli.flags import AsJson
from extrapolate.cli.registered import protocols, registered
from extrapolate.errors import UserError
from extrapolate.runs.presets import PRESETS

# What is measured, and the options that say how. Training is what is measured where nothing else is asked for.
_KINDS = {
    "training": {"preset", "seq_len", "compile", "seconds", "busy"},
    "encodings": {"preset", "seq_len", "seconds", "pe"},
    "evaluation": {"preset", "seq_len", "tokens", "protocol", "precision", "busy"},
    "tokenize": {"source", "megabytes", "busy"},
    "start_up": {"busy"},
    "all": {
        "preset", "seq_len", "compile", "seconds", "tokens", "protocol", "precision", "source", "megabytes", "busy",
        "markdown",
    },
}  # fmt: skip
_WHAT, _MODEL, _EVALUATION = "What to measure (default: training)", "How to measure", "With --evaluation or --all"
_TOKENIZE = "With --tokenize or --all"
# A table of everything has less time for each figure.
_SECONDS, _TOKENS, _MEGABYTES, _BUSY = 10.0, 196_608, 64.0, 0
_SECONDS_ENCODINGS = 3.0
_SECONDS_ALL, _TOKENS_ALL, _MEGABYTES_ALL, _BUSY_ALL, _PRESETS_ALL = 2.0, 12_288, 8.0, 1, ("tiny", "expe-35m")
_START_ROUNDS_ALL = 3


def bench(
    ctx: typer.Context,
    encodings: Annotated[
        bool, typer.Option("--encodings", rich_help_panel=_WHAT, help="the speed of every encoding beside rope")
    ] = False,
    evaluation: Annotated[
        bool,
        typer.Option(
            "--evaluation",
            rich_help_panel=_WHAT,
            help="an evaluation at five lengths, beside a plain loop and lm-eval",
        ),
    ] = False,
    tokenize: Annotated[
        bool,
        typer.Option("--tokenize", rich_help_panel=_WHAT, help="the tokenising of text, beside datasets.Dataset.map"),
    ] = False,
    start_up: Annotated[
        bool, typer.Option("--start-up", rich_help_panel=_WHAT, help="how long the program takes to answer")
    ] = False,
    all: Annotated[
        bool,
        typer.Option(
            "--all",
            rich_help_panel=_WHAT,
            help="training, evaluation, tokenising and start-up in one table; takes 10 to 15 minutes",
        ),
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MODEL,
            help=f"the model's sizes: {', '.join(PRESETS)}  [default: tiny; with --all {' and '.join(_PRESETS_ALL)}]",
        ),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(min=2, rich_help_panel=_MODEL, help="training length L, tokens  [default: the preset's, or 64]"),
    ] = None,
    compile: Annotated[
        bool,
        typer.Option("--compile/--no-compile", rich_help_panel=_MODEL, help="measure compiled training too"),
    ] = True,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            rich_help_panel=_MODEL,
            help="seconds for each measurement of training or of an encoding  "
            f"[default: {_SECONDS:g}; with --encodings {_SECONDS_ENCODINGS:g}, with --all {_SECONDS_ALL:g}]",
        ),
    ] = None,
    busy: Annotated[
        int | None,
        typer.Option(
            min=0,
            rich_help_panel=_MODEL,
            help="measure once more beside so many programs that compute all the time, for a column of its own  "
            f"[default: {_BUSY}; with --all {_BUSY_ALL}]",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=_EVALUATION,
            help=f"how many tokens the protocol windows scores  [default: {_TOKENS}; with --all {_TOKENS_ALL}]",
        ),
    ] = None,
    protocol: Annotated[str, typer.Option(rich_help_panel=_EVALUATION, help=f"{protocols()}, or several")] = ",".join(
        registered("evaluation/protocols")
    ),
    precision: Annotated[str, typer.Option(rich_help_panel=_EVALUATION, help="fp32, bf16, or both")] = "fp32,bf16",
    source: Annotated[str, typer.Option(rich_help_panel=_TOKENIZE, help="whose text, as for tokenize")] = "stdlib",
    megabytes: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            rich_help_panel=_TOKENIZE,
            help=f"how much text  [default: {_MEGABYTES:g}; with --all {_MEGABYTES_ALL:g}]",
        ),
    ] = None,
    pe: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel="With --encodings", help="measure this one beside rope; repeatable"),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", rich_help_panel="With --all", help="print the table in Markdown")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed and memory.

    Training speed stands beside that of transformers' Llama and of the bare matrix products. Every number of a table
    is from one run: close other programs first.
    """
    if markdown and as_json:
        raise UserError("give one of --markdown and --json")
    kind = _kind(
        {"encodings": encodings, "evaluation": evaluation, "tokenize": tokenize, "start_up": start_up, "all": all}
    )
    given = {name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    if not compile:
        given.discard("compile")  # what is never compiled may be asked not to be
    _refuse(kind, given - _KINDS.keys() - {"as_json"})
    protocols, precisions = (
        _chosen(protocol, "protocol", list(registered("evaluation/protocols"))),
        _chosen(precision, "precision", ["fp32", "bf16"]),
    )
    if kind == "all":
        from extrapolate.benchmark.everything import Settings
        from extrapolate.cli.bench import everything

        settings = Settings(
            presets=_PRESETS_ALL if preset is None else (preset,),
            seq_len=seq_len,
            compiled=compile,
            seconds=_SECONDS_ALL if seconds is None else seconds,
            tokens=_TOKENS_ALL if tokens is None else tokens,
            protocols=tuple(protocols),
            precisions=tuple(precisions),
            source=source,
            megabytes=_MEGABYTES_ALL if megabytes is None else megabytes,
            start_rounds=_START_ROUNDS_ALL,
            beside=_BUSY_ALL if busy is None else busy,
        )
        everything.show(settings, markdown, as_json)
        return
    preset, busy = preset or "tiny", busy or _BUSY
    if kind == "evaluation":
        from extrapolate.cli.bench import evaluation as evaluating

        evaluating.show(preset, seq_len, tokens or _TOKENS, protocols, precisions, busy, as_json)
    elif kind == "tokenize":
        from extrapolate.cli.bench import tokenizing

        tokenizing.show(source, megabytes or _MEGABYTES, busy, as_json)
    elif kind == "start_up":
        from extrapolate.cli.bench import startup

        startup.show(busy, as_json)
    elif kind == "encodings":
        from extrapolate.cli.bench import encodings as encoding

        encoding.show(pe, preset, seq_len, seconds or _SECONDS_ENCODINGS, as_json)
    else:
        from extrapolate.cli.bench import training

        training.show(preset, seq_len, compile, seconds or _SECONDS, busy, as_json)


def _kind(asked: dict[str, bool]) -> str:
    kinds = [kind for kind, wanted in asked.items() if wanted]
    if len(kinds) > 1:
        raise UserError(f"give one of {' and '.join(map(_flag, kinds))}: --all measures several kinds in one table")
    return kinds[0] if kinds else "training"


def _refuse(kind: str, given: set[str]) -> None:
    """Raises UserError on an option that says nothing about what is measured."""
    for name in sorted(given - _KINDS[kind]):
        fits = [other for other, options in _KINDS.items() if name in options]
        ways = [f"with {_flag(other)}" if other != "training" else "for training" for other in fits]
        what = "training" if kind == "training" else _flag(kind)
        raise UserError(f"{_flag(name)} says nothing about {what}; give it {' or '.join(ways)}, or leave it out")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _chosen(text: str, what: str, known: list[str]) -> list[str]:
    from extrapolate.specs import did_you_mean

    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UserError(f"unknown {what} '{name}'; {did_you_mean(name, known)}")
    if not names:
        raise UserError(f"name at least one {what}: {', '.join(known)}")
    return names
