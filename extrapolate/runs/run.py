"""A run's folder: one trained model. Every write is atomic, every read checked.

It holds `config.json` (resolved configuration, provenance), `model.safetensors`, `tokenizer.json`, `state.safetensors`
while training is unfinished, `metrics.jsonl` and `metrics.parquet`, `checkpoints/`, `half/`, `results/`,
`special_tokens.json` and what is kept of a checkpoint's files on its tokens, and copies of the user's files:
`encoding.py` and `extensions/`. Only these copies can run, and only if they are trusted.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from tokenizers import Tokenizer

from extrapolate import files, results, specs
from extrapolate.data import special_tokens
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.errors import UserError
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.stack import ExtensionStack, UserFile
from extrapolate.folders import CHECKPOINTS, HALF, METRICS, RUN_FILE, WEIGHTS, below
from extrapolate.model.model import Model
from extrapolate.results.speed import step_rates, taken_by_others
from extrapolate.runs import config as configs
from extrapolate.runs import tensors, trust
from extrapolate.runs.config import ForeignConfig, ImportedConfig, RunConfig, TrainedConfig
from extrapolate.runs.provenance import provenance
from extrapolate.runs.weights import (
    Checkpoint,
    check_sizes,
    describe,
    kept_along,
    load_weights,
    name_of,
    unique_weights,
)

CONFIG, TOKENIZER = RUN_FILE, "tokenizer.json"
USER_ENCODING = "encoding.py"
USER_EXTENSIONS = "extensions"  # the folder of copies of users' files, named by their hashes


@dataclass(frozen=True)
class Run:
    """An opened run's folder. config_sha256: of the configuration as written. tokenizer_sha256: of tokenizer.json."""

    path: Path
    config: RunConfig
    provenance: dict[str, Any]
    config_sha256: str = ""
    tokenizer_sha256: str = ""

    @classmethod
    def create(
        cls, path: Path, config: RunConfig, tokenizer: bytes, user_encoding: Path | None = None,
        special: Mapping[str, bytes] | None = None,
    ) -> "Run":  # fmt: skip
        """Creates a run in `path`, without weights. tokenizer: the content of its tokenizer.json. special: files on its
        special tokens, by name: see `special_tokens`."""
        path.mkdir(parents=True, exist_ok=True)
        for name, content in {TOKENIZER: tokenizer, **(special or {})}.items():
            files.write_bytes(path / name, content)
        if user_encoding is not None:
            _keep(path / USER_ENCODING, user_encoding.read_bytes())
        made, tokenizer_sha256 = provenance(), hashlib.sha256(tokenizer).hexdigest()
        written = config.model_dump(mode="json")
        record = {"format": files.FORMAT, "config": written, "tokenizer_sha256": tokenizer_sha256, "provenance": made}
        files.write_sealed(path / CONFIG, record)
        return cls(path, config, made, _config_sha256(written), tokenizer_sha256)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Reads a run's configuration; runs no code. Raises UserError if there is none, or it is damaged."""
        file = path / CONFIG
        if not file.is_file():
            raise UserError(f"{path} is not a run: it has no {CONFIG}")
        record = files.read_json(file)
        if isinstance(record, dict) and "architectures" in record:
            raise UserError(f"{path} is a checkpoint of Hugging Face, not a run: evaluate it by the name hf:{path}")
        config = config_of(record, file)
        hashes = _config_sha256(record["config"]), record["tokenizer_sha256"]
        return cls(path, config, record["provenance"], *hashes)

    def __fspath__(self) -> str:
        """The folder: a run can be given wherever a path can."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def trained(self) -> TrainedConfig:
        """The configuration of a run that was trained here. Raises UserError if it was trained elsewhere."""
        if isinstance(self.config, TrainedConfig):
            return self.config
        source = self.config.imported.source if isinstance(self.config, ImportedConfig) else "another library"
        raise UserError(
            f"{self.path} was imported from {source}: how it was trained is not known, so it cannot be resumed; "
            "another run can start from it, with `start`"
        )

    @property
    def foreign(self) -> bool:
        """Whether another library runs the model, so that the folder holds no weights."""
        return isinstance(self.config, ForeignConfig)

    @cached_property
    def own_extension(self) -> ExtensionStack | None:
        """The extension that belongs to the run. Raises UserError if the copy of a user's file was changed."""
        if self.config.extension is None:
            return None
        hashes = own_hashes(self.config)
        copies = [self.path / USER_EXTENSIONS / f"{sha256}.py" for sha256 in hashes]
        for copy, sha256 in zip(copies, hashes, strict=True):
            _check_copy(copy, sha256)
        return stacks.parse(self.config.extension, copies)

    def keep_extensions(self, users: Iterable[UserFile]) -> None:
        """Copies the users' files that extensions come from into the run."""
        for file in users:
            copy = self.path / USER_EXTENSIONS / f"{file.sha256}.py"
            files.make_folder(copy.parent)
            _keep(copy, file.content)

    def trust_code(self) -> None:
        """Trusts the run's copies of users' files, now and later; hashes without a matching file are not trusted."""
        encoding = self.config.encoding.file_sha256
        for sha256, copy in [
            *((sha256, self.path / USER_EXTENSIONS / f"{sha256}.py") for sha256 in own_hashes(self.config)),
            *([(encoding, self.path / USER_ENCODING)] if encoding else []),
        ]:
            if copy.is_file() and file_sha256(copy) == sha256:
                trust.allow(sha256, copy)

    @cached_property
    def model(self) -> Model:
        """The model with the final weights, on the CPU, in eval mode; cached.

        Raises UserError if training is not finished, or the weights are damaged.
        """
        return self.load_model(self.checkpoints("last")[-1])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the run's text was made with. Raises UserError if it is damaged."""
        file = self.path / TOKENIZER
        if file.is_file() and file_sha256(file) != self.tokenizer_sha256:
            raise UserError(f"{file} is damaged: its content does not have the hash that {CONFIG} says")
        return tokenizers.read(file)

    @property
    def special_tokens(self) -> SpecialTokens:
        """The tokens that begin and end its texts. A run that was trained here has seen none that begins them."""
        found = special_tokens.find(self.tokenizer, self.path)
        return replace(found, bos=None) if isinstance(self.config, TrainedConfig) else found

    @property
    def finished(self) -> bool:
        """Whether the run has its final weights."""
        return (self.path / WEIGHTS).is_file()

    def build_model(self, *, drawn: bool = False) -> Model:
        """The run's model, without weights except in its encodings, or with fresh ones on the CPU if `drawn`.

        Raises UserError if the copy of a user's file was changed or may not run, or if the run's weights belong to
        another configuration.
        """
        config = self.with_weights()
        if self.finished:
            self._checked(describe(self.path / WEIGHTS))
        return model_of(config, self.own_encoding(), drawn=drawn)

    def own_encoding(self) -> Path | None:
        """The copy of the user's file that the encoding comes from, or None if it is a registered one.

        Raises UserError if the copy was changed, or may not run.
        """
        if self.config.encoding.file_sha256 is None:
            return None
        _check_copy(self.path / USER_ENCODING, self.config.encoding.file_sha256)
        return self.path / USER_ENCODING

    def with_weights(self) -> TrainedConfig | ImportedConfig:
        """The configuration. Raises UserError if another library runs the model."""
        if isinstance(self.config, TrainedConfig | ImportedConfig):
            return self.config
        source = self.config.foreign.source if isinstance(self.config, ForeignConfig) else "the file that loads it"
        raise UserError(f"{self.path} holds no weights, for another library runs its model: evaluate {source}")

    def load_model(self, checkpoint: Checkpoint) -> Model:
        """The model with a checkpoint's weights, in eval mode. Raises UserError if they are damaged."""
        model = self.build_model()
        load_weights(model, tensors.read(checkpoint.path), str(checkpoint.path))
        return model.eval()

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """The final weights (`last`), or also all that were kept before them (`all`); or, if they were kept, those of
        half the budget (`half`).

        Raises UserError if training is not finished, or weights are damaged.
        """
        self.with_weights()
        if not self.finished:
            raise UserError(
                f"{self.path} is not finished: it has no {WEIGHTS}; continue with: extrapolate train --out {self.path} "
                "--resume"
            )
        if which == "half":
            return [self._checked(describe(path)) for path in kept_along(self.path, [HALF])[-1:]]
        kept = kept_along(self.path) if which == "all" else []
        found = [self._checked(describe(path)) for path in [*kept, self.path / WEIGHTS]]
        return [c for c in found[:-1] if c.step < found[-1].step] + found[-1:]

    def save_weights(self, model: Model, step: int, tokens: int, *, final: bool, half: bool = False) -> None:
        """Writes the final weights, a checkpoint, or the model of half the budget, with their hash in the file."""
        path = self.path / (WEIGHTS if final else f"{HALF if half else CHECKPOINTS}/{name_of(step)}")
        files.make_folder(path.parent)
        record = {"step": step, "tokens": tokens, "final": final, "config": self._sha256_in_weights}
        tensors.write(path, unique_weights(model), record)

    @property
    def _sha256_in_weights(self) -> str:
        """What a file of weights says whose they are; a checkpoint from elsewhere has the same weights at every L."""
        return self.config.imported.sha256 if isinstance(self.config, ImportedConfig) else self.config_sha256

    def _checked(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns the checkpoint. Raises UserError if its weights do not belong to the run's configuration."""
        if checkpoint.config_sha256 not in (self.config_sha256, self._sha256_in_weights):
            raise UserError(
                f"{checkpoint.path} does not belong to the {CONFIG} beside it, which is of another run or was changed"
            )
        check_sizes(self.with_weights().model, checkpoint)
        if checkpoint.path.name == WEIGHTS and not checkpoint.final:
            raise UserError(f"{checkpoint.path} is a checkpoint of step {checkpoint.step}, not the end: restore it")
        if checkpoint.path.name not in (WEIGHTS, name_of(checkpoint.step)):
            raise UserError(f"{checkpoint.path} is the checkpoint of step {checkpoint.step}: restore it, or delete it")
        return checkpoint

    def training_seconds(self) -> float | None:
        """How long training took without interruptions: median step time times steps, seconds.

        None if unknown, or other programs used part of the machine.
        """
        log = self._log()
        if not isinstance(self.config, TrainedConfig) or log is None or (known := step_rates(log)) is None:
            return None
        rates, training = known.dropna().sort_values(), self.config.training
        return float(training.steps * training.batch_size * training.seq_len / rates.iloc[len(rates) // 2])

    def training_taken(self) -> float | None:
        """The share of the training's computing time that went to other programs; None if unknown."""
        log = self._log()
        return None if log is None else taken_by_others(log)

    def _log(self) -> pd.DataFrame | None:
        return results.read_frame(self.path / METRICS) if (self.path / METRICS).is_file() else None


def model_of(
    config: TrainedConfig | ImportedConfig, user_encoding: Path | None = None, *, drawn: bool = False
) -> Model:
    """The model of a configuration, as `Model` builds it.

    user_encoding: the user's file that its encoding comes from, if any.
    """
    name = config.encoding.name
    if user_encoding is not None:
        name = f"{user_encoding}:{name.rpartition(':')[2]}"
    return Model(config.model, name, config.encoding.arguments, config.seq_len, drawn=drawn)


def _keep(copy: Path, content: bytes) -> None:
    """Copies a file that the user has named into a run, and allows the copy to run."""
    files.write_bytes(copy, content)
    trust.allow(hashlib.sha256(content).hexdigest(), copy)


def _check_copy(copy: Path, sha256: str) -> None:
    if not copy.is_file() or file_sha256(copy) != sha256:
        raise UserError(f"{copy} is missing or was changed since training: its hash differs")
    trust.check(sha256, copy)


def own_hashes(config: RunConfig) -> list[str]:
    """The hashes of the users' files that a run's own extension comes from."""
    return config.extension_sha256.split("+") if config.extension_sha256 else []


def _check_own_code(config: RunConfig, where: str) -> None:
    """Raises UserError if a run's configuration names a Python file without its hash, or the reverse."""
    encoding = config.encoding
    parts = specs.split_outside_parentheses(config.extension or "", "+")
    named = [name for name in (specs.parse(part).name for part in parts) if ":" in name]
    hashes = own_hashes(config)
    given = ([encoding.file_sha256] if encoding.file_sha256 else []) + hashes
    if (":" in encoding.name) != (encoding.file_sha256 is not None) or len(named) != len(hashes):
        raise UserError(f"{where} is damaged: it names a Python file without its hash, or has a hash without a file")
    if not all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in given):
        raise UserError(f"{where} is damaged: {', '.join(given)} is not the SHA-256 of a file")


def _config_sha256(config: dict[str, Any]) -> str:
    """A hash of a configuration as written, without the path of the data, which may move."""
    data = {name: value for name, value in (config.get("data") or {}).items() if name != "path"}
    return files.sealed_hash(config | {"data": data})


def config_of(record: Any, path: Path) -> RunConfig:
    """The configuration in the content of a run's config.json.

    Raises UserError if the file is damaged, in another format, or names a Python file that is not a copy in the run.
    """
    record = files.unsealed(record if isinstance(record, dict) else {}, str(path))
    files.check_format(path, record.get("format"))
    known = {"format": int, "config": dict, "provenance": dict, "tokenizer_sha256": str}
    if record.keys() != known.keys() or not all(isinstance(record[name], kind) for name, kind in known.items()):
        raise UserError(f"{path} is damaged: it must hold {', '.join(sorted(known))}")
    config = configs.read_config(record["config"], str(path))
    _check_own_code(config, str(path))
    return config


def check_same(run: Run, config: TrainedConfig) -> None:
    """Raises UserError if a configuration differs from the run's."""
    if changed := configs.differences(run.trained, config):
        raise UserError(
            f"{run.path} cannot be resumed with another configuration ({'; '.join(changed)}); "
            "give the settings that it was started with, or choose another `out`"
        )


def file_sha256(path: Path) -> str:
    """A hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_runs(paths: list[Path]) -> tuple[list[Run], list[Path], list[str], dict[Path, UserError]]:
    """All runs in some folders and below, without repeats. Raises UserError if a path holds none.

    Also returns the folders below that hold checkpoints of other programs, descriptions of what was not searched, and
    the runs whose configuration is damaged, each with its error.
    """
    found: dict[Path, Run] = {}
    others: list[Path] = []
    left_out: list[str] = []
    damaged: dict[Path, UserError] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; train a run with: extrapolate train --pe rope --seq-len 512")
        folders, unsearched = below(path)
        left_out += unsearched
        inside = [folder for folder in folders if (folder / CONFIG).is_file()]
        foreign = [folder for folder in inside if folder != path and is_of_another_kind(folder)]
        inside = [folder for folder in inside if folder not in foreign]
        if not inside:
            raise UserError(f"{path} holds no run (a folder with a {CONFIG})")
        others += foreign
        for folder in inside:
            try:
                found[folder.resolve()] = Run.open(folder)
            except UserError as error:
                damaged[folder] = error
    return list(found.values()), others, left_out, damaged


def is_of_another_kind(folder: Path) -> bool:
    """Whether its config.json is another program's, such as that of a Hugging Face checkpoint."""
    try:
        record = files.read_json(folder / CONFIG)
    except UserError:  # damaged: counts as a run
        return False
    return isinstance(record, dict) and not {"format", "config"} & record.keys()
