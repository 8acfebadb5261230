"""The run directory: one trained model. Every write is atomic, every read checked.

`config.json` (resolved configuration, provenance), `model.safetensors`, `tokenizer.json`, `state.pt` while
training is unfinished, `metrics.jsonl` and `metrics.parquet`, `checkpoints/`, `evals.parquet`, and copies of the
user's files: `encoding.py`, and `extensions/`.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import tokenizer as tokenizers
from extrapolate.errors import UserError
from extrapolate.extensions import recipe as recipes
from extrapolate.extensions.recipe import Recipe
from extrapolate.extensions.user import UserFile
from extrapolate.folders import RUN_FILE
from extrapolate.model.decoder import Model
from extrapolate.runs import config as configs
from extrapolate.runs.config import ForeignConfig, ImportedConfig, RunConfig, TrainedConfig
from extrapolate.runs.provenance import provenance
from extrapolate.runs.weights import (
    METADATA,
    Checkpoint,
    describe,
    load_weights,
    read_weights,
    unique_weights,
    weights_sha256,
)
from extrapolate.version import unknown_here

FORMAT = 1
CONFIG, WEIGHTS, STATE, METRICS = RUN_FILE, "model.safetensors", "state.pt", "metrics.jsonl"
USER_ENCODING = "encoding.py"
USER_EXTENSIONS = "extensions"  # the folder of copies of users' own, each under its hash


@dataclass(frozen=True)
class Run:
    """An opened run directory."""

    path: Path
    config: RunConfig
    provenance: dict[str, Any]

    @classmethod
    def create(cls, path: Path, config: RunConfig, tokenizer: bytes, user_encoding: Path | None = None) -> "Run":
        """Starts a run in `path`: everything but weights. tokenizer: the content of its tokenizer.json."""
        path.mkdir(parents=True, exist_ok=True)
        files.write_bytes(path / "tokenizer.json", tokenizer)
        if user_encoding is not None:
            files.write_bytes(path / USER_ENCODING, user_encoding.read_bytes())
        made = provenance()
        files.write_json(path / CONFIG, {"format": FORMAT, "config": config.model_dump(), "provenance": made})
        return cls(path, config, made)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Raises UserError where there is no run, or its configuration is damaged."""
        if not (path / CONFIG).is_file():
            raise UserError(f"{path} is not a run: it has no {CONFIG}")
        record = files.read_json(path / CONFIG)
        if isinstance(record, dict) and "architectures" in record:
            raise UserError(f"{path} is a checkpoint of Hugging Face, not a run: evaluate it by the name hf:{path}")
        check_format(path / CONFIG, record)
        config = configs.read_config(record.get("config", {}), str(path / CONFIG))
        return cls(path, config, dict(record.get("provenance", {})))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def trained(self) -> TrainedConfig:
        """The configuration of a run that was trained here. Raises UserError where it was trained elsewhere."""
        if isinstance(self.config, TrainedConfig):
            return self.config
        source = self.config.imported.source if isinstance(self.config, ImportedConfig) else "another library"
        raise UserError(
            f"{self.path} was imported from {source}: how it was trained is not known, and it can be evaluated but not "
            "continued"
        )

    @property
    def foreign(self) -> bool:
        """Whether another library runs the model, so that the folder holds no weights."""
        return isinstance(self.config, ForeignConfig)

    @cached_property
    def own_extension(self) -> Recipe | None:
        """The extension that belongs to the run. Raises UserError where the copy of a user's file was changed."""
        if self.config.extension is None:
            return None
        hashes = (self.config.extension_sha256 or "").split("+")
        copies = [self.path / USER_EXTENSIONS / f"{sha256}.py" for sha256 in hashes if sha256]
        for copy, sha256 in zip(copies, hashes, strict=False):
            if not copy.is_file() or file_sha256(copy) != sha256:
                raise UserError(f"{copy} is missing or was changed since training: its hash differs")
        return recipes.parse(self.config.extension, copies)

    def keep_extensions(self, users: Iterable[UserFile]) -> None:
        """Copies the users' own files that extensions come from into the run."""
        for file in users:
            copy = self.path / USER_EXTENSIONS / f"{file.sha256}.py"
            copy.parent.mkdir(exist_ok=True)
            files.write_bytes(copy, file.content)

    @cached_property
    def model(self) -> Model:
        """The model with the final weights, on the CPU, in eval mode; read once.

        Raises UserError where training is not finished, or the weights are damaged.
        """
        return self.load_model(self.checkpoints("last")[-1])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the run's text was made with. Raises UserError where it is damaged."""
        return tokenizers.read(self.path / "tokenizer.json")

    @property
    def finished(self) -> bool:
        """Whether training ended: the final weights are there."""
        return (self.path / WEIGHTS).is_file()

    def build_model(self) -> Model:
        """The run's model with fresh weights, on the CPU. Raises UserError where the user's file was changed."""
        config = self._with_weights()
        encoding = config.encoding
        name = encoding.name
        if encoding.file_sha256 is not None:
            copy = self.path / USER_ENCODING
            if not copy.is_file() or file_sha256(copy) != encoding.file_sha256:
                raise UserError(f"{copy} is missing or was changed since training: its hash differs")
            name = f"{copy}:{name.rpartition(':')[2]}"
        return Model(config.model, name, encoding.arguments, config.seq_len)

    def _with_weights(self) -> TrainedConfig | ImportedConfig:
        if isinstance(self.config, TrainedConfig | ImportedConfig):
            return self.config
        source = self.config.foreign.source if isinstance(self.config, ForeignConfig) else "the file that loads it"
        raise UserError(f"{self.path} holds no weights, for another library runs its model: evaluate {source}")

    def load_model(self, checkpoint: Checkpoint) -> Model:
        """The model with a checkpoint's weights, in eval mode. Raises UserError where they are damaged."""
        model = self.build_model()
        load_weights(model, read_weights(checkpoint), str(checkpoint.path))
        return model.eval()

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """`last`, the final weights alone, or `all`, those kept along the way before them.

        Raises UserError where training is not finished, or weights are damaged.
        """
        self._with_weights()
        if not self.finished:
            raise UserError(
                f"{self.path} is not finished: it has no {WEIGHTS}; continue with: extrapolate train --out {self.path} "
                "--resume"
            )
        kept = sorted((self.path / "checkpoints").glob("*.safetensors")) if which == "all" else []
        found = [describe(path) for path in [*kept, self.path / WEIGHTS]]
        return [c for c in found[:-1] if c.step < found[-1].step] + found[-1:]

    def save_weights(self, model: Model, step: int, tokens: int, *, final: bool) -> None:
        """Writes the final weights, or a checkpoint along the way, with their hash in the file itself."""
        path = self.path / (WEIGHTS if final else f"checkpoints/step-{step:08d}.safetensors")
        path.parent.mkdir(exist_ok=True)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in unique_weights(model).items()}
        # One entry: the library writes several in a random order, and equal weights should be equal files.
        record = json.dumps({"step": step, "tokens": tokens, "sha256": weights_sha256(weights)})
        files.write_bytes(path, save(weights, {METADATA: record}))

    def save_state(self, state: dict[str, Any]) -> None:
        """Writes what a killed training continues from."""
        # By way of memory: torch reports a full disk as an error of its own that names neither disk nor file.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        files.write_bytes(self.path / STATE, buffer.getbuffer())

    def load_state(self) -> dict[str, Any] | None:
        """What was saved last, or None. Raises UserError where it is damaged."""
        path = self.path / STATE
        if not path.exists():
            return None
        try:
            with zipfile.ZipFile(path) as archive:  # torch does not check the sums itself
                if (broken := archive.testzip()) is not None:
                    raise UserError(f"{broken} is not what was written")
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds for a damaged file
            raise UserError(f"{path} is damaged: {error}; delete {self.path} and train again") from error

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl; a last line that a kill cut short is left out."""
        path = self.path / METRICS
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def training_seconds(self) -> float | None:
        """Median step time times steps, seconds: what training took, whatever interrupted it."""
        rates = sorted(row["tokens_per_s"] for row in self.metrics() if row.get("tokens_per_s"))
        if not rates or not isinstance(self.config, TrainedConfig):
            return None
        training = self.config.training
        return training.steps * training.batch_size * training.seq_len / rates[len(rates) // 2]


def check_format(path: Path, record: Any) -> None:
    """Raises UserError where a run's configuration file is of a newer format, or says none that there is."""
    number = record.get("format") if isinstance(record, dict) else None
    if isinstance(number, int) and number > FORMAT:
        version = dict(record.get("provenance", {})).get("version", "of a later version")
        raise unknown_here(path, str(version), f"in format {number}")
    if number != FORMAT:
        raise UserError(f"{path} is damaged: there is no format {json.dumps(number)}")


def check_same(run: Run, config: TrainedConfig) -> None:
    """Raises UserError where a configuration would not make this run."""
    if changed := configs.differences(run.trained, config):
        raise UserError(
            f"{run.path} cannot be resumed with another configuration ({'; '.join(changed)}); "
            "give the settings that it was started with, or choose another `out`"
        )


def file_sha256(path: Path) -> str:
    """A hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
