"""The run's configuration: frozen, validated, read from TOML or JSON; and the presets."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from extrapolate.data.mixture import NO_PROBES, Mixture
from extrapolate.specs import did_you_mean


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EncodingConfig(_Frozen):
    """Which encoding, its arguments as resolved at construction, and the SHA-256 of the user's file, if it is one."""

    name: str
    arguments: dict[str, Any] = {}
    file_sha256: str | None = None


class ModelConfig(_Frozen):
    """Sizes of the Llama decoder: widths in channels, dropout a probability on the residual stream's inputs.

    ssmax multiplies the scores of query i by s ln(i + 1), with s learned (arXiv 2501.19399); qk_norm normalises
    queries and keys per head before the encoding rotates them. Both combine with any encoding.
    """

    vocab_size: int = Field(gt=0)
    width: int = Field(128, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    kv_heads: int = Field(4, gt=0)
    head_dim: int = Field(32, gt=0)
    ff_width: int = Field(384, gt=0)
    tied_embeddings: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)
    norm_eps: float = Field(1e-5, gt=0)
    ssmax: bool = False
    qk_norm: bool = False

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self


class TrainingConfig(_Frozen):
    """The budget and the optimiser. Lengths, budgets and batches are in tokens, betas and rates as AdamW has them.

    probes are the shares of windows that are probes, `mqar=0.25,passkey=0.25`; None where all is text.
    """

    seq_len: int = Field(gt=1)
    tokens: int = Field(1_000_000, gt=0)
    batch_tokens: int = Field(4096, gt=0)
    micro_batch_tokens: int = Field(4096, gt=0)
    lr: float = Field(3e-3, gt=0)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    warmup_ratio: float = Field(0.05, ge=0, le=1)
    weight_decay: float = Field(0.1, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    clip: float = Field(1.0, gt=0)
    seed: int = Field(0, ge=0)
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    probes: str | None = None

    @field_validator("probes")
    @classmethod
    def _one_text_for_one_mixture(cls, probes: str | None) -> str | None:
        return None if probes is None or probes.strip() == NO_PROBES else Mixture.parse(probes).text

    @model_validator(mode="after")
    def _check(self) -> "TrainingConfig":
        if self.batch_tokens < self.seq_len:
            raise ValueError(
                f"batch_tokens ({self.batch_tokens}) holds no window of {self.seq_len}: give more --batch-tokens"
            )
        if self.tokens < self.batch_size * self.seq_len:
            raise ValueError(
                f"tokens ({self.tokens}) is less than a batch of {self.batch_size * self.seq_len}: give more --tokens"
            )
        return self

    @property
    def batch_size(self) -> int:
        """Windows in a step."""
        return self.batch_tokens // self.seq_len

    @property
    def micro_batch_size(self) -> int:
        """Windows in a forward pass: the gradients of several make a step."""
        return max(1, min(self.micro_batch_tokens // self.seq_len, self.batch_size))

    @property
    def steps(self) -> int:
        """Optimiser steps that the budget pays for."""
        return self.tokens // (self.batch_size * self.seq_len)


class DataConfig(_Frozen):
    """The token store a run was trained on. Results are comparable only where corpus_hash is the same."""

    path: str
    source: str
    corpus_hash: str


class OriginConfig(_Frozen):
    """The run whose weights another one starts from; seq_len is the length, in tokens, that its line began with."""

    run: str
    weights_sha256: str
    config_hash: str
    label: str
    seq_len: int = Field(gt=1)


class ImportedConfig(_Frozen):
    """A checkpoint that was trained elsewhere: its name, where it came from, a hash of its files, and L, tokens."""

    name: str
    source: str
    sha256: str
    seq_len: int = Field(gt=1)


class RunConfig(_Frozen):
    """Everything that decides a run's weights. An extension, if it has one, belongs to it and always applies.

    Of an imported checkpoint preset, training and data are not known: there they are None, and there alone. Their
    types are those of all other runs, for only an evaluation meets imported ones.
    """

    preset: str
    encoding: EncodingConfig
    model: ModelConfig
    training: TrainingConfig
    data: DataConfig
    origin: OriginConfig | None = None
    extension: str | None = None
    imported: ImportedConfig | None = None

    @field_validator("preset", "training", "data", mode="wrap")
    @classmethod
    def _may_be_unknown(cls, value: Any, check: Callable[[Any], Any]) -> Any:
        return None if value is None else check(value)

    @model_validator(mode="after")
    def _check(self) -> "RunConfig":
        for name in ("preset", "training", "data"):
            if (getattr(self, name) is None) != (self.imported is not None):
                raise ValueError(f"{name} is " + ("missing" if self.imported is None else "not known, of an import"))
        return self

    @property
    def seq_len(self) -> int:
        """L, tokens: what the encoding was derived from, and what factors count in."""
        return self.trained_length if self.origin is None else self.origin.seq_len

    @property
    def trained_length(self) -> int:
        """The length, in tokens, that the weights were trained at: another than L where the run was tuned."""
        return self.training.seq_len if self.imported is None else self.imported.seq_len

    def decisive(self) -> dict[str, Any]:
        """What decides the weights but for seeds: runs that agree in it are replicates."""
        names: dict[str, Any] = {
            "data": {"path"},
            "training": {"seed"},
            "origin": {"run", "weights_sha256"},
            "imported": {"source"} if self.imported else True,
        }
        if self.imported is None and self.training.probes is None:  # as before there were probes
            names["training"] |= {"probes"}
        return self.model_dump(exclude=names)

    def config_hash(self) -> str:
        """A hash of `decisive`."""
        return short_hash(self.decisive())


def short_hash(value: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that tell nested dictionaries apart."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# Sizes as in ExPE's paper (arXiv 2509.19569). Its learning rates and batch of the small models are missing from
# every copy: those are ours. `vocab_size` is the paper's, for the parameter counts; a run takes its store's.
_EXPE_LARGE = {"tokens": 10_000_000_000, "batch_tokens": 524_288, "precision": "bf16"}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {"model": {"vocab_size": 2048}, "training": {}},
    "expe-35m": {
        "model": dict(
            vocab_size=32_000, width=384, layers=6, heads=12, kv_heads=12, head_dim=32, ff_width=1024,
            tied_embeddings=False, dropout=0.1,
        ),
        "training": dict(seq_len=512, tokens=700_000_000, batch_tokens=32_768, lr=1e-3),
    },
    "expe-135m": {
        "model": dict(
            vocab_size=32_768, width=768, layers=12, heads=12, kv_heads=12, head_dim=64, ff_width=2048,
            tied_embeddings=False,
        ),
        "training": dict(seq_len=512, lr=6e-4, **_EXPE_LARGE),
    },
    "expe-342m": {
        "model": dict(
            vocab_size=32_768, width=1024, layers=24, heads=16, kv_heads=16, head_dim=64, ff_width=2816,
            tied_embeddings=True,
        ),
        "training": dict(seq_len=512, lr=3e-4, **_EXPE_LARGE),
    },
    # For comparisons by depth, as course projects make them with GPT-2; the blocks are Llama's, the width is ours.
    "gpt-256": {
        "model": dict(
            vocab_size=32_000, width=512, layers=4, heads=8, kv_heads=8, head_dim=64, ff_width=1376,
            tied_embeddings=True,
        ),
        "training": dict(seq_len=256, tokens=100_000_000, batch_tokens=16_384, lr=1e-3),
    },
}  # fmt: skip


def preset(name: str) -> dict[str, dict[str, Any]]:
    """The preset's `model` and `training` values. Raises ValueError if there is none of that name."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset '{name}'; {did_you_mean(name, PRESETS)}")
    return {section: dict(values) for section, values in PRESETS[name].items()}


def read_config_file(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as nested dictionaries. Raises ValueError where it is neither or not there."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error


def validate(config: Mapping[str, Any], where: str) -> RunConfig:
    """A RunConfig from nested dictionaries. Raises ValueError naming the first wrong field."""
    try:
        return RunConfig.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "unknown setting; " + did_you_mean(str(first["loc"][-1]), _known_settings(first["loc"]))
        raise ValueError(f"{where}: {place + ': ' if place else ''}{message}") from None


def _known_settings(location: tuple[int | str, ...]) -> list[str]:
    section: Any = RunConfig
    for part in location[:-1]:
        section = section.model_fields[part].annotation
    return list(section.model_fields)


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """`training.lr: 0.003 in the run, 0.001 now`, for every setting that decides the weights and differs."""
    names = {"data": {"path"}, "origin": {"run"}}  # where things are, and what they are called
    return _differences(old.model_dump(exclude=names), new.model_dump(exclude=names), "")


def _differences(old: Any, new: Any, place: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted({*old, *new})
            for line in _differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
        ]
    return [] if old == new else [f"{place}: {old} in the run, {new} now"]
