"""Checkpoints of the Llama family as Hugging Face has them, in this project's terms. `transformers` is not needed.

What the decoder cannot reproduce exactly is refused, by the name of the field that asks for it.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from extrapolate import files, specs
from extrapolate.errors import UserError
from extrapolate.extensions import recipe as recipes
from extrapolate.interop.layer_kinds import LayerKinds, layer_kinds
from extrapolate.model.config import ModelConfig

WEIGHTS, INDEX, CONFIG, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json"
NEEDED = [CONFIG, TOKENIZER, WEIGHTS, INDEX, "model-*.safetensors"]

# What a field that an architecture's configuration leaves out stands for, where it is not the same for all.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"num_key_value_heads": 8, "sliding_window": 4096},
    "Qwen3ForCausalLM": {"num_key_value_heads": 32, "head_dim": 128},
    "SmolLM3ForCausalLM": {"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True},
}
# Fields that mean another model where they have another value; left out, they have the first.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (None, 1.0),
    "quantization_config": (None,),
    "use_sliding_window": (False, None),
}
# What each type of rotary embedding may say, and what it may leave out.
ROPE_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "longrope": ({"long_factor", "short_factor"}, {"factor", "attention_factor"}),
    "yarn": ({"factor"}, {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"}),
}
ROPE_SHARED = {"type", "rope_type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor"}
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Source:
    """The files of a checkpoint, and what its configuration says, with what it leaves out filled in."""

    folder: Path
    config: Mapping[str, Any]
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


@dataclass(frozen=True)
class Rotary:
    """How position enters: the base theta, L in tokens, what always applies, as a recipe's text, and the encoding."""

    theta: float
    seq_len: int
    extension: str | None
    encoding: str = "rope"
    others: Mapping[str, Any] = field(default_factory=dict)  # arguments of the encoding

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the encoding."""
        return {} if self.encoding == "none" else {"theta": self.theta, **self.others}


def find(name: str) -> Source:
    """A checkpoint in a local folder of that name, or of the Hugging Face Hub.

    Raises UserError where there is none, a file is missing or damaged, or the architecture is not supported.
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
    return Source(folder, _completed(config, folder / CONFIG), _weight_files(folder, name))


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


def _completed(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """The configuration with what it leaves out. Raises UserError on what is not supported."""
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and len(architectures) == 1 else architectures
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UserError(f"{path}: architectures is {architectures}; what can be read: {', '.join(ARCHITECTURES)}")
    config = {**ARCHITECTURES[name], **config, "architecture": name}
    of_layers = name == "SmolLM3ForCausalLM"  # it says of each layer what it has
    for only, allowed in ONLY.items():
        if config.get(only, allowed[0]) not in allowed and not (of_layers and only == "use_sliding_window"):
            raise UserError(f"{path}: {only} is {_short(config[only])}, which this project's decoder does not have")
    if of_layers:
        return config
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types):
        raise UserError(f"{path}: layer_types is {_short(config['layer_types'])}, and only full_attention is read")
    return config


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
        raise UserError(f"{folder / INDEX} is damaged: {_short(outside[0])} is not the name of a file beside it")
    found = tuple(folder / shard for shard in sorted(set(shards.values())))
    if missing := [path.name for path in found if not path.is_file()]:
        raise UserError(f"hf:{name} lacks {', '.join(missing)}, which its {INDEX} names: {folder}")
    return found


def sizes_of(source: Source) -> ModelConfig:
    """The model's sizes. Raises UserError where the configuration lacks one, or they do not fit."""
    config = source.config
    heads = _whole(source, "num_attention_heads")
    width = _whole(source, "hidden_size")
    if config.get("head_dim") is None and width % heads:
        raise UserError(f"{source.folder / CONFIG}: hidden_size {width} is not a multiple of {heads} heads")
    kv_heads = heads if config.get("num_key_value_heads") is None else _whole(source, "num_key_value_heads")
    if heads % kv_heads:
        raise UserError(f"{source.folder / CONFIG}: num_key_value_heads is {kv_heads}, of {heads} heads")
    sizes = dict(
        vocab_size=_whole(source, "vocab_size"),
        width=width,
        layers=_whole(source, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads if config.get("head_dim") is None else _whole(source, "head_dim"),
        dropout=0.0,
        ff_width=_whole(source, "intermediate_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        norm_eps=_number(source, config, "rms_norm_eps", 1e-6),
        qk_norm=config["architecture"] == "Qwen3ForCausalLM",
    )
    try:
        return ModelConfig.model_validate(sizes)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{source.folder / CONFIG}: {first['loc'][0]} cannot be: {first['msg']}") from None


def rotary_of(source: Source, seq_len: int | None = None) -> Rotary:
    """The rotary embedding, for the training length named or else the one the configuration says.

    That is the original length of a scaling, or max_position_embeddings. Raises UserError on a scaling that no
    extension of ours reproduces exactly.
    """
    config = source.config
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise UserError(f"{source.folder / CONFIG}: rope_scaling is {_short(rope)}, not an object")
    theta = _number(source, {**config, **rope}, "rope_theta", 10_000.0)
    longest = _whole(source, "max_position_embeddings")
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings") or longest
    if not isinstance(original, int) or isinstance(original, bool) or original < 2:
        raise _refusal(source, "original_max_position_embeddings", original)
    length = original if seq_len is None else seq_len
    kind = _rope_kind(source, rope)
    parts = []
    if kind == "linear":
        parts.append(specs.spell("pi", {"factor": _factor(source, rope)}))
    elif kind == "dynamic":
        if length != longest or original != longest:
            raise UserError(
                f"{source.folder / CONFIG}: its rope_type, dynamic, depends on max_position_embeddings, which is "
                f"{longest}: the training length cannot be {length}"
            )
        parts.append(specs.spell("dynamic-ntk", {"factor": _factor(source, rope)}))
    elif kind == "llama3":
        # Turns within L: more of them in a longer L, at the same frequency.
        slow, fast = (_number(source, rope, f"{name}_freq_factor") * length / original for name in ("low", "high"))
        parts.append(specs.spell("llama3", {"factor": _factor(source, rope), "slow": slow, "fast": fast}))
    elif kind == "longrope":
        parts.append(_longrope(source, rope, length, original))
    elif kind == "yarn":
        factor = _factor(source, rope)
        _check_yarn(source, rope, factor)
        fast, slow = (
            _number(source, rope, f"beta_{name}", usual) * length / original
            for name, usual in (("fast", 32.0), ("slow", 1.0))
        )
        parts.append(specs.spell("yarn", {"factor": factor, "fast": fast, "slow": slow}))
    if config["architecture"] == "MistralForCausalLM" and config["sliding_window"] is not None:
        parts.append(specs.spell("window", {"size": _whole(source, "sliding_window")}))
    kinds = _kinds(source)
    if kinds.encoding == "none":
        parts = []  # nothing rotates that could be scaled
    elif kinds.encoding != "rope" and kind in ("yarn", "longrope"):  # ours sharpen the scores of all layers
        raise UserError(
            f"{source.folder / CONFIG}: rope_type is {kind}, and some layers have no rotation: no extension "
            "here reproduces that"
        )
    if kinds.window is not None:
        parts.append(specs.spell("window", {"size": _whole(source, "sliding_window")}))
    extension = recipes.parse(" + ".join(parts)).text if parts else None
    return Rotary(theta, length, extension, kinds.encoding, kinds.arguments)


def _kinds(source: Source) -> LayerKinds:
    if source.config["architecture"] != "SmolLM3ForCausalLM":
        return LayerKinds("rope", {}, None)
    try:
        kinds = layer_kinds(source.config, _whole(source, "num_hidden_layers"))
    except (TypeError, ValueError, ArithmeticError):
        kinds = None
    if kinds is None:
        raise UserError(
            f"{source.folder / CONFIG}: no_rope_layers is {_short(source.config.get('no_rope_layers'))}, and "
            f"layer_types is {_short(source.config.get('layer_types'))}: no encoding here has such layers"
        )
    return kinds


def _rope_kind(source: Source, rope: Mapping[str, Any]) -> str:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        raise UserError(
            f"{source.folder / CONFIG}: rope_type is {_short(kind)}; what can be read: {', '.join(ROPE_FIELDS)}"
        )
    needed, optional = ROPE_FIELDS[kind]
    if missing := sorted(name for name in needed if rope.get(name) is None):
        raise UserError(f"{source.folder / CONFIG}: its rope_type, {kind}, lacks {', '.join(missing)}")
    given = {name for name, value in rope.items() if value is not None}
    if unknown := sorted(given - needed - optional - ROPE_SHARED):
        raise UserError(f"{source.folder / CONFIG}: its rope_type, {kind}, does not go with {', '.join(unknown)}")
    if rope.get("partial_rotary_factor") not in ONLY["partial_rotary_factor"]:
        raise _refusal(source, "partial_rotary_factor", rope["partial_rotary_factor"])
    return kind


def _check_yarn(source: Source, rope: Mapping[str, Any], factor: float) -> None:
    """Raises UserError unless scores are multiplied by A^2, A = 0.1 ln s + 1, and the ramp's ends are rounded."""
    if rope.get("truncate") not in (None, True):
        raise _refusal(source, "truncate", rope["truncate"])
    ours = 0.1 * math.log(factor) + 1
    given = rope.get("attention_factor")
    if given is not None and not math.isclose(_number(source, rope, "attention_factor"), ours, rel_tol=1e-6):
        raise _refusal(source, "attention_factor", given)
    if given is None and rope.get("mscale") and rope.get("mscale_all_dim"):
        above, below = (0.1 * _number(source, rope, n) * math.log(factor) + 1 for n in ("mscale", "mscale_all_dim"))
        if not math.isclose(above / below, ours, rel_tol=1e-6):
            raise _refusal(source, "mscale", rope["mscale"])


def _longrope(source: Source, rope: Mapping[str, Any], length: int, original: int) -> str:
    """The extension of a longrope. Raises UserError unless scores are multiplied by 1 + ln s / ln L, for this L."""
    if length != original:
        raise UserError(
            f"{source.folder / CONFIG}: its rope_type, longrope, depends on original_max_position_embeddings, which is "
            f"{original}: the training length cannot be {length}"
        )
    lists = {}
    for name in ("long", "short"):
        numbers = rope[f"{name}_factor"]
        if not isinstance(numbers, list) or not numbers or not all(type(one) in (int, float) for one in numbers):
            raise _refusal(source, f"{name}_factor", numbers)
        lists[name] = ",".join(map(str, numbers))
    factor = _number(source, rope, "factor", _whole(source, "max_position_embeddings") / original)
    ours = math.sqrt(1 + math.log(max(1.0, factor)) / math.log(original))
    if not math.isclose(_number(source, rope, "attention_factor", ours), ours, rel_tol=1e-6):
        raise _refusal(source, "attention_factor", rope["attention_factor"])
    return specs.spell("longrope", {"factor": factor, **lists})


def _factor(source: Source, rope: Mapping[str, Any]) -> float:
    factor = _number(source, rope, "factor")
    if factor < 1:
        raise _refusal(source, "factor", factor)
    return factor


def _whole(source: Source, name: str) -> int:
    value = source.config.get(name)
    if value is None:
        raise UserError(f"{source.folder / CONFIG} has no {name}")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{source.folder / CONFIG}: {name} is {_short(value)}, not a positive whole number")
    return value


def _number(source: Source, values: Mapping[str, Any], name: str, usual: float | None = None) -> float:
    value = usual if values.get(name) is None else values[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3.4e38:
        raise UserError(f"{source.folder / CONFIG}: {name} is {_short(value)}, not a positive number")
    return float(value)


def _refusal(source: Source, name: str, value: Any) -> UserError:
    return UserError(f"{source.folder / CONFIG}: {name} is {_short(value)}, which no extension here reproduces")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def weights_of(source: Source, sizes: ModelConfig) -> dict[str, Tensor]:
    """The weights under our names, float32. Raises UserError where one is missing, damaged or has no place here."""
    theirs: dict[str, Tensor] = {}
    for path in source.weights:
        try:
            theirs |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is damaged: {error}; download or copy it again") from error
    for name, weight in theirs.items():
        if weight.dtype not in FLOATS:
            raise UserError(f"{source.folder}: {name} is {weight.dtype}, and quantised weights are not read")

    def take(*names: str) -> Tensor:
        if missing := [name for name in names if name not in theirs]:
            raise UserError(f"{source.folder}: its weights lack {', '.join(missing)}")
        try:
            return torch.cat([theirs.pop(name).float() for name in names])
        except RuntimeError as error:
            raise UserError(f"{source.folder}: {', '.join(names)} do not fit each other: {error}") from None

    ours = {"embedding.weight": take("model.embed_tokens.weight"), "norm.weight": take("model.norm.weight")}
    for i in range(sizes.layers):
        there, here = f"model.layers.{i}", f"blocks.{i}"
        attention = f"{there}.self_attn"
        ours[f"{here}.attention_norm.weight"] = take(f"{there}.input_layernorm.weight")
        ours[f"{here}.attention.qkv.weight"] = take(*(f"{attention}.{name}_proj.weight" for name in "qkv"))
        ours[f"{here}.attention.out.weight"] = take(f"{attention}.o_proj.weight")
        for norm in ("q_norm", "k_norm") if sizes.qk_norm else ():
            ours[f"{here}.attention.{norm}.weight"] = take(f"{attention}.{norm}.weight")
        ours[f"{here}.feed_forward_norm.weight"] = take(f"{there}.post_attention_layernorm.weight")
        gate_up = (f"{there}.mlp.{name}_proj.weight" for name in ("gate", "up"))
        ours[f"{here}.feed_forward.gate_up.weight"] = take(*gate_up)
        ours[f"{here}.feed_forward.down.weight"] = take(f"{there}.mlp.down_proj.weight")
    if not sizes.tied_embeddings:
        ours["head.weight"] = take("lm_head.weight")
    elif "lm_head.weight" in theirs and not torch.equal(take("lm_head.weight"), ours["embedding.weight"]):
        raise UserError(f"{source.folder}: tie_word_embeddings is true, and lm_head.weight is not the embedding")
    # Old checkpoints hold the frequencies too, which follow from theta.
    if left := sorted(name for name in theirs if not name.endswith("rotary_emb.inv_freq")):
        raise UserError(f"{source.folder}: this project's decoder has no place for {', '.join(left[:3])}")
    return ours
