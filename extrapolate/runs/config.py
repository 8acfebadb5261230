"""Configurations of runs: frozen, validated, read from TOML or JSON."""

import hashlib
import json
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from extrapolate.errors import UserError
from extrapolate.model.config import ModelConfig
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs import did_you_mean
from extrapolate.specs.settings import Section

T = TypeVar("T", bound="RunConfig")


class EncodingConfig(Section):
    """An encoding, its arguments as resolved at construction, and the SHA-256 of the user's file, if it is in one."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    file_sha256: str | None = None

    @field_validator("arguments")
    @classmethod
    def _numbers(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Refuses NaN, as the types of other settings do: with it, a configuration would not equal itself."""
        if _has_nan(arguments):
            raise ValueError("an argument is NaN, which is no number")
        return arguments


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(map(_has_nan, parts))


class DataConfig(Section):
    """The token store a run was trained on. Only results with the same corpus_hash can be compared."""

    path: str
    source: str
    corpus_hash: str


class OriginConfig(Section):
    """The run whose weights another one starts from. seq_len: L of the first run in this chain, tokens."""

    run: str
    weights_sha256: str
    config_hash: str
    label: str
    seq_len: int = Field(gt=1)


class ImportSource(Section):
    """A checkpoint that was trained elsewhere: its name, where it came from, a hash of its files, and L, tokens."""

    name: str
    source: str
    sha256: str
    seq_len: int = Field(gt=1)


class ForeignSource(Section):
    """A model that another library runs: its name, where the call came from, its vocabulary, and L, tokens.

    revision: its version, if given. max_length: its longest window, tokens, if limited. weights_sha256: the hash of its
    state dict, if it is a torch module. file_sha256: the hash of the user's file that loads it, if any.
    """

    name: str
    source: str
    seq_len: int = Field(gt=1)
    vocab_size: int = Field(gt=0)
    revision: str | None = None
    max_length: int | None = None
    weights_sha256: str | None = None
    file_sha256: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_by_its_weights(cls, given: Any) -> Any:
        if isinstance(given, dict) and "answers" in given:
            raise ValueError("the model was recognised by its logits, which is over: delete the folder, evaluate again")
        return given


class RunConfig(Section, ABC):
    """What is known of every run, however its weights were made.

    extension: the run's own, if any, which always applies. extension_sha256: the hashes of the users' files that it
    comes from, joined by `+`.
    """

    encoding: EncodingConfig
    extension: str | None = None
    extension_sha256: str | None = None

    @property
    @abstractmethod
    def seq_len(self) -> int:
        """L, tokens: the length that the encoding was built for, and the unit of factors."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of tokens that the model has logits for."""

    @property
    def trained_length(self) -> int:
        """The length that the weights were trained at, tokens; a tuned run's may differ from L."""
        return self.seq_len

    def decisive(self) -> dict[str, Any]:
        """Everything that decides the weights except the seed: runs that agree in it are replicates."""
        return self.model_dump()

    def config_hash(self) -> str:
        """A hash of `decisive`."""
        return short_hash(self.decisive())


class TrainedConfig(RunConfig):
    """Everything that decides the weights of a run that was trained here, and what tables call it.

    label: the model's name in tables and pictures, None for that of its encoding.
    """

    preset: str
    label: str | None = None
    model: ModelConfig
    training: TrainingConfig
    data: DataConfig
    origin: OriginConfig | None = None

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def seq_len(self) -> int:
        return self.trained_length if self.origin is None else self.origin.seq_len

    @property
    def trained_length(self) -> int:
        return self.training.seq_len

    def decisive(self) -> dict[str, Any]:
        found = super().decisive()
        del found["label"], found["data"]["path"], found["training"]["seed"]
        if self.origin is not None:
            del found["origin"]["run"], found["origin"]["weights_sha256"]
        return found


class ImportedConfig(RunConfig):
    """An imported checkpoint of another library, whose training is unknown."""

    model: ModelConfig
    imported: ImportSource

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def seq_len(self) -> int:
        return self.imported.seq_len

    def decisive(self) -> dict[str, Any]:
        found = super().decisive()
        del found["imported"]["source"]
        return found


class ForeignConfig(RunConfig):
    """A model that another library runs: see `ForeignSource`. Its folder holds its rows, and no weights."""

    foreign: ForeignSource

    @property
    def vocab_size(self) -> int:
        return self.foreign.vocab_size

    @property
    def seq_len(self) -> int:
        return self.foreign.seq_len

    def decisive(self) -> dict[str, Any]:
        found = super().decisive()
        for name in ("source", "weights_sha256", "file_sha256"):
            del found["foreign"][name]
        return found


def training_of(config: RunConfig) -> tuple[str, int | None]:
    """The first two fields of `results.identity.Trained`: the configuration's hash, and the seed, None if unknown."""
    return config.config_hash(), config.training.seed if isinstance(config, TrainedConfig) else None


def short_hash(value: Mapping[str, Any]) -> str:
    """A hash of nested dictionaries, 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_config_file(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as nested dictionaries. Raises UserError if it is missing or invalid."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows' editors write a byte-order mark
        if path.suffix == ".json":
            return json.loads(text)
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # neither, not UTF-8, too many digits, or too many brackets
        raise UserError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error


def validate(config: Mapping[str, Any], where: str) -> TrainedConfig:
    """The configuration of a run that is trained here. Raises UserError that names the first wrong field."""
    return validate_as(TrainedConfig, config, where)


def read_config(config: Mapping[str, Any], where: str) -> RunConfig:
    """A run's configuration, of the right type. Raises UserError that names the first wrong field."""
    known: dict[str, type[RunConfig]] = {"imported": ImportedConfig, "foreign": ForeignConfig}
    return validate_as(next((kind for name, kind in known.items() if name in config), TrainedConfig), config, where)


def validate_as(kind: type[T], config: Mapping[str, Any], where: str) -> T:
    """A configuration of one type. Raises UserError that names the first wrong field."""
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            section: Any = kind
            for part in first["loc"][:-1]:
                section = section.model_fields[part].annotation
            message = "unknown setting; " + did_you_mean(str(first["loc"][-1]), list(section.model_fields))
        told = UserError(f"{where}: {place + ': ' if place else ''}{message}")
        cause = first.get("ctx", {}).get("error")
        # Of a whole section, only the validator knows the field.
        told.field = cause.field if isinstance(cause, UserError) else str(first["loc"][-1]) if first["loc"] else None
        raise told from None


def differences(old: TrainedConfig, new: TrainedConfig) -> list[str]:
    """Every difference in what decides the weights: `training.lr: 0.003 in the run, 0.001 now`."""
    names = {"data": {"path"}, "origin": {"run"}}  # paths and names do not matter
    return _differences(old.model_dump(exclude=names), new.model_dump(exclude=names), "")


def _differences(old: Any, new: Any, place: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted({*old, *new})
            for line in _differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
        ]
    return [] if old == new else [f"{place}: {old} in the run, {new} now"]
