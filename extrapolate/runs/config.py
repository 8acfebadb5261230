"""The run's configuration: frozen, validated, read from TOML or JSON."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from extrapolate.model.config import ModelConfig
from extrapolate.sections import Section
from extrapolate.specs import did_you_mean
from extrapolate.training.config import TrainingConfig


class EncodingConfig(Section):
    """Which encoding, its arguments as resolved at construction, and the SHA-256 of the user's file, if it is one."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    file_sha256: str | None = None


class DataConfig(Section):
    """The token store a run was trained on. Results are comparable only where corpus_hash is the same."""

    path: str
    source: str
    corpus_hash: str


class OriginConfig(Section):
    """The run whose weights another one starts from; seq_len is the length, in tokens, that its line began with."""

    run: str
    weights_sha256: str
    config_hash: str
    label: str
    seq_len: int = Field(gt=1)


class ImportedConfig(Section):
    """A checkpoint that was trained elsewhere: its name, where it came from, a hash of its files, and L, tokens."""

    name: str
    source: str
    sha256: str
    seq_len: int = Field(gt=1)


class RunConfig(Section):
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
