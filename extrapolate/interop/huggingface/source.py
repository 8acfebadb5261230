"""The files of a checkpoint, in a local folder or of the Hugging Face Hub."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.interop.huggingface.architectures import completed
from extrapolate.interop.huggingface.fields import Fields, short

WEIGHTS, INDEX, CONFIG, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json"
NEEDED = [CONFIG, TOKENIZER, WEIGHTS, INDEX, "model-*.safetensors"]


@dataclass(frozen=True)
class Source:
    """The files of a checkpoint, and what its configuration says, with what it leaves out filled in."""

    folder: Path
    config: Fields
    weights: tuple[Path, ...]

    @property
    def tokenizer(self) -> Path:
        """Its tokenizer.json."""
        return self.folder / TOKENIZER

    def sha256(self) -> str:
        """A hash of the configuration, the tokenizer and the weights, file by file."""
        digest = hashlib.sha256()
        for path in (self.folder / CONFIG, self.tokenizer, *self.weights):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def find(name: str) -> Source:
    """A checkpoint in a local folder of that name, or of the Hugging Face Hub.

    Raises UserError if there is none, a file is missing or damaged, or the architecture is not supported.
    """
    folder = Path(name).expanduser()
    if not name or not folder.is_dir():
        folder = _downloaded(name)
    for needed in (CONFIG, TOKENIZER):
        if not (folder / needed).is_file():
            raise UserError(f"hf:{name} has no {needed}, which is needed: {folder}")
    config = files.read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise UserError(f"{folder / CONFIG} is damaged: it is not an object")
    return Source(folder, completed(Fields(folder / CONFIG, config)), _weight_files(folder, name))


def _downloaded(name: str) -> Path:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise UserError(f"hf:{name}: no such folder, and not a name on the Hugging Face Hub, such as hf:USER/MODEL")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=NEEDED))
    except Exception as error:  # the library lets those of its transport through
        raise UserError(
            f"hf:{name}: there is no folder {name}, and it cannot be had from the Hugging Face Hub: {error}"
        ) from error


def _weight_files(folder: Path, name: str) -> tuple[Path, ...]:
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    if not (folder / INDEX).is_file():
        raise UserError(
            f"hf:{name} has neither {WEIGHTS} nor {INDEX}: weights in other formats, such as .bin, are not read; "
            f"convert them to safetensors: {folder}"
        )
    index = files.read_json(folder / INDEX)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not shards or not all(isinstance(shard, str) for shard in shards.values()):
        raise UserError(f"{folder / INDEX} is damaged: it has no weight_map")
    if outside := [shard for shard in shards.values() if Path(shard).name != shard]:
        raise UserError(f"{folder / INDEX} is damaged: {short(outside[0])} is not the name of a file beside it")
    found = tuple(folder / shard for shard in sorted(set(shards.values())))
    if missing := [path.name for path in found if not path.is_file()]:
        raise UserError(f"hf:{name} lacks {', '.join(missing)}, which its {INDEX} names: {folder}")
    return found
