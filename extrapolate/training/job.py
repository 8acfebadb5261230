"""A training with everything resolved: a new one, one that starts from another run's weights, or one to resume."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.folders import STATE
from extrapolate.runs import config as configs
from extrapolate.runs import resolve
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest
from extrapolate.runs.run import CONFIG, Run, check_same
from extrapolate.runs.weights import Checkpoint
from extrapolate.training.fine_tuning import origin_of, own_extension, resolve_fine_tuning
from extrapolate.training.half import kept


@dataclass(frozen=True)
class TrainingJob:
    """What decides a training and what it leaves behind.

    path: the run's folder. user_encoding: the user's file that its encoding comes from. extension: the run's own, as in
    its configuration. start: the weights that a run with an origin begins with. save_every: tokens between saved states
    (default: every 30 s). keep_every: tokens between checkpoints kept for evaluation (default: none). half: also keep a
    model of half the budget, if it is long enough (see `half`).
    """

    config: TrainedConfig
    store: Store
    path: Path
    user_encoding: Path | None = None
    extension: ExtensionStack | None = None
    start: Checkpoint | None = None
    save_every: int | None = None
    keep_every: int | None = None
    half: bool = False

    @classmethod
    def new(cls, request: TrainingRequest, store: Store, out: Path | None) -> "TrainingJob":
        """A run that begins. out: its folder (default: in `ckpt`, with a name made from its settings).

        Raises UserError if a setting is unknown or out of range, or the run whose weights it starts from does not fit.
        """
        extension: ExtensionStack | None = None
        if request.start is None:
            config, user_encoding = resolve.resolve(request, store)
        else:
            config, user_encoding, extension = resolve_fine_tuning(request.start, request, store)
        path = out or Path("ckpt") / resolve.run_name(config)
        return cls(config, store, path, user_encoding, extension).keeping(request)

    @classmethod
    def resumed(cls, run: Run, request: TrainingRequest, store: Store) -> "TrainingJob":
        """A run that goes on with its own settings, after `check_resumed`."""
        return cls(run.trained, store, run.path, run.own_encoding()).keeping(request)

    def keeping(self, request: TrainingRequest) -> "TrainingJob":
        """The job with what the request wants kept, and the weights to start from unless it has a state of its own."""
        start = None
        if request.start is not None and not (self.path / STATE).exists():
            start = Run.open(request.start).checkpoints("last")[-1]
        return replace(
            self, start=start, save_every=request.save_every, keep_every=request.keep_every,
            half=kept(self.config, request.half),
        )  # fmt: skip


def run_in(path: Path) -> Run | None:
    """The run that a folder holds, or None. Raises UserError if it is damaged, or was not trained here."""
    if not (path / CONFIG).is_file():
        return None
    run = Run.open(path)
    _ = run.trained  # raises if it was trained elsewhere
    return run


def check_resumed(run: Run, request: TrainingRequest, store: Store | None) -> None:
    """Raises UserError if anything in a request differs from the run in its folder, or the run's device is not there.

    store: the one that was named, if any. If the folder of the run that it started from is gone, its name must match
    the run's record.
    """
    known = run.trained
    if known.training.device == "cuda" and not run.finished and not torch.cuda.is_available():
        raise UserError(
            f"{run.path} is trained on cuda, and this machine has no CUDA device that torch can use: resume it on one "
            "that has"
        )
    file = resolve.read_file(request.file)
    model = resolve.section(file, "model") | resolve.given_values(request.model)
    if "heads" in model and "kv_heads" not in model:
        model["kv_heads"] = model["heads"]
    training = resolve.section(file, "training") | resolve.given_values(request.training)
    raw = known.model_dump() | {
        "preset": request.preset or file.get("preset") or known.preset,
        "label": request.label or file.get("label") or known.label,
        "model": known.model.model_dump() | model,
        "training": known.training.model_dump() | training,
    }
    if store is not None:
        raw["data"] = resolve.data_section(store)
    if "corpus_hash" in (data := resolve.section(file, "data")):
        raw["data"] = raw["data"] | {"corpus_hash": data["corpus_hash"]}
    if (start := request.start) is not None:
        origin = known.origin
        gone = origin is not None and not start.exists() and start.name == origin.run
        raw["origin"] = raw["origin"] if gone else origin_of(start)
    if request.extend is not None:
        own = own_extension(request.extend, run.own_extension)
        raw |= {"extension": own.text if own else None, "extension_sha256": own.sha256() if own else None}
    if request.pe is not None or "encoding" in file:
        raw["encoding"] = resolve.encoding_section(request, file)
    config = configs.validate(raw, str(request.file) if request.file else str(run.path))
    if request.pe is not None or "encoding" in file:
        config, _ = resolve.with_resolved_encoding(config)
    check_same(run, config)
