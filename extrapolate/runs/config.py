"""The run's configuration: frozen, validated, read from TOML or JSON."""

import hashlib
import json
import math
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from extrapolate.errors import UserError
from extrapolate.model.config import ModelConfig
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.specs import did_you_mean
from extrapolate.specs.settings import Section

T = TypeVar("T", bound="RunConfig")
LONGEST_TOML = 100_000  # characters
LONGEST_KEY = 20  # parts, such as the two of `base.lr`: the library's time and memory grow with their square
# What ends a key, the dots between its parts, and what may hold either without meaning it: strings and comments.
_KEYS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|\'{3}.*?(?:\'{3}|\Z)|"(?:\\.|[^"\\\n])*+"?|\'[^\'\n]*+\'?|#[^\n]*|[\[\]{}=,\n]|\.',
    re.DOTALL,
)


class EncodingConfig(Section):
    """Which encoding, its arguments as resolved at construction, and the SHA-256 of the user's file, if it is one."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    file_sha256: str | None = None

    @field_validator("arguments")
    @classmethod
    def _numbers(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Other settings refuse NaN by their types. It equals nothing, so a configuration would not equal itself."""
        if _has_nan(arguments):
            raise ValueError("an argument is NaN, which is no number")
        return arguments


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(map(_has_nan, parts))


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


class ImportSource(Section):
    """A checkpoint that was trained elsewhere: its name, where it came from, a hash of its files, and L, tokens."""

    name: str
    source: str
    sha256: str
    seq_len: int = Field(gt=1)


class ForeignSource(Section):
    """A model that another library runs: its name, where the call came from, its vocabulary, and L, tokens.

    max_length is the longest window that it is defined for, tokens, if there is one. `answers` are logits that it gave
    to a fixed input: they tell whether it is the same model the next time. file_sha256 is the hash of the user's file
    that loads it, if one does.
    """

    name: str
    source: str
    seq_len: int = Field(gt=1)
    vocab_size: int = Field(gt=0)
    max_length: int | None = None
    answers: tuple[float, ...] = ()
    file_sha256: str | None = None


class RunConfig(Section, ABC):
    """What is known of every run, however its weights were made.

    An extension, if a run has one, belongs to it and always applies; extension_sha256 are the hashes of the users' own
    files that it comes from, joined by `+`.
    """

    encoding: EncodingConfig
    extension: str | None = None
    extension_sha256: str | None = None

    @property
    @abstractmethod
    def seq_len(self) -> int:
        """L, tokens: what the encoding was derived from, and what factors count in."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """How many tokens the model has logits for."""

    @property
    def trained_length(self) -> int:
        """The length, in tokens, that the weights were trained at: another than L if the run was tuned."""
        return self.seq_len

    def decisive(self) -> dict[str, Any]:
        """What decides the weights except seeds: runs that agree in it are replicates."""
        return self.model_dump()

    def config_hash(self) -> str:
        """A hash of `decisive`."""
        return short_hash(self.decisive())


class TrainedConfig(RunConfig):
    """Everything that decides the weights of a run that was trained here."""

    preset: str
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
        del found["data"]["path"], found["training"]["seed"]
        if self.origin is not None:
            del found["origin"]["run"], found["origin"]["weights_sha256"]
        return found


class ImportedConfig(RunConfig):
    """A checkpoint of another library that became a run: how it was trained is not known."""

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
        for name in ("source", "answers", "file_sha256"):
            del found["foreign"][name]
        return found


def training_of(config: RunConfig) -> tuple[str, int | None]:
    """What rows say of a run's training, as `results.identity.Trained` begins; the seed is None if it is not known."""
    return config.config_hash(), config.training.seed if isinstance(config, TrainedConfig) else None


def short_hash(value: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that tell nested dictionaries apart."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def read_config_file(path: Path) -> dict[str, Any]:
    """A TOML or JSON file as nested dictionaries. Raises UserError if it is neither or not there."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            if len(text) > LONGEST_TOML:
                raise UserError(f"{path} has {len(text):,} characters: a file of settings has at most {LONGEST_TOML:,}")
            _check_keys(text, path)
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UserError:
        raise
    except (ValueError, RecursionError) as error:  # neither, not UTF-8, too many digits, or too many brackets
        raise UserError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error


def _check_keys(text: str, path: Path) -> None:
    """Raises UserError if a key or a header has too many parts."""
    dots = 0
    for token in _KEYS.finditer(text):
        if token[0] == ".":
            dots += 1
        elif token[0] in "[]{}=,\n":
            dots = 0
        if dots >= LONGEST_KEY:
            line = text.count("\n", 0, token.start()) + 1
            raise UserError(f"{path}, line {line}: a key has more than {LONGEST_KEY} parts")


def validate(config: Mapping[str, Any], where: str) -> TrainedConfig:
    """The configuration of a run that is trained here. Raises UserError naming the first wrong field."""
    return validate_as(TrainedConfig, config, where)


def read_config(config: Mapping[str, Any], where: str) -> RunConfig:
    """A run's configuration, of the type that it has. Raises UserError naming the first wrong field."""
    known: dict[str, type[RunConfig]] = {"imported": ImportedConfig, "foreign": ForeignConfig}
    return validate_as(next((kind for name, kind in known.items() if name in config), TrainedConfig), config, where)


def validate_as(kind: type[T], config: Mapping[str, Any], where: str) -> T:
    """A configuration of one type. Raises UserError naming the first wrong field."""
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "unknown setting; " + did_you_mean(str(first["loc"][-1]), _known_settings(kind, first["loc"]))
        raise UserError(f"{where}: {place + ': ' if place else ''}{message}") from None


def _known_settings(kind: type[RunConfig], location: tuple[int | str, ...]) -> list[str]:
    section: Any = kind
    for part in location[:-1]:
        section = section.model_fields[part].annotation
    return list(section.model_fields)


def differences(old: TrainedConfig, new: TrainedConfig) -> list[str]:
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
