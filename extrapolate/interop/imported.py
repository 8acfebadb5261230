"""Imports checkpoints that were trained elsewhere as runs, which are evaluated like all others."""

import os
from contextlib import suppress
from pathlib import Path

from extrapolate import files
from extrapolate.data import special_tokens
from extrapolate.data import tokenizer as tokenizers
from extrapolate.errors import UserError
from extrapolate.folders import WEIGHTS
from extrapolate.interop import huggingface
from extrapolate.runs import config as configs
from extrapolate.runs import resolve
from extrapolate.runs.config import ImportedConfig
from extrapolate.runs.run import CONFIG, Run, model_of
from extrapolate.runs.weights import describe, load_weights


def place_of(name: str, folder: Path = Path("ckpt")) -> Path:
    """The folder of an imported checkpoint that keeps the training length of its own configuration."""
    return folder / f"hf-{_model_name(name)}"


def _model_name(name: str) -> str:
    """The last part of a folder's path, or of a name on the Hub."""
    return Path(os.path.expanduser(name)).resolve().name


def lengths_of(name: str) -> tuple[int, int]:
    """L, and the longest window that a checkpoint was made for, by its own configuration, tokens. Reads no weights.

    name: a local folder, or a name on the Hub. Raises UserError if the checkpoint cannot be reproduced exactly.
    """
    source = huggingface.find(name)
    return huggingface.rotary_of(source).seq_len, source.config.whole("max_position_embeddings")


def import_checkpoint(name: str, seq_len: int | None = None, folder: Path = Path("ckpt")) -> Run:
    """Imports a checkpoint of Hugging Face as a run in `folder`, or opens the run if it was imported before.

    name: a local folder, or a name on the Hub. seq_len: the training length L in tokens (default: the checkpoint's
    own); each L has its own run. Raises UserError if the checkpoint cannot be read or reproduced exactly, or if the
    run's folder holds something else.
    """
    source = huggingface.find(name)
    usual = huggingface.rotary_of(source)
    rotary = usual if seq_len is None else huggingface.rotary_of(source, seq_len)
    tokenizer = tokenizers.read(source.tokenizer)
    model_name = _model_name(name)
    other_length = f"-L{rotary.seq_len}" if rotary.seq_len != usual.seq_len else ""
    raw = {
        "encoding": {"name": rotary.encoding, "arguments": rotary.arguments},
        "model": huggingface.sizes_of(source).model_dump(),
        "extension": rotary.extension,
        "imported": {
            "name": model_name, "source": name, "sha256": source.sha256(), "seq_len": rotary.seq_len,
        },
    }  # fmt: skip
    config, _ = resolve.with_resolved_encoding(configs.validate_as(ImportedConfig, raw, str(source.folder)))
    path = Path(f"{place_of(name, folder)}{other_length}")
    with files.locked(path):
        files.remove_partials(path)
        if (path / CONFIG).exists():
            run = Run.open(path)
            if run.config.config_hash() != config.config_hash():
                raise UserError(f"{path} holds another run, or another version of {name}: rename it, or delete it")
            if run.finished:
                return run
        elif (path / WEIGHTS).exists():
            raise UserError(f"{path} holds weights without a {CONFIG}: delete it")
        said = special_tokens.kept_in(source.folder, special_tokens.CONFIG)
        special = special_tokens.files_of(special_tokens.usable_ids(tokenizer, said), source.folder)
        if (same := _same_weights(folder, config.imported.sha256)) is not None:
            run = Run.create(path, config, source.tokenizer.read_bytes(), special=special)
            with suppress(OSError):  # a disk without hard links gets a copy
                os.link(same, path / WEIGHTS)
                return run
        weights = huggingface.weights_of(source, config.model)
        model = model_of(config)
        load_weights(model, weights, str(source.folder))
        run = Run.create(path, config, source.tokenizer.read_bytes(), special=special)
        run.save_weights(model, 0, 0, final=True)
        return run


def _same_weights(folder: Path, sha256: str) -> Path | None:
    """The weights of a checkpoint, by the hash of its files, if it was imported before: those of every L are equal."""
    for path in sorted(folder.glob(f"hf-*/{WEIGHTS}")):
        with suppress(UserError):  # it is damaged
            if describe(path).config_sha256 == sha256:
                return path
    return None
