"""extrapolate train"""

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, TypeVar

import typer

from extrapolate.cli import registered
from extrapolate.errors import UserError
from extrapolate.runs.presets import PRESETS

N = TypeVar("N", int, float)


class Device(StrEnum):
    AUTO, CPU, CUDA = "auto", "cpu", "cuda"


class Precision(StrEnum):
    AUTO, FP32, BF16 = "auto", "fp32", "bf16"


def train(
    encoding: Annotated[
        str | None, typer.Option("--pe", help="the encoding: rope, expe:size=16, my_file.py:MyEncoding")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="training length L, tokens")] = None,
    data: Annotated[Path | None, typer.Option(help="token store  [default: data/stdlib, made on first use]")] = None,
    preset: Annotated[str | None, typer.Option(help=f"{', '.join(PRESETS)}  [default: tiny]")] = None,
    tokens: Annotated[int | None, typer.Option(help="training budget, tokens")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="tokens in one step")] = None,
    lr: Annotated[float | None, typer.Option(help="peak learning rate")] = None,
    layers: Annotated[int | None, typer.Option(help="number of blocks, in place of the preset's")] = None,
    ssmax: Annotated[bool | None, typer.Option("--ssmax", help="multiply the scores of query i by s ln(i + 1)")] = None,
    qk_norm: Annotated[bool | None, typer.Option("--qk-norm", help="normalise queries and keys per head")] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            help=f"share of windows for each probe ({registered.probes()}): passkey=0.25,mqar=0.25; off: all text"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of weights, order and dropout  [default: 0]")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="several models at once, one for each seed: 0,1,2; --out is the folder of all")
    ] = None,
    lrs: Annotated[
        str | None, typer.Option(help="several models at once, one for each learning rate (and seed): 1e-3,3e-3")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the run's folder  [default: ckpt/<name>]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out, with its own settings")] = False,
    save_every: Annotated[int | None, typer.Option(min=1, help="tokens between saved states  [default: 30 s]")] = None,
    keep_every: Annotated[
        int | None,
        typer.Option(min=1, help="tokens between checkpoints that are kept for evaluation  [default: none]"),
    ] = None,
    device: Annotated[Device, typer.Option()] = Device.AUTO,
    precision: Annotated[Precision, typer.Option(help="auto: bf16 where the hardware computes in it")] = Precision.AUTO,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="use torch.compile  [default: where the run is long enough]"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="read settings from a TOML file, or a run's config.json")] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="start from the weights of this run, or of hf:NAME_OR_FOLDER, as another run"),
    ] = None,
    extend: Annotated[
        str | None,
        typer.Option(
            help="with --from: the extension that belongs to the new run: pi:factor=4; without-own: it has none"
        ),
    ] = None,
    fsdp: Annotated[
        bool,
        typer.Option(
            "--fsdp", help="where torchrun starts several processes: each holds a part of the model, not all of it"
        ),
    ] = False,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="run Python files that came with a run or --config; read them first")
    ] = False,
) -> None:
    """Train one model. Flags win over --config, which wins over --preset."""
    from extrapolate.api.train import train as trained
    from extrapolate.cli.flags import CommandLine
    from extrapolate.cli.progress import say

    if seeds is not None or lrs is not None:
        refused = {
            "--seed": seed, "--lr": lr, "--from": start, "--extend": extend, "--fsdp": fsdp or None,
        }  # fmt: skip
        if given := [flag for flag, value in refused.items() if value is not None]:
            raise UserError(f"--seeds and --lrs cannot be combined with {', '.join(given)}")
        from extrapolate.api.train_many import train_many

        train_many(
            encoding, seeds=_numbers("--seeds", seeds, int) if seeds is not None else (0,),
            lrs=_numbers("--lrs", lrs, float) if lrs is not None else None, seq_len=seq_len, data=data, preset=preset,
            tokens=tokens, batch_tokens=batch_tokens, layers=layers, ssmax=ssmax, qk_norm=qk_norm, probes=probes,
            out=out, resume=resume, save_every=save_every, keep_every=keep_every, device=device.value,
            precision=precision.value, compile=compile, config=config, trust_code=trust_code, progress=CommandLine(),
        )  # fmt: skip
        say(f"evaluate them with: extrapolate eval-lengths {quote(str(out or 'ckpt'))}")
        return
    run = trained(
        encoding, seq_len=seq_len, data=data, preset=preset, tokens=tokens, batch_tokens=batch_tokens, lr=lr,
        layers=layers, ssmax=ssmax, qk_norm=qk_norm, probes=probes, seed=seed, out=out, resume=resume,
        save_every=save_every, keep_every=keep_every, device=device.value, precision=precision.value,
        compile=compile, config=config, start=start, extend=extend, fsdp=fsdp, trust_code=trust_code,
        progress=CommandLine(),
    )  # fmt: skip
    say(f"evaluate it with: extrapolate eval-lengths {quote(str(run.path))}")


def _numbers(flag: str, text: str, kind: type[N]) -> list[N]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{flag} {text}: give numbers with commas between them, such as 1,2,3") from None
