"""Resolves a preset, a file and flags into a TrainedConfig. Later ones win."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from extrapolate import specs
from extrapolate.data.store import Store
from extrapolate.encodings.base import Dims
from extrapolate.errors import UserError, about
from extrapolate.machine.devices import can_compile, device_of, precision_of
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import find, layer_encodings
from extrapolate.runs import config as configs
from extrapolate.runs import trust
from extrapolate.runs.config import ImportedConfig, TrainedConfig
from extrapolate.runs.presets import preset as preset_sections
from extrapolate.runs.run import USER_ENCODING, config_of, file_sha256
from extrapolate.runs.training_config import TrainingConfig

C = TypeVar("C", TrainedConfig, ImportedConfig)
# Compiling takes 10 to 30 s once and makes a step about a third faster: worthwhile above this number of operations.
COMPILE_ABOVE = 5e13
# Tokens in a forward pass on a CPU, for small and large vocabularies: more would be slower, or fill the memory.
MICRO_BATCH_TOKENS = (4096, 2048)
LONGEST_NAME = 200  # bytes of a run's name, of the 255 that a file system gives


@dataclass(frozen=True)
class TrainingRequest:
    """The user's settings; None for those left out.

    `model` and `training` have flags by their names in the configuration; device and precision may be "auto". start,
    extend: the run whose weights it starts from, and the extension that then belongs to it. save_every, keep_every,
    half: what is kept on the way; see `xt.train`.
    """

    pe: str | None = None
    preset: str | None = None
    file: Path | None = None
    model: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None
    label: str | None = None
    start: Path | None = None
    extend: str | None = None
    save_every: int | None = None
    keep_every: int | None = None
    half: bool | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any], file: Path | None = None) -> "TrainingRequest":
        """From settings by their public names; ignores others."""
        model, training = (
            {name: value for name, value in settings.items() if name in section.model_fields}
            for section in (ModelConfig, TrainingConfig)
        )
        names = ("preset", "label", "start", "extend", "save_every", "keep_every", "half")
        others = {name: settings.get(name) for name in names}
        return cls(settings.get("encoding"), file=file, model=model, training=training, **others)


def check(request: TrainingRequest) -> None:
    """Raises UserError if a new run's request lacks an encoding or a training length. Needs no token store."""
    file = read_file(request.file)
    find(encoding_section(request, file)["name"])
    _training_section(request, file)


def resolve(request: TrainingRequest, store: Store) -> tuple[TrainedConfig, Path | None]:
    """The configuration of a run on a store, and the user's encoding file, if any.

    Raises UserError if anything is unknown or out of range.
    """
    file = read_file(request.file)
    wanted_hash = section(file, "data").get("corpus_hash", store.corpus_hash)
    if wanted_hash != store.corpus_hash:
        raise UserError(f"{request.file} is of corpus {wanted_hash}, and {store.path} is {store.corpus_hash}")
    preset, training = _training_section(request, file)
    given_model = section(file, "model") | given_values(request.model)
    if (size := given_model.pop("vocab_size", store.vocab_size)) != store.vocab_size:
        raise UserError(
            f"model.vocab_size is {size}, and the tokenizer of {store.path} has {store.vocab_size} tokens: "
            "leave it out, or tokenise with that vocabulary"
        )
    model = _sizes(preset_sections(preset)["model"], given_model) | {"vocab_size": store.vocab_size}
    raw = {
        "preset": preset,
        "label": request.label or file.get("label"),
        "encoding": encoding_section(request, file),
        "model": model,
        "training": training | hardware(training),
        "data": data_section(store),
    }
    config = configs.validate(raw, str(request.file) if request.file else "configuration")
    config = config.model_copy(update={"training": with_automatic(config, training)})
    return with_resolved_encoding(config)


def _sizes(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The model section: the preset's sizes, the given ones, and those that follow from a given width or heads.

    These are, unless given too: as many key and value heads, a head_dim of width / heads, and a feed-forward width with
    the preset's ratio. Raises UserError if heads do not divide the width.
    """
    usual = {name: field.default for name, field in ModelConfig.model_fields.items()} | dict(preset)
    sizes = dict(preset) | dict(given)
    width, heads = (given.get(name, usual[name]) for name in ("width", "heads"))
    if "heads" in given:
        sizes["kv_heads"] = given.get("kv_heads", heads)
    if not {"width", "heads"} & given.keys() or not all(type(size) is int and size > 0 for size in (width, heads)):
        return sizes  # invalid sizes are refused with the rest of the configuration
    if "head_dim" not in given:
        with about("width" if "width" in given else "heads"):
            if width % heads:
                more = "give a multiple, or other `heads`"
                raise UserError(f"`width={width}` cannot be divided among {heads} heads: {more}")
        sizes["head_dim"] = width // heads
    if "width" in given and "ff_width" not in given:
        sizes["ff_width"] = round(width * usual["ff_width"] / usual["width"])
    return sizes


def _training_section(request: TrainingRequest, file: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset, and its and the given training settings. Raises UserError without a training length."""
    preset = request.preset or file.get("preset") or "tiny"
    usual, given = preset_sections(preset)["training"], section(file, "training") | given_values(request.training)
    if "optimizer" in given and given["optimizer"] != usual.get("optimizer"):
        usual.pop("lr", None)  # it was for the other optimiser
    training = usual | given
    if "seq_len" not in training:
        raise UserError("name the training length in tokens: `seq_len=512`")
    return preset, training


def with_resolved_encoding(config: C) -> tuple[C, Path | None]:
    """The configuration with every argument of its encoding, and the user's encoding file, if any."""
    name, arguments = config.encoding.name, config.encoding.arguments
    user_file = Path(name.rpartition(":")[0]) if ":" in name else None
    encoding = configs.EncodingConfig(
        name=name if user_file is None else f"{user_file.name}:{name.rpartition(':')[2]}",
        arguments=layer_encodings(name, arguments, dims_of(config))[0].arguments(),
        file_sha256=file_sha256(user_file) if user_file else None,
    )
    return config.model_copy(update={"encoding": encoding}), user_file


def dims_of(config: TrainedConfig | ImportedConfig) -> Dims:
    """The sizes that the first layer's encoding is built with."""
    model = config.model
    return Dims(model.width, model.heads, model.head_dim, config.seq_len, layers=model.layers, kv_heads=model.kv_heads)


def run_name(config: TrainedConfig) -> str:
    """The run's folder name: `expe-L512-s0`, with arguments that are not defaults, and the preset if it is not tiny."""
    encoding = config.encoding
    unusual = encoding.arguments
    if not encoding.file_sha256:
        unusual = layer_encodings(encoding.name, encoding.arguments, dims_of(config))[0].unusual_arguments()
    given = [f"{key}={value}" for key, value in unusual.items()]
    parts = [] if config.preset == "tiny" else [config.preset]
    parts += [
        encoding.name.rpartition(":")[2],
        *given,
        *map(str.lower, config.model.combined()),
        *(["from", config.origin.run] if config.origin else []),
        *([config.extension] if config.extension else []),
        *([re.sub("[()]", "", config.training.probes)] if config.training.probes else []),
        f"L{config.training.seq_len}",
        f"s{config.training.seed}",
    ]
    name = re.sub(r"[^\w.=+-]+", "-", "-".join(parts))
    return name if len(name.encode()) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 4]}-{config.config_hash()}"


def read_file(path: Path | None) -> dict[str, Any]:
    """The sections of settings in a TOML file or a run's config.json; empty without a file.

    Raises UserError if one is unknown, or the settings are those of an imported or continued run.
    """
    if path is None:
        return {}
    content = configs.read_config_file(path)
    if isinstance(content, dict) and "config" in content:  # a run's own config.json
        content = config_of(content, path).model_dump(mode="json")
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold sections of settings: [encoding], [model], [training]")
    content = {key: value for key, value in content.items() if value is not None}
    if "imported" in content:
        raise UserError(f"{path} is of an imported checkpoint: how that was trained is not known")
    if tuned := {"origin", "extension"} & content.keys():
        raise UserError(f"{path} has {' and '.join(sorted(tuned))}: a run that continues another is made with `start`")
    for key in content:
        if key not in TrainedConfig.model_fields:
            raise UserError(f"{path}: unknown section '{key}'; {specs.did_you_mean(key, TrainedConfig.model_fields)}")
        names = {"preset": "a preset's name", "label": "a model's name"}
        if not isinstance(content[key], str if key in names else dict):
            kind = names.get(key, "a section of settings")
            raise UserError(f"{path}: {key} must be {kind}, not {content[key]!r}")
    return content


def data_path(request: TrainingRequest) -> Path | None:
    """The token store that the request's file names, if it names one."""
    path = section(read_file(request.file), "data").get("path")
    return None if path is None else Path(str(path))


def data_section(store: Store) -> dict[str, str]:
    """The data section of a run on a store."""
    return {
        "path": str(store.path.resolve()),
        "source": store.manifest["source"],
        "corpus_hash": store.corpus_hash,
    }


def section(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One section of a file's settings; empty if missing."""
    return dict(file.get(name, {}))


def given_values(flags: Mapping[str, Any] | None) -> dict[str, Any]:
    """The flags that were given."""
    return {key: value for key, value in (flags or {}).items() if value is not None}


def encoding_section(request: TrainingRequest, file: Mapping[str, Any]) -> dict[str, Any]:
    """The encoding section of the request, or else of the file, whose name may be a spec or a run's copy of a file.

    Raises UserError if there is none, or its Python file may not run.
    """
    if request.pe is not None:
        spec = specs.parse(request.pe)
        return {"name": spec.name, "arguments": dict(spec.arguments)}
    given = section(file, "encoding")
    if "name" not in given:
        raise UserError("name an encoding: `encoding='rope'` (extrapolate encodings lists them)")
    if not isinstance(given["name"], str):
        raise UserError(f"{request.file}: encoding.name must be text, not {given['name']!r}")
    spec = specs.parse(given["name"])
    name = spec.name
    own_sha256 = given.pop("file_sha256", None)
    if own_sha256 is not None and request.file is not None:
        name = f"{request.file.parent / USER_ENCODING}:{name.rpartition(':')[2]}"
    if ":" in name:
        _check_runs(Path(name.rpartition(":")[0]), own_sha256, request)
    arguments = given.get("arguments", {})
    merged = dict(spec.arguments) | arguments if isinstance(arguments, dict) else arguments
    return given | {"name": name, "arguments": merged}


def _check_runs(code: Path, own_sha256: Any, request: TrainingRequest) -> None:
    """Raises UserError if a Python file that a configuration file names may not run."""
    if not code.is_file():
        raise UserError(f"{request.file} names {code}: no such file")
    sha256 = file_sha256(code)
    if own_sha256 is not None and own_sha256 != sha256:
        raise UserError(f"{code} was changed since training: its hash is not the one in {request.file}")
    trust.check(sha256, code)


def hardware(training: Mapping[str, Any]) -> dict[str, str]:
    """Device and precision, with `auto` resolved for this machine."""
    device = device_of(training.get("device", "auto"))
    precision = training.get("precision", "auto")
    return {"device": device, "precision": precision_of(device) if precision == "auto" else precision}


def with_automatic(config: TrainedConfig, given: Mapping[str, Any]) -> TrainingConfig:
    """The training section with defaults that depend on the sizes, for settings that were not given."""
    device = config.training.device
    automatic = {
        "micro_batch_tokens": micro_batch_tokens(config.model.vocab_size, device),
        "compile": operations(config) > COMPILE_ABOVE and can_compile(device),
    }
    return config.training.model_copy(update={key: value for key, value in automatic.items() if key not in given})


def micro_batch_tokens(vocab_size: int, device: str) -> int:
    """Tokens in a forward pass that are fast on the device without filling its memory."""
    if device == "cuda":
        return 2**29 // vocab_size
    return MICRO_BATCH_TOKENS[0 if vocab_size <= 8192 else 1]


def operations(config: TrainedConfig) -> float:
    """Floating-point operations of the whole training: each token's forward pass, and twice as many backwards."""
    return 3 * token_operations(config.model, config.training.seq_len) * config.training.tokens


def token_operations(sizes: ModelConfig, length: int, scored: int | None = None) -> float:
    """Floating-point operations of a forward pass per token, in windows of `length` tokens.

    2 per parameter, without the embedding's table. Attention takes another 4 per layer, channel of the heads and token
    of context, of which there are half the length on average. scored: the targets of a window (default: all); other
    tokens have no logits, and nothing of the last layer but queries, keys and values.
    """
    heads = sizes.heads * sizes.head_dim
    qkv = sizes.width * (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    others = heads * length + sizes.width * heads + 3 * sizes.width * sizes.ff_width
    logits = sizes.vocab_size * sizes.width
    share = 1.0 if scored is None else scored / length
    return 2.0 * (sizes.layers * qkv + (sizes.layers - 1 + share) * others + share * logits)
