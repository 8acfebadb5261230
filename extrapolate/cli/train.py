"""extrapolate train"""

from enum import StrEnum
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from extrapolate.cli import registered
from extrapolate.cli.flags import Device, Tracker, from_environment
from extrapolate.folders import RUN_FILE
from extrapolate.runs.presets import PRESETS

_MODEL, _DATA, _TRAINING, _RUN, _OTHERS, _MACHINE = (
    partial(typer.Option, rich_help_panel=title)
    for title in ("Model", "Data", "Training", "The run", "From settings or a run", "Machine")
)


class Optimizer(StrEnum):
    MUON, ADAMW = "muon", "adamw"


class Precision(StrEnum):
    AUTO, FP32, BF16 = "auto", "fp32", "bf16"


def train(
    ctx: typer.Context,
    encoding: Annotated[
        str | None, _MODEL("--pe", help="the encoding: rope, expe:size=16, my_file.py:MyEncoding")
    ] = None,
    seq_len: Annotated[int | None, _MODEL(help="training length L, tokens")] = None,
    data: Annotated[
        Path | None, _DATA(envvar="EXTRAPOLATE_DATA", help="token store  [default: data/stdlib, made on first use]")
    ] = None,
    preset: Annotated[str | None, _MODEL(help=f"{', '.join(PRESETS)}  [default: tiny]")] = None,
    tokens: Annotated[int | None, _TRAINING(help="training budget, tokens")] = None,
    batch_tokens: Annotated[int | None, _TRAINING(help="tokens in one step")] = None,
    optimizer: Annotated[
        Optimizer | None, _TRAINING(help="muon, for the blocks' matrices, or adamw for all  [default: the preset's]")
    ] = None,
    lr: Annotated[float | None, _TRAINING(help="peak learning rate")] = None,
    layers: Annotated[int | None, _MODEL(help="number of blocks, in place of the preset's")] = None,
    width: Annotated[int | None, _MODEL(help="channels D of the residual stream, in place of the preset's")] = None,
    heads: Annotated[int | None, _MODEL(help="heads of attention, of D / heads channels each")] = None,
    ssmax: Annotated[bool | None, _MODEL("--ssmax", help="multiply the scores of query i by s ln(i + 1)")] = None,
    qk_norm: Annotated[bool | None, _MODEL("--qk-norm", help="normalise queries and keys per head")] = None,
    qkv_bias: Annotated[bool | None, _MODEL("--qkv-bias", help="biases of queries, keys and values")] = None,
    probes: Annotated[
        str | None,
        _DATA(help=f"share of windows for each probe ({registered.probes()}): passkey=0.25,mqar=0.25; off: all text"),
    ] = None,
    seed: Annotated[int | None, _TRAINING(help="seed of weights, order and dropout  [default: 0]")] = None,
    out: Annotated[Path | None, _RUN(help="the run's folder  [default: ckpt/<name>]")] = None,
    resume: Annotated[bool, _RUN("--resume", help="continue the run in --out, with its own settings")] = False,
    save_every: Annotated[int | None, _RUN(min=1, help="tokens between saved states  [default: 30 s]")] = None,
    keep_every: Annotated[
        int | None,
        _RUN(min=1, help="tokens between checkpoints that are kept for evaluation  [default: none]"),
    ] = None,
    tracker: Annotated[
        Tracker | None,
        _RUN(envvar="EXTRAPOLATE_TRACKER", help="tell it each row of the log: docs/setting-up.md  [default: none]"),
    ] = None,
    device: Annotated[Device, _MACHINE(envvar="EXTRAPOLATE_DEVICE", help="what computes")] = Device.AUTO,
    precision: Annotated[Precision, _MACHINE(help="auto: bf16 where the hardware computes in it")] = Precision.AUTO,
    compile: Annotated[
        bool | None,
        _MACHINE("--compile/--no-compile", help="use torch.compile  [default: where the run is long enough]"),
    ] = None,
    config: Annotated[Path | None, _OTHERS(help="read settings from a TOML file, or a run's config.json")] = None,
    start: Annotated[
        Path | None,
        _OTHERS("--from", help="start from the weights of this run, or of hf:NAME_OR_FOLDER, as another run"),
    ] = None,
    extend: Annotated[
        str | None,
        _OTHERS(help="with --from: the extension that belongs to the new run: pi:factor=4; without-own: it has none"),
    ] = None,
    fsdp: Annotated[
        bool,
        _MACHINE(
            "--fsdp", help="where torchrun starts several processes: each holds a part of the model, not all of it"
        ),
    ] = False,
    trust_code: Annotated[
        bool, _OTHERS("--trust-code", help="run Python files that came with a run or --config; read them first")
    ] = False,
) -> None:
    """Train one model. Flags win over --config, which wins over --preset."""
    from extrapolate.api.train import train as trained
    from extrapolate.cli.flags import CommandLine
    from extrapolate.terminal import say

    if from_environment(ctx, "data") and _told_otherwise(config, start, out, resume):
        data = None
    if from_environment(ctx, "device") and _told_otherwise(config, start, out, resume):
        device = Device.AUTO
    tracked, optimized = (None if one is None else one.value for one in (tracker, optimizer))
    run = trained(
        encoding, seq_len=seq_len, data=data, preset=preset, tokens=tokens, batch_tokens=batch_tokens,
        optimizer=optimized, lr=lr, layers=layers, width=width, heads=heads, ssmax=ssmax, qk_norm=qk_norm,
        qkv_bias=qkv_bias, probes=probes, seed=seed, out=out, resume=resume, save_every=save_every,
        keep_every=keep_every, device=device.value, precision=precision.value, compile=compile, config=config,
        start=start, extend=extend, fsdp=fsdp, tracker=tracked, trust_code=trust_code, progress=CommandLine(),
    )  # fmt: skip
    say(f"evaluate it with: extrapolate eval-lengths {quote(str(run.path))}")


def _told_otherwise(config: Path | None, start: Path | None, out: Path | None, resume: bool) -> bool:
    """Whether a file of settings or another run decides, so that the environment's defaults do not."""
    resumed = resume and out is not None and (out / RUN_FILE).is_file()
    return config is not None or start is not None or resumed
