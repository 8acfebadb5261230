"""xt.train_many"""

from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

from extrapolate.api.own_class import EncodingClass, as_spec
from extrapolate.api.tokenize import default_store
from extrapolate.api.train import Shown, both, opened_store, path_of
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.interop import trackers
from extrapolate.interop.trackers import Tracking
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.machine.ranks import processes
from extrapolate.model.decoder import Model
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.resolve import TrainingRequest, data_path, resolve, run_name
from extrapolate.runs.resolve import check as check_request
from extrapolate.runs.resuming import resolve_resumed, run_in
from extrapolate.runs.run import Run
from extrapolate.training import many, stacked
from extrapolate.training.many import Planned


def train_many(
    encoding: str | EncodingClass | None = None,
    *,
    seeds: Iterable[int] = (0,),
    lrs: Iterable[float] | None = None,
    seq_len: int | None = None,
    data: str | Path | Store | None = None,
    preset: str | None = None,
    tokens: int | None = None,
    batch_tokens: int | None = None,
    optimizer: str | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    ssmax: bool | None = None,
    qk_norm: bool | None = None,
    qkv_bias: bool | None = None,
    probes: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    save_every: int | None = None,
    keep_every: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    compile: bool | None = None,
    config: str | Path | None = None,
    tracker: str | None = None,
    trust_code: bool = False,
    progress: Progress = QUIET,
) -> list[Run]:
    """Trains a model for each seed and learning rate, all at once, and returns their runs.

    seeds: one run for each (default: 0). lrs: with each of these peak learning rates, all seeds (default: what the
    configuration file, the preset or L decides). out: the folder that the runs' folders are made in (default: ckpt/);
    theirs are called after the settings. resume: runs that are there go on from their last saved state, or stay as they
    are where they are finished. Other arguments are those of `train`, and hold for all runs.

    Each run is what `train` makes, but for rounding. Raises what `train` raises, and UserError for a model with
    dropout, or with an encoding that several models at once cannot have.
    """
    keep_freed_memory()
    trackers.check(tracker)
    if processes() > 1:
        raise UserError("several models at once are trained by one process: start the command without torchrun")
    training = {
        "seq_len": seq_len, "tokens": tokens, "batch_tokens": batch_tokens, "optimizer": optimizer, "compile": compile,
        "probes": probes, "device": None if device == "auto" else device,
        "precision": None if precision == "auto" else precision,
    }  # fmt: skip
    all_seeds, all_lrs = list(seeds), [None] if lrs is None else list(lrs)
    for name, values in (("seeds", all_seeds), ("lrs", all_lrs)):
        if not values or len(set(values)) < len(values):
            raise UserError(f"name at least one of `{name}`, and each once, not {values}")
    with nullcontext() if encoding is None else as_spec(encoding) as spec:
        request = TrainingRequest(
            spec, preset, path_of("config", config),
            {
                "layers": layers, "width": width, "heads": heads, "ssmax": ssmax, "qk_norm": qk_norm,
                "qkv_bias": qkv_bias,
            },
            training, trust_code,
        )  # fmt: skip
        folder = path_of("out", out) or Path("ckpt")
        check_request(request)
        store = opened_store(data if data is not None else data_path(request)) or default_store(progress)
        planned = [
            _planned(
                replace(request, training=training | {"seed": seed, "lr": lr}), store, folder, resume, len(all_lrs) > 1
            )
            for lr in all_lrs
            for seed in all_seeds
        ]
        first = planned[0].config
        name = first.encoding.name
        if planned[0].user_encoding is not None:
            name = f"{planned[0].user_encoding}:{name.rpartition(':')[2]}"
        stacked.check(Model(first.model, name, first.encoding.arguments, first.seq_len))
        with progress.display("tokens") as display, ExitStack() as tracks:
            shown = Shown(first, f"{len(planned)} runs", display.update, len(planned))
            told = [
                tracks.enter_context(trackers.tracked(one.path, Tracking(tracker), progress.say)) for one in planned
            ]
            reported = [
                replace(one, report=both(shown.report, track)) for one, track in zip(planned, told, strict=True)
            ]
            runs = many.train_many(
                reported, store, resume=resume, save_every=save_every, keep_every=keep_every, progress=shown.advance,
            )  # fmt: skip
    if not shown.last:
        progress.say(f"all {len(runs)} runs are already finished: nothing to do")
        return runs
    for run in runs:
        seconds = run.training_seconds()
        progress.say(f"trained {run.path}" + ("" if seconds is None else f": {seconds:.0f} s"))
    return runs


def _planned(request: TrainingRequest, store: Store, folder: Path, resume: bool, several_lrs: bool) -> Planned:
    config, user_file = resolve(request, store)
    name = run_name(config) + (f"-lr{config.training.lr:g}" if several_lrs else "")
    path = folder / name
    there = run_in(path) if resume else None
    if there is not None:
        if request.trust_code:
            there.trust_code()
        config, user_file = resolve_resumed(there, request, store=store)
    return Planned(config, path, user_file)
