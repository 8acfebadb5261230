"""Exports runs to folders that `transformers` loads. Writing them does not need `transformers`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from extrapolate import files, specs
from extrapolate.data.special_tokens import TEMPLATE
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.interop.card import card
from extrapolate.interop.code import AUTO_MAP, MODEL_CLASS, USERS_TYPE, code_of, of_user
from extrapolate.interop.stock import named_sizes, other_settings, stock_config, stock_weights
from extrapolate.interop.token_records import token_records
from extrapolate.model.llama import Decoder
from extrapolate.runs.run import TOKENIZER, Run


@dataclass(frozen=True)
class Exported:
    """A run that was exported for `transformers`.

    architecture: the class that loads it. remote_code: whether the folder has that class's code, which runs only with
    trust_remote_code=True. use_cache: whether earlier tokens can be cached during generation.
    """

    folder: Path
    architecture: str
    remote_code: bool
    use_cache: bool

    def row(self) -> dict[str, Any]:
        """The row that `extrapolate export --json` prints."""
        return {**vars(self), "folder": str(self.folder)}


def write(run: Run, out: Path) -> Exported:
    """Writes a run's final weights to a new folder; see `content_of`.

    Raises UserError if the run has no final weights or is damaged, or the folder exists.
    """
    _ = run.tokenizer  # raises if it is damaged
    with files.new_folder(out) as folder:
        content = content_of(run.model, run.config.encoding.name, run.own_extension, run.config.trained_length)
        made = Exported(out, content.config["architectures"][0], bool(content.code), content.config["use_cache"])
        length = content.config["max_position_embeddings"]
        ids, records = token_records(run, length, made.use_cache)
        for file, record in {"config.json": content.config | ids, **records}.items():
            (folder / file).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        save_file(content.weights, folder / "model.safetensors", {"format": "pt"})
        for file in (TOKENIZER, TEMPLATE):
            if (run.path / file).is_file():
                (folder / file).write_bytes((run.path / file).read_bytes())
        for file, code in content.code.items():
            (folder / file).write_text(code, encoding="utf-8")
        text = card(run, out, made.architecture, made.remote_code, made.use_cache)
        (folder / "README.md").write_text(text, encoding="utf-8")
    return made


@dataclass(frozen=True)
class Content:
    """The configuration, weights and code files of an exported folder.

    There is no code if a class of transformers computes the same.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    code: dict[str, str]


def content_of(model: Decoder, name: str, stack: ExtensionStack | None, trained_length: int) -> Content:
    """Converts a model for `transformers`.

    name: the encoding's name in the run. stack: the extension that belongs to the model. trained_length: the length of
    its training windows, in tokens. Raises UserError if a user's file cannot be exported.
    """
    parts = () if stack is None else stack.parts
    dependent = needs_whole_text(model, parts)
    config = stock_config(model, parts, trained_length)
    common = {"use_cache": not dependent, "dtype": "float32"}
    if config is not None:
        return Content({**config, **common}, stock_weights(model), {})
    texts = [] if stack is None else specs.split_outside_parentheses(stack.text, "+")
    named = [(specs.parse(text).name, part) for text, part in zip(texts, parts, strict=True)]
    classes = {type(model.encoding): name} | {type(part): text for text, part in named}
    own = {
        "architectures": [MODEL_CLASS],
        "model_type": USERS_TYPE if any(of_user(cls) for cls in classes) else "extrapolate",  # as in the class
        "auto_map": AUTO_MAP,
        **named_sizes(model.config),
        **other_settings(model.config),
        "max_position_embeddings": trained_length,
        "training_length": model.seq_len,
        "encoding": {"name": name, "arguments": model.encoding.arguments()},
        "extensions": [
            {"name": text, "arguments": part.arguments(), "layers": part.for_layers} for text, part in named
        ],
        "needs_whole_text": dependent,
    }
    return Content({**own, **common}, _own_weights(model), code_of(model, classes))


def needs_whole_text(model: Decoder, parts: Sequence[Extension]) -> bool:
    """Whether every new token needs the whole text computed again, so that a cache of keys and values is useless.

    It does if a layer has something in place of attention, or Canon layers, whose inputs no cache holds; if a long text
    does not begin with the positions of a short one; or if an extension scales by the length. Which keys are seen, and
    how scores grow with their number, depends only on places.
    """
    if model.config.canon or not all(encoding.attends() for encoding in model.encodings):
        return True
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
        except UserError:  # it does not reach that far
            return True
        from_places: dict[str, Any] = dict.fromkeys(("window", "pairs", "log_length", "log_steps"))
        if len({replace(plan, **from_places) for plan in plans}) > 1:
            return True
        # These are None if they would change nothing.
        if any(len({getattr(plan, name) for plan in plans} - {None}) > 1 for name in from_places):
            return True
    return False


def _own_weights(model: Decoder) -> dict[str, Tensor]:
    """Every parameter and buffer, under each of its names except that of a tied head."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    if model.config.tied_embeddings:
        del tensors["head.weight"]
    return {f"decoder.{name}": tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
