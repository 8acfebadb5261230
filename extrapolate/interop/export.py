"""A run as a folder that `transformers` loads. `transformers` itself is not needed to write it."""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from extrapolate import files, specs
from extrapolate.data.tokenizer import eos_id
from extrapolate.encodings.base import Encoding
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension
from extrapolate.extensions.recipe import Recipe
from extrapolate.interop.bundle import Bundle
from extrapolate.interop.card import card
from extrapolate.interop.stock import named_sizes, stock_config, stock_weights
from extrapolate.model.decoder import Decoder
from extrapolate.runs.run import TOKENIZER, Run
from extrapolate.version import __version__

OWN = "modeling_extrapolate"  # the file with the model's code, where no class of transformers computes the same
CLASSES, CONFIG_CLASS, MODEL_CLASS = "extrapolate.transformers.model", "ExtrapolateConfig", "ExtrapolateForCausalLM"
AUTO_MAP = {"AutoConfig": f"{OWN}.{CONFIG_CLASS}", "AutoModelForCausalLM": f"{OWN}.{MODEL_CLASS}"}
ENCODINGS, EXTENSIONS = ("extrapolate.encodings.base", "encodings"), ("extrapolate.extensions.base", "extensions")
# Of a model with code of a user's file, which `import extrapolate.transformers` does not know.
USERS_TYPE = "extrapolate-with-users-file"
TITLE = '''"""The model of this folder, for transformers: it is loaded with trust_remote_code=True.

Made by extrapolate {version} from its own source, licence Apache-2.0: the encoding {label}, and what it needs.
"""

'''


@dataclass(frozen=True)
class Exported:
    """A run that was written for `transformers`.

    architecture: the class that loads it. remote_code: whether the folder has that class's code, which runs only with
    trust_remote_code=True. use_cache: whether what was computed of earlier tokens can be kept while it generates.
    """

    folder: Path
    architecture: str
    remote_code: bool
    use_cache: bool

    def row(self) -> dict[str, Any]:
        """As `extrapolate export --json` prints it."""
        return {**vars(self), "folder": str(self.folder)}


def write(run: Run, out: Path) -> Exported:
    """Writes a run's final weights as a new folder; see `content_of`.

    Raises UserError if the run has no final weights, is damaged, or the folder is there already.
    """
    tokenizer = run.tokenizer
    with files.new_folder(out) as folder:
        content = content_of(run.model, run.config.encoding.name, run.own_extension, run.config.trained_length)
        made = Exported(out, content.config["architectures"][0], content.code is not None, content.config["use_cache"])
        end = eos_id(tokenizer)
        name = None if end is None else tokenizer.id_to_token(end)
        tokens = {} if name is None else {"eos_token": name, "pad_token": name}
        records = {
            "config.json": content.config | {"eos_token_id": end},
            "generation_config.json": {"use_cache": made.use_cache, "eos_token_id": end, "pad_token_id": end},
            "special_tokens_map.json": tokens,
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": content.config["max_position_embeddings"],
                "padding_side": "right",
                "model_input_names": ["input_ids", "attention_mask"],  # versions before 5 add token_type_ids
                "clean_up_tokenization_spaces": False,
                **tokens,
            },
        }
        for file, record in records.items():
            (folder / file).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        save_file(content.weights, folder / "model.safetensors", {"format": "pt"})
        (folder / TOKENIZER).write_bytes(files.read_bytes(run.path / TOKENIZER))
        if content.code is not None:
            (folder / f"{OWN}.py").write_text(content.code, encoding="utf-8")
        text = card(run, out, made.architecture, made.remote_code, made.use_cache)
        (folder / "README.md").write_text(text, encoding="utf-8")
    return made


@dataclass(frozen=True)
class Content:
    """What a model's folder holds, beside its tokenizer and its card: the configuration, the weights, and its code."""

    config: dict[str, Any]
    weights: dict[str, Tensor]
    code: str | None


def content_of(model: Decoder, name: str, recipe: Recipe | None, trained_length: int) -> Content:
    """A model as `transformers` has it.

    name: the encoding's, as the run has it. recipe: the extension that belongs to the model. trained_length: the length
    of its training windows, tokens. Raises UserError if a user's file cannot be put into one file with the model.
    """
    parts = () if recipe is None else recipe.parts
    dependent = depends_on_length(model, parts)
    config = stock_config(model, parts, trained_length)
    common = {"use_cache": not dependent, "dtype": "float32", "bos_token_id": None, "pad_token_id": None}
    if config is not None:
        return Content({**config, **common}, stock_weights(model), None)
    sizes = model.config
    texts = [] if recipe is None else specs.split_outside_parentheses(recipe.text, "+")
    names = [specs.parse(text).name for text in texts]
    own = {
        "architectures": [MODEL_CLASS],
        "model_type": "extrapolate",  # as the class says
        "auto_map": AUTO_MAP,
        **named_sizes(sizes),
        "dropout": sizes.dropout,
        **{name: getattr(sizes, name) for name in ("qk_norm", "qkv_bias", "activation", "post_norms", "ssmax")},
        "max_position_embeddings": trained_length,
        "training_length": model.seq_len,
        "encoding": {"name": name, "arguments": model.encoding.arguments()},
        "extensions": [{"name": text, "arguments": part.arguments()} for text, part in zip(names, parts, strict=True)],
        "length_dependent": dependent,
    }
    classes = {type(model.encoding): name} | {type(part): text for text, part in zip(names, parts, strict=True)}
    if any(_of_user(cls) for cls in classes):
        own["model_type"] = USERS_TYPE
    return Content({**own, **common}, _own_weights(model), code_of(model, classes))


def depends_on_length(model: Decoder, parts: Sequence[Extension]) -> bool:
    """Whether what an earlier token is depends on the length of the whole text, so that a cache of it means nothing.

    It does where the positions of a short text are not those that a long one begins with, or where an extension scales
    by the length. Which keys are seen, and how scores grow with their number, follows from places alone.
    """
    trained, longest = model.seq_len, model.encoding.max_length
    long = 4 * trained if longest is None else min(4 * trained, longest)
    index_T = torch.arange(long, dtype=torch.float32)
    positions, short = model.encoding.positions, long // 2
    if not torch.equal(positions(index_T[:short]), positions(index_T)[:short]):
        return True
    for part in parts:
        try:
            plans = [
                part.plan(model.encoding, trained, length)
                for length in (trained, trained + 1, 2 * trained, 4 * trained)
            ]
        except UserError:  # it does not reach so far
            return True
        if len({replace(plan, window=None, pairs=None, log_length=None) for plan in plans}) > 1:
            return True
        # These are left out where they would change nothing.
        if any(len({getattr(plan, name) for plan in plans} - {None}) > 1 for name in ("window", "pairs", "log_length")):
            return True
    return False


def _own_weights(model: Decoder) -> dict[str, Tensor]:
    """Every parameter and buffer, also those that follow from the arguments: each under all its names, but the head."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    if model.config.tied_embeddings:
        del tensors["head.weight"]
    return {f"decoder.{name}": tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def _of_user(cls: type) -> bool:
    return cls.__module__.startswith(specs.USER_MODULE)


def code_of(model: Decoder, classes: Mapping[type, str]) -> str:
    """The file with a model's code.

    classes: those of its encoding and extensions, and what the configuration calls them.
    """
    needed = dict.fromkeys([*classes, *(type(module) for module in model.modules() if isinstance(module, Encoding))])
    files_of = {cls: Path(inspect.getfile(cls)) for cls in needed if _of_user(cls)}
    users = {path: f"user_file_{number}" for number, path in enumerate(dict.fromkeys(files_of.values()))}
    bundle = Bundle({name: path for path, name in users.items()})
    for name in (CONFIG_CLASS, MODEL_CLASS):
        bundle.need(CLASSES, name)
    for cls in needed:
        bundle.need(users[files_of[cls]] if cls in files_of else cls.__module__, cls.__name__)
    text = bundle.text()
    if users:
        text += f"{bundle.called(CLASSES, CONFIG_CLASS)}.model_type = {USERS_TYPE!r}\n"
    for cls, name in classes.items():
        if cls in files_of:  # nothing registers a user's own
            registry = bundle.called(*(ENCODINGS if issubclass(cls, Encoding) else EXTENSIONS))
            text += f"{registry}.register({name!r})({bundle.called(users[files_of[cls]], cls.__name__)})\n"
    # Operators have one name in a process, where other such files and this package itself may be read, too.
    own = hashlib.sha256(text.encode()).hexdigest()[:12]
    title = TITLE.format(version=__version__, label=model.encoding.label())
    return title + text.replace('custom_op("extrapolate::', f'custom_op("extrapolate_{own}::')
