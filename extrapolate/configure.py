"""From a preset, a file and flags to a resolved RunConfig. Later ones win."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from extrapolate import config as configs
from extrapolate import runs, specs
from extrapolate.config import RunConfig
from extrapolate.data.store import Store
from extrapolate.encodings.base import Dims, build

# Compiling costs 10 to 30 s once, and makes a step about a third faster: it pays above so many operations.
COMPILE_ABOVE = 5e13
# Tokens in a forward pass on a CPU, for small and for large vocabularies: more is slower, or fills the memory.
MICRO_BATCH_TOKENS = (4096, 2048)


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for; None where they said nothing.

    `model` and `training` are flags by their configuration names; device and precision may be "auto".
    """

    pe: str | None = None
    preset: str | None = None
    file: Path | None = None
    model: Mapping[str, Any] | None = None
    training: Mapping[str, Any] | None = None


def resolve(request: TrainingRequest, store: Store) -> tuple[RunConfig, Path | None]:
    """The configuration of a run on a store, and the user's encoding file if it has one.

    Raises ValueError on anything unknown or out of range.
    """
    file = _read_file(request.file)
    preset = request.preset or file.get("preset") or "tiny"
    sections = configs.preset(preset)
    name, arguments = _encoding(request.pe, file)
    model = sections["model"] | _section(file, "model") | _given(request.model)
    training = sections["training"] | _section(file, "training") | _given(request.training)
    _check_vocabulary(file, store)
    model["vocab_size"] = store.vocab_size
    if "kv_heads" not in _section(file, "model") | _given(request.model):
        model["kv_heads"] = model.get("heads", configs.ModelConfig.model_fields["heads"].default)
    if "seq_len" not in training:
        raise ValueError("name the training length in tokens: --seq-len 512")
    _resolve_automatic(model, training)
    raw = {
        "preset": preset,
        "encoding": {"name": name},
        "model": model,
        "training": training,
        "data": {
            "path": str(store.path.resolve()),
            "source": store.manifest["source"],
            "corpus_hash": store.corpus_hash,
        },
    }
    config = configs.validate(raw, str(request.file) if request.file else "configuration")
    sizes = config.model
    dims = Dims(sizes.width, sizes.heads, sizes.head_dim, config.training.seq_len, layers=1)
    resolved = build(name, arguments, dims)[0].arguments()
    user_file = _user_file(name)
    encoding = configs.EncodingConfig(
        name=name if user_file is None else f"{user_file.name}:{name.rpartition(':')[2]}",
        arguments=resolved,
        file_sha256=runs.file_sha256(user_file) if user_file else None,
    )
    return config.model_copy(update={"encoding": encoding}), user_file


def run_name(config: RunConfig) -> str:
    """The run's folder: `expe-L512-s0`, with arguments that are not defaults, and the preset where it is not tiny."""
    name = config.encoding.name.rpartition(":")[2]
    dims = Dims(config.model.width, config.model.heads, config.model.head_dim, config.training.seq_len)
    encoding = config.encoding
    usual = {} if encoding.file_sha256 else build(encoding.name, {}, dims)[0].arguments()
    given = [f"{key}={value}" for key, value in encoding.arguments.items() if usual.get(key) != value]
    parts = [] if config.preset == "tiny" else [config.preset]
    parts += [name, *given, f"L{config.training.seq_len}", f"s{config.training.seed}"]
    return re.sub(r"[^\w.=+-]+", "-", "-".join(parts))


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    content = configs.read_config_file(path)
    content = content.get("config", content) if isinstance(content, dict) else {}  # a run's own config.json
    for key in content:
        if key not in RunConfig.model_fields:
            raise ValueError(f"{path}: unknown section '{key}'; {specs.did_you_mean(key, RunConfig.model_fields)}")
    return content


def _section(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = file.get(name, {})
    if not isinstance(section, dict):
        raise ValueError(f"{name} must be a section of settings, not '{section}'")
    return {key: value for key, value in section.items() if not (name == "model" and key == "vocab_size")}


def _given(flags: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (flags or {}).items() if value is not None}


def _encoding(pe: str | None, file: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    if pe is not None:
        spec = specs.parse(pe)
        return spec.name, spec.arguments
    section = _section(file, "encoding")
    if "name" not in section:
        raise ValueError("name an encoding: --pe rope (extrapolate encodings lists them)")
    return section["name"], section.get("arguments", {})


def _check_vocabulary(file: Mapping[str, Any], store: Store) -> None:
    wanted = (file.get("model") or {}).get("vocab_size", store.vocab_size)
    if wanted != store.vocab_size:
        raise ValueError(
            f"model.vocab_size is {wanted}, and the tokenizer of {store.path} has {store.vocab_size} tokens: "
            "leave it out, or tokenise with that vocabulary"
        )


def _resolve_automatic(model: Mapping[str, Any], training: dict[str, Any]) -> None:
    if training.get("device", "auto") == "auto":
        training["device"] = "cuda" if torch.cuda.is_available() else "cpu"
    if training["device"] == "cuda" and not torch.cuda.is_available():
        raise ValueError("this machine has no CUDA device that torch can use; use --device cpu")
    if training.get("precision", "auto") == "auto":
        training["precision"] = "bf16" if training["device"] == "cuda" or fast_bf16() else "fp32"
    if "micro_batch_tokens" not in training:
        small = MICRO_BATCH_TOKENS[0 if model["vocab_size"] <= 8192 else 1]
        training["micro_batch_tokens"] = 2**29 // model["vocab_size"] if training["device"] == "cuda" else small
    if "compile" not in training:
        training["compile"] = _operations(model, training) > COMPILE_ABOVE and _can_compile(training["device"])


def fast_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices natively."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _operations(model: Mapping[str, Any], training: Mapping[str, Any]) -> float:
    sizes = configs.ModelConfig.model_validate(model)
    block = sizes.width * (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim + 3 * sizes.width * sizes.ff_width
    parameters = sizes.layers * block + sizes.vocab_size * sizes.width
    return 6.0 * parameters * training.get("tokens", configs.TrainingConfig.model_fields["tokens"].default)


def _can_compile(device: str) -> bool:
    return device == "cuda" or shutil.which("g++") is not None or shutil.which("clang++") is not None


def _user_file(name: str) -> Path | None:
    file, colon, _ = name.rpartition(":")
    return Path(file) if colon else None
