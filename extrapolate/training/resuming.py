"""Continuing a run: its own settings, with which the given ones must agree."""

from pathlib import Path
from typing import Any

import torch

from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.runs import config as configs
from extrapolate.runs import resolve
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest
from extrapolate.runs.run import CONFIG, Run, check_same
from extrapolate.training.fine_tuning import origin_of, own_extension


def run_in(path: Path) -> Run | None:
    """The run that a folder holds, or None. Raises UserError if it is damaged, or was not trained here."""
    if not (path / CONFIG).is_file():
        return None
    run = Run.open(path)
    _ = run.trained  # raises where it was trained elsewhere
    return run


def resolve_resumed(
    run: Run,
    request: TrainingRequest,
    start: Path | None = None,
    extend: str | None = None,
    store: Store | None = None,
) -> tuple[TrainedConfig, Path | None]:
    """A run's configuration and its own copy of the user's encoding file, if it has one.

    What the request leaves out is the run's. `start` is the run that it started from: if that folder is gone, its name
    must be the one that the run knows. Raises UserError if anything given is not as in the run.
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
        "model": known.model.model_dump() | model,
        "training": known.training.model_dump() | training,
    }
    if store is not None:
        raw["data"] = resolve.data_section(store)
    if "corpus_hash" in (data := resolve.section(file, "data")):
        raw["data"] = raw["data"] | {"corpus_hash": data["corpus_hash"]}
    if start is not None:
        raw["origin"] = _origin(run, start)
    if extend is not None:
        own = own_extension(extend, run.own_extension)
        raw |= {"extension": own.text if own else None, "extension_sha256": own.sha256() if own else None}
    if request.pe is not None or "encoding" in file:
        raw["encoding"] = resolve.encoding_section(request, file)
    config = configs.validate(raw, str(request.file) if request.file else str(run.path))
    if request.pe is not None or "encoding" in file:
        config, _ = resolve.with_resolved_encoding(config)
    check_same(run, config)
    return known, run.own_encoding()


def _origin(run: Run, start: Path) -> dict[str, Any] | None:
    known = run.trained.origin
    if known is not None and not start.exists() and start.name == known.run:
        return known.model_dump()
    return origin_of(start)
