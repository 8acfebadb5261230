"""Checkpoints that were trained elsewhere, brought in as runs: evaluated like all others, their training unknown."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.store import HELDOUT, Split, Store
from extrapolate.interop import huggingface
from extrapolate.model.decoder import Model
from extrapolate.runs import config as configs
from extrapolate.runs import resolve
from extrapolate.runs.config import RunConfig
from extrapolate.runs.run import CONFIG, WEIGHTS, Run
from extrapolate.runs.weights import load_weights

PREFIX = "hf:"


def bring_in(name: str, seq_len: int | None = None, folder: Path = Path("ckpt")) -> Run:
    """The run in `folder` that holds a checkpoint of Hugging Face, made where it is not there yet.

    `name` is a local folder or a name on the Hub, `seq_len` the training length L in tokens, where it is not what
    the checkpoint's configuration says; a run of another L is another run. Raises ValueError where the checkpoint
    cannot be read or reproduced exactly, or its place is taken.
    """
    source = huggingface.find(name)
    usual = huggingface.rotary_of(source)
    rotary = usual if seq_len is None else huggingface.rotary_of(source, seq_len)
    tokenizers.read(source.tokenizer)
    model_name = source.folder.resolve().name if Path(name).expanduser().is_dir() else name.rpartition("/")[2]
    other_length = f"-L{rotary.seq_len}" if rotary.seq_len != usual.seq_len else ""
    unknown = {"preset": None, "training": None, "data": None}
    raw = unknown | {
        "encoding": {"name": "rope", "arguments": {"theta": rotary.theta}},
        "model": huggingface.sizes_of(source).model_dump(),
        "extension": rotary.extension,
        "imported": {
            "name": model_name, "source": name, "sha256": source.sha256(), "seq_len": rotary.seq_len,
        },
    }  # fmt: skip
    config, _ = resolve.with_resolved_encoding(configs.validate(raw, str(source.folder)))
    path = folder / f"hf-{model_name}{other_length}"
    with files.locked(path):
        files.remove_partials(path)
        if (path / CONFIG).exists():
            run = Run.open(path)
            if run.config.config_hash() != config.config_hash():
                raise ValueError(f"{path} holds another run, or another version of {name}: rename it, or delete it")
            if run.finished:
                return run
        elif (path / WEIGHTS).exists():
            raise ValueError(f"{path} holds weights without a {CONFIG}: delete it")
        return _converted(source, config, path)


def _converted(source: huggingface.Source, config: RunConfig, path: Path) -> Run:
    weights = huggingface.weights_of(source, config.model)
    model = Model(config.model, config.encoding.name, config.encoding.arguments, config.seq_len)
    load_weights(model, weights, str(source.folder))
    run = Run.create(path, config, source.tokenizer)
    run.save_weights(model, 0, 0, final=True)
    return run


def check_text(run: Run, store: Store) -> None:
    """Raises ValueError unless the text that a store holds out is in the run's own tokens."""
    if _splitting(tokenizers.read(run.path / "tokenizer.json")) != _splitting(store.tokenizer()):
        raise ValueError(
            f"{store.path} was made with another tokenizer than that of {run.path}; tokenise the text with its own: "
            f"extrapolate tokenize SOURCE --tokenizer {run.path}/tokenizer.json --out {store.path}-{run.name}"
        )
    largest = max(_largest_token(store.split(name)) for name in HELDOUT)
    if largest >= run.config.model.vocab_size:
        raise ValueError(
            f"{store.path} holds the token {largest}, and {run.path} has embeddings for "
            f"{run.config.model.vocab_size}: its tokenizer.json is not the one that it was trained with"
        )


def _largest_token(split: Split) -> int:
    """End-of-text tokens, which no evaluation reads, are left out: the store may have added theirs."""
    documents = zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True)
    return max((int(split.slice(start, end - 1).max(initial=0)) for start, end in documents), default=0)


def _splitting(tokenizer: Tokenizer) -> dict[str, Any]:
    """All of a tokenizer that decides which tokens a text becomes: not its special tokens, nor how it decodes."""
    settings = json.loads(tokenizer.to_str())
    return {name: settings.get(name) for name in ("normalizer", "pre_tokenizer", "model")} | {
        "added_tokens": [token for token in settings.get("added_tokens") or [] if not token["special"]]
    }
