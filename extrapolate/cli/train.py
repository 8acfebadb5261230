"""extrapolate train"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STORE = Path("data/stdlib")


class Device(StrEnum):
    AUTO, CPU, CUDA = "auto", "cpu", "cuda"


class Precision(StrEnum):
    AUTO, FP32, BF16 = "auto", "fp32", "bf16"


def train(
    pe: Annotated[str | None, typer.Option(help="the encoding: rope, expe:size=16, my_file.py:MyEncoding")] = None,
    seq_len: Annotated[int | None, typer.Option(help="training length L, tokens")] = None,
    data: Annotated[Path | None, typer.Option(help="token store  \\[default: data/stdlib, made on first use]")] = None,
    preset: Annotated[
        str | None, typer.Option(help="tiny, expe-35m, expe-135m, expe-342m, gpt-256  \\[default: tiny]")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="training budget, tokens")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="tokens in a step")] = None,
    lr: Annotated[float | None, typer.Option(help="peak learning rate")] = None,
    layers: Annotated[int | None, typer.Option(help="blocks, in place of the preset's")] = None,
    ssmax: Annotated[bool | None, typer.Option("--ssmax", help="scores of query i times s ln(i + 1)")] = None,
    qk_norm: Annotated[bool | None, typer.Option("--qk-norm", help="normalise queries and keys per head")] = None,
    probes: Annotated[
        str | None, typer.Option(help="shares of windows that are probes: passkey=0.25,mqar=0.25; all text: none")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="of weights, order and dropout  \\[default: 0]")] = None,
    out: Annotated[Path | None, typer.Option(help="run directory  \\[default: ckpt/<name>]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out, with its own settings")] = False,
    save_every: Annotated[int | None, typer.Option(min=1, help="tokens between states  \\[default: 30 s]")] = None,
    keep_every: Annotated[
        int | None, typer.Option(min=1, help="tokens between checkpoints kept for evaluation")
    ] = None,
    device: Annotated[Device, typer.Option()] = Device.AUTO,
    precision: Annotated[Precision, typer.Option(help="auto: bf16 where the hardware multiplies it")] = Precision.AUTO,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile  \\[default: where it pays]")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="settings from a TOML file, or a run's config.json")] = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="continue the weights of this run, as another run")
    ] = None,
    extend: Annotated[
        str | None, typer.Option(help="with --from: an extension that belongs to the new run, such as pi:factor=4")
    ] = None,
) -> None:
    """Train one model. Flags win over --config, which wins over --preset."""
    from extrapolate.cli.progress import Progress, say
    from extrapolate.data.store import Store
    from extrapolate.machine.allocator import keep_freed_memory
    from extrapolate.runs.resolve import TrainingRequest, data_path, resolve, run_name
    from extrapolate.runs.resuming import resumed, run_in
    from extrapolate.runs.run import STATE, Run
    from extrapolate.training.fine_tuning import continued, parent_of
    from extrapolate.training.loop import train as train_run

    keep_freed_memory()
    flags = {
        "seq_len": seq_len, "tokens": tokens, "batch_tokens": batch_tokens, "lr": lr, "seed": seed, "compile": compile,
        "probes": probes,
        "device": None if device is Device.AUTO else device.value,
        "precision": None if precision is Precision.AUTO else precision.value,
    }  # fmt: skip
    request = TrainingRequest(pe, preset, config, {"layers": layers, "ssmax": ssmax, "qk_norm": qk_norm}, flags)
    there = run_in(out) if resume and out is not None else None
    if extend is not None and start is None and (there is None or there.config.origin is None):
        raise ValueError("--extend belongs to a run that continues another: give --from RUN too")
    data = data or data_path(request)
    if there is not None:
        path = there.path
        resolved, user_file = resumed(there, request, start, extend, Store.open(data) if data else None)
        if there.finished:
            say(f"{path} is already finished: nothing to do")
            return
        store = Store.open(data or Path(resolved.data.path))
    else:
        store = Store.open(data or (Path(parent_of(start).config.data.path) if start else _default_store()))
        resolved, user_file = continued(start, request, extend, store) if start else resolve(request, store)
        path = out or Path("ckpt") / run_name(resolved)
    training = resolved.training
    train_tokens = store.manifest["splits"]["train"]["tokens"]
    if training.tokens > train_tokens:
        say(f"the budget of {training.tokens:,} tokens repeats the {train_tokens:,} training tokens")
    total = training.steps * training.batch_size * training.seq_len
    last: dict[str, float] = {}
    done = 0.0
    with Progress("tokens") as progress:

        def advance(what: str, inputs: float) -> None:
            nonlocal done
            done += inputs
            notes = [f"step {last.get('step', 0):.0f}/{training.steps}"] if last else []
            notes += [f"{name} {last[key]:.3f}" for name, key in (("loss", "loss"), ("val", "val_loss")) if key in last]
            notes += [f"lr {last['lr']:.1e}"] if "lr" in last else []
            part = path.name if what == "training" else f"{path.name}, {what}"
            progress.update(part, done, total, "  ".join(notes))

        def report(row: dict[str, float]) -> None:
            last.update(row)
            advance("training", 0)

        run = train_run(
            resolved, store, path, resume=resume, user_encoding=user_file,
            start=Run.open(start).checkpoints("last")[-1] if start and not (path / STATE).exists() else None,
            save_every=save_every, keep_every=keep_every, report=report, progress=advance,
        )  # fmt: skip
    if not last:
        say(f"{path} is already finished: nothing to do")
        return
    seconds = run.training_seconds()
    say(f"trained {path}: validation loss {last['val_loss']:.3f} nats, {seconds:.0f} s")
    say(f"evaluate it with: extrapolate eval-lengths {path}")


def _default_store() -> Path:
    """The default corpus, tokenised on first use."""
    from extrapolate.cli.progress import say
    from extrapolate.cli.tokenize import make_store
    from extrapolate.data.store import StoreSettings

    if not DEFAULT_STORE.exists():
        say(f"no --data: tokenising this Python's standard library into {DEFAULT_STORE}")
        make_store(StoreSettings(), DEFAULT_STORE)
    return DEFAULT_STORE
