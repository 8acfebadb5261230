"""Configurations of runs that continue another: at another length, or with an extension or another encoding."""

from pathlib import Path
from typing import Any

from extrapolate import specs
from extrapolate.data import special_tokens
from extrapolate.data.manifest import SPLITS
from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.evaluation.rows import label_of
from extrapolate.evaluation.text import check_text
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.names import AS_TRAINED, WITHOUT_OWN
from extrapolate.runs import config as configs
from extrapolate.runs import resolve
from extrapolate.runs.config import ImportedConfig, TrainedConfig
from extrapolate.runs.resolve import TrainingRequest
from extrapolate.runs.run import Run, model_of
from extrapolate.runs.training_config import RATES, TrainingConfig
from extrapolate.runs.weights import Checkpoint

TUNING_LR, TUNING_TOKENS = 0.1, 0.1  # default learning rate and budget, as shares of those of the run it continues


def resolve_fine_tuning(
    start: Path, request: TrainingRequest, store: Store
) -> tuple[TrainedConfig, Path | None, ExtensionStack | None]:
    """The configuration of a run that starts from the weights of `start`, the user's encoding file, and the extension.

    Settings default to those of the starting run, but the learning rate and the budget to a tenth of its. The extension
    belongs to the new run. Raises UserError if the starting run is not finished, if its corpus is another, if the
    request changes sizes, or if the run was imported and the request lacks a learning rate or a budget.
    """
    parent = Run.open(start)
    known = _of_imported(parent, request, store) if isinstance(parent.config, ImportedConfig) else parent.trained
    if store.corpus_hash != known.data.corpus_hash:
        raise UserError(
            f"{start} was trained on corpus {known.data.corpus_hash}, and {store.path} is "
            f"{store.corpus_hash}: name its own token store with `data`"
        )
    if request.file is not None or request.preset is not None or resolve.given_values(request.model):
        raise UserError(f"sizes are those of {start}: leave out `config`, `preset` and what changes the model")
    own_encoding = parent.own_encoding() if known.encoding.file_sha256 else None
    return continued(known, str(start), own_encoding, parent.own_extension, origin_of(start), request)


def store_of(start: Path) -> Path:
    """The token store that a run was trained on. Raises UserError if it was imported: its text is unknown."""
    run = Run.open(start)
    if isinstance(run.config, ImportedConfig):
        raise UserError(f"what {start} was trained on is not known: name a token store with its tokens as `data`")
    return Path(run.trained.data.path)


def _of_imported(run: Run, request: TrainingRequest, store: Store) -> TrainedConfig:
    """A checkpoint's configuration, as if it had been trained on the store with the request's settings."""
    config = run.config
    assert isinstance(config, ImportedConfig)
    given = resolve.given_values(request.training)
    if missing := [f"`{name}`" for name in ("lr", "tokens") if name not in given]:
        raise UserError(f"how {run.path} was trained is not known: give {' and '.join(missing)} of the fine-tuning")
    check_text(run, store, SPLITS)
    if (end := store.manifest["eos_id"]) >= config.vocab_size:
        raise UserError(
            f"{store.path} ends its texts with the token {end}, and {run.path} has embeddings for "
            f"{config.vocab_size}: use a checkpoint whose tokenizer has an end-of-text token"
        )
    # A step of the default size, or one window. The requested budget is checked later, with the whole request.
    step = max(TrainingConfig.model_fields["batch_tokens"].default, config.seq_len)
    raw = config.model_dump(exclude={"imported"}) | {
        "preset": config.imported.name,
        "training": {
            "optimizer": "adamw",
            "seq_len": config.seq_len,
            "batch_tokens": step,
            "tokens": max(given["tokens"], step),
        },
        "data": resolve.data_section(store),
    }
    return configs.validate(raw, str(run.path))


def continued(
    known: TrainedConfig,
    name: str,
    own_encoding: Path | None,
    inherited: ExtensionStack | None,
    origin: dict[str, Any],
    request: TrainingRequest,
) -> tuple[TrainedConfig, Path | None, ExtensionStack | None]:
    """As `resolve_fine_tuning`, from a configuration instead of a run.

    name: of the starting run in messages. own_encoding: its copy of the user's file. inherited: its own extension.
    origin: see `origin_of`.
    """
    before = known.training
    training = before.model_dump() | {
        "lr": before.lr * TUNING_LR,
        "tokens": max(round(before.tokens * TUNING_TOKENS), before.batch_tokens),
        "device": "auto",
        "precision": "auto",
    }
    given = resolve.given_values(request.training)
    if (asked := given.get("optimizer", before.optimizer)) != before.optimizer and asked in RATES:
        training["lr"] = RATES[asked] * TUNING_LR  # a rate is its optimiser's
    training |= given
    if "batch_tokens" not in given:
        training["batch_tokens"] = max(training["batch_tokens"], training["seq_len"])
    encoding = known.encoding.model_dump() if request.pe is None else None
    if encoding is None:
        spec = specs.parse(request.pe or "")
        encoding = {"name": spec.name, "arguments": dict(spec.arguments)}
    elif encoding.pop("file_sha256") is not None:
        encoding["name"] = f"{own_encoding}:{encoding['name'].rpartition(':')[2]}"
    own = own_extension(request.extend, None if request.pe else inherited)
    raw = known.model_dump() | {
        "label": request.label or (None if request.pe else known.label),
        "encoding": encoding,
        "training": training | resolve.hardware(training),
        "extension": own.text if own else None,
        "extension_sha256": own.sha256() if own else None,
        "origin": origin,
    }
    config = configs.validate(raw, name)
    config = config.model_copy(update={"training": resolve.with_automatic(config, given)})
    config, user_file = resolve.with_resolved_encoding(config)
    check_own_extension(config, own, user_file)
    return config, user_file, own


def tokens_of(store: Store, start: Checkpoint | None) -> dict[str, bytes]:
    """What a run keeps on its special tokens: its documents' end, and what is known of a model that it starts from."""
    ends, folder = [store.manifest["eos_id"]], None
    if start is not None:
        parent = Run.open(start.path.parent)
        if parent.tokenizer.get_vocab() == store.tokenizer().get_vocab():  # so the stop tokens and the template fit
            ends, folder = [*ends, *(end for end in parent.special_tokens.eos if end not in ends)], parent.path
    return special_tokens.files_of({"eos_token_id": ends}, folder)


def own_extension(extend: str | None, inherited: ExtensionStack | None) -> ExtensionStack | None:
    """The extension that will belong to a run: `inherited` if no other is requested."""
    if extend is None or extend == AS_TRAINED:
        return inherited
    return None if extend == WITHOUT_OWN else stacks.parse(extend)


def origin_of(start: Path) -> dict[str, Any]:
    """What a run records of the one that it starts from. Raises UserError if that one is not finished."""
    parent = Run.open(start)
    return {
        "run": parent.name,
        "weights_sha256": parent.checkpoints("last")[-1].sha256,
        "config_hash": parent.config.config_hash(),
        "label": label_of(parent.config, parent.build_model(), parent.own_extension),
        "seq_len": parent.config.seq_len,
    }


def check_own_extension(config: TrainedConfig, own: ExtensionStack | None, user_file: Path | None) -> None:
    """Raises UserError if a run's extension does not apply to its model or has a constant to fit, or if its encoding
    is not defined for its training windows.
    """
    model = model_of(config, user_file)
    plan, length = PLAIN, config.training.seq_len
    if own is not None:
        stacks.check_applies(own, model)
        if own.to_fit is not None:
            raise UserError(f"an extension that belongs to a run must be whole, and '{own.text}' leaves a constant out")
        plan = own.plan(model.encoding, model.seq_len, length)
    if not model.defined_at(length, plan):
        hint = "; give `extend='table-resize'`" if "table-resize" in stacks.applicable(model) else ""
        raise UserError(
            f"{model.label()} is defined up to {model.encoding.max_length} tokens, and `seq_len` is {length}{hint}"
        )
