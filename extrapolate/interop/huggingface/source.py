"""The files of a checkpoint, from a local folder or the Hugging Face Hub, and the sizes of its model."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from extrapolate import files
from extrapolate.data.hub import downloaded
from extrapolate.data.special_tokens import KEPT
from extrapolate.errors import UserError
from extrapolate.interop.huggingface.config import ACTIVATIONS, Fields, architecture_of, completed, short
from extrapolate.model.config import ModelConfig

WEIGHTS, INDEX, CONFIG, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json"


@dataclass(frozen=True)
class Source:
    """The files of a checkpoint, and its completed configuration. on_hub: whether its weights are to be downloaded."""

    name: str
    folder: Path
    config: Fields
    on_hub: bool

    @cached_property
    def weights(self) -> tuple[Path, ...]:
        """The files of its weights. Raises UserError if one is missing, or cannot be downloaded."""
        wanted = [WEIGHTS, INDEX, "model-*.safetensors"]
        folder = downloaded(self.name, wanted, self.folder.name) if self.on_hub else self.folder
        return _weight_files(folder, self.name)

    @property
    def tokenizer(self) -> Path:
        """Its tokenizer.json."""
        return self.folder / TOKENIZER

    def sha256(self) -> str:
        """A hash of the configuration, the tokenizer, all that is said of its tokens, and the weights, file by file."""
        digest, more = hashlib.sha256(), [self.folder / name for name in KEPT]
        for path in (self.folder / CONFIG, self.tokenizer, *filter(Path.is_file, more), *self.weights):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def find(name: str) -> Source:
    """Finds a checkpoint in the local folder `name`, or on the Hugging Face Hub. Weights are downloaded when needed.

    Raises UserError if it does not exist, a file is missing or damaged, or the architecture is not supported.
    """
    folder = Path(os.path.expanduser(name))  # unlike Path's, it takes ~ and an unknown user
    on_hub = not name or not folder.is_dir()
    if on_hub:
        folder = downloaded(name, [CONFIG, TOKENIZER, *KEPT])
    for needed in (CONFIG, TOKENIZER):
        if not (folder / needed).is_file():
            raise UserError(f"hf:{name} has no {needed}, which is needed: {folder}")
    config = files.read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise UserError(f"{folder / CONFIG} is damaged: it is not an object")
    return Source(name, folder, completed(Fields(folder / CONFIG, config)), on_hub)


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


def sizes_of(source: Source) -> ModelConfig:
    """The model's sizes. Raises UserError if the configuration lacks one, or they do not fit together."""
    config, architecture = source.config, architecture_of(source.config)
    heads = config.whole("num_attention_heads")
    width = config.whole("hidden_size")
    head_dim = None if config.values.get("head_dim") is None else config.whole("head_dim")
    if head_dim is None and width % heads:
        raise config.error(f"hidden_size {width} is not a multiple of {heads} heads")
    kv_heads = heads if config.values.get("num_key_value_heads") is None else config.whole("num_key_value_heads")
    if heads % kv_heads:
        raise config.error(f"num_key_value_heads is {kv_heads}, of {heads} heads")
    sizes = dict(
        vocab_size=config.whole("vocab_size"),
        width=width,
        layers=config.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or width // heads,
        dropout=0.0,
        ff_width=config.whole("intermediate_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        norm_eps=config.number("rms_norm_eps", 1e-6),
        qk_norm=architecture.qk_norm,
        qkv_bias=config.flag("attention_bias") if architecture.qkv_bias is None else architecture.qkv_bias,
        activation=ACTIVATIONS[config.values[architecture.activation]],
        post_norms=architecture.post_norms,
    )
    try:
        return ModelConfig.model_validate(sizes)
    except ValidationError as error:
        first = error.errors()[0]
        raise config.error(f"{first['loc'][0]} cannot be: {first['msg']}") from None
