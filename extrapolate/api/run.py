"""xt.load, xt.export, xt.attention and xt.generate: the calls on one run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.api.own_class import ExtensionClass, spec_of
from extrapolate.data.tokenizer import HUB
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import extension_to_apply, plan_for_texts
from extrapolate.interop.export import Exported, write
from extrapolate.interop.foreign import ForeignRun
from extrapolate.interop.generation import Drawn, generated, likeliest
from extrapolate.interop.imported import import_checkpoint
from extrapolate.machine.limits import memory_limit
from extrapolate.model.attention import Maps
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model
from extrapolate.names import AS_TRAINED, LONGEST
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs import arguments, truncate
from extrapolate.specs.arguments import NUMBER, TEXT, WHOLE, check, several


def load(path: str | Path, *, trust_code: bool = False) -> Run:
    """Opens a run, with its `model` (the final weights), `config` and `tokenizer`.

    path: its folder, or `hf:NAME_OR_FOLDER`, a Hugging Face checkpoint, which becomes the run ckpt/hf-NAME. trust_code:
    allow Python files that came with the run to run, even if you have not run them before; see docs/trust.md. Raises
    UserError if there is no run, or it is damaged.
    """
    run = _in(path, "path")
    if trust_code:
        run.trust_code()
    return run


@decided
def export(run: str | Path | Run, out: str | Path, *, trust_code: bool = False) -> Exported:
    """Writes a trained run as a folder that `transformers` loads, with its tokenizer and a model card.

    If a class of `transformers` computes the same as the run, the folder names it. Otherwise the folder contains the
    code of the model and is loaded with `trust_remote_code=True`, or without it after `import
    extrapolate.transformers`. docs/export.md says which runs need it. Logits are equal to 1e-5 in float32.

    run: a run, its folder, or `hf:NAME_OR_FOLDER`, a Hugging Face checkpoint. out: a new folder. trust_code: allow
    Python files that came with the run to run, even if you have not run them before; see docs/trust.md. Exporting does
    not need `transformers`.

    Raises UserError if the run is unfinished or damaged, or `out` already exists.
    """
    return write(run if isinstance(run, Run) else _in(run, "run"), arguments.path("out", out))


@dataclass(frozen=True)
class Attention:
    """What the tokens of a text attend to.

    weights: float32 [layers, H, T, T]: `weights[layer, head, query, key]` is the share of a query's attention that a
    key gets. Every row adds up to 1, unless the encoding does not use a softmax; a key after the query, or beyond a
    window, has 0. tokens: the T tokens as text. ids: the token ids. layers: the layers of the model that have
    attention, counted from 0, in the order of `weights`.
    """

    weights: Tensor
    tokens: list[str]
    ids: list[int]
    layers: list[int]


@decided
@torch.inference_mode()
def attention(
    run: str | Path | Run,
    text: str | Sequence[int],
    *,
    extend: str | ExtensionClass = AS_TRAINED,
    length: int | None = None,
    trust_code: bool = False,
) -> Attention:
    """Returns the attention of a trained model over a text: weights [layers, H, T, T] for T tokens, and the tokens.

    run: a run, its folder, or `hf:NAME_OR_FOLDER`. text: a text, or token ids. extend: one extension, such as
    `yarn:factor=8 + log-n`, or `without-own` (default: as the run was trained). length: the length in tokens that
    extensions are set for, at least T (default: T). trust_code: allow Python files that came with the run to run, even
    if you have not run them before; see docs/trust.md.

    Runs on the CPU in float32. `weights.numpy()` is an array for plotting. Layers that have something in place of
    attention are left out. Raises UserError if no layer has attention, the extension does not apply, the encoding is
    not defined at this length, or the weights (layers x H x T x T numbers of 4 bytes) would take more than half of the
    memory available to the process.
    """
    extension = spec_of(extend)
    check("extend", extension, TEXT)
    subject = _opened(run)
    model = subject.model
    if not isinstance(model, Model):
        raise UserError(f"another library runs the model of {subject.path}: its attention cannot be seen from here")
    ids = _ids_of(subject, model, "text", text)
    at = max(2, len(ids))
    if length is not None:
        check("length", length, WHOLE)
        if length < len(ids):
            raise UserError(f"`length={length}` is less than the {len(ids)} tokens of the text")
        at = length
    attending = [layer for layer, encoding in enumerate(model.encodings) if encoding.attends()]
    if not attending:
        raise UserError(f"no layer of {model.label()} has attention: {subject.path} has no weights to show")
    plan = plan_for_texts(subject, model, extension_to_apply(subject, model, extension), at)
    needed, limit = len(attending) * model.config.heads * len(ids) ** 2 * 4, memory_limit() // 2
    if needed > limit:
        raise UserError(
            f"the attention of {len(ids)} tokens takes {needed / 1e9:,.1f} GB in all layers, and half of the memory is "
            f"{limit / 1e9:,.1f} GB: give a shorter text"
        )
    maps = Maps(len(ids))
    model.hidden(torch.tensor([ids]), replace(model.resolve(plan), observer=maps))
    tokens = [subject.tokenizer.decode([id_], skip_special_tokens=False) for id_ in ids]
    return Attention(torch.cat([maps.weights[layer] for layer in attending]), tokens, ids, attending)


@decided
def generate(
    run: str | Path | Run | ForeignRun,
    prompt: str | Sequence[int],
    *,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    extend: str | ExtensionClass = AS_TRAINED,
    trust_code: bool = False,
) -> str:
    """Continues a prompt with a trained model, up to `max_new_tokens` tokens or the end of the text.

    run: a run, its folder, `hf:NAME_OR_FOLDER`, or a model of another library. prompt: a text, or token ids.
    temperature: 0 always takes the likeliest token; above 0, tokens are drawn from the softmax of the logits divided by
    it. top_k: draw from the k likeliest tokens (default: all). seed: the seed of the draws; the same seed gives the
    same text. extend: one extension, or `without-own` (default: as the run was trained), set for the length of the
    prompt and all new tokens together. trust_code: allow Python files that came with the run to run, even if you have
    not run them before; see docs/trust.md.

    Runs on the CPU in float32. Raises UserError if the extension does not apply, or the encoding is not defined at the
    length of the prompt and the new tokens.
    """
    extension = spec_of(extend)
    for parameter, value, kind in (
        ("max_new_tokens", max_new_tokens, WHOLE), ("temperature", temperature, NUMBER), ("seed", seed, WHOLE),
        ("extend", extension, TEXT),
    ):  # fmt: skip
        check(parameter, value, kind)
    if not 1 <= max_new_tokens <= LONGEST:
        raise UserError(f"`max_new_tokens` must be between 1 and {LONGEST}, not {truncate(max_new_tokens)}")
    if not 0 <= temperature < math.inf:
        raise UserError(f"`temperature` must be 0 or more, not {temperature:g}")
    if not 0 <= seed < 2**63:
        raise UserError(f"`seed` must be between 0 and {2**63 - 1}, not {truncate(seed)}")
    if top_k is not None:
        check("top_k", top_k, WHOLE)
        if top_k < 1:
            raise UserError(f"`top_k` must be at least 1, not {top_k}")
    subject = _opened(run)
    model = subject.model
    ids = _ids_of(subject, model, "prompt", prompt)
    plan = plan_for_texts(subject, model, extension_to_apply(subject, model, extension), len(ids) + max_new_tokens)
    ends = subject.special_tokens.eos
    choose = likeliest if temperature == 0 else Drawn(temperature, top_k, seed)
    new = generated(model, ids, max_new_tokens, model.resolve(plan), lambda new: new[-1] in ends, choose)
    return str(subject.tokenizer.decode(new))


def _in(place: str | Path, parameter: str) -> Run:
    """The run in a folder, or the one that a checkpoint of Hugging Face becomes. Raises UserError if there is none."""
    if str(place).startswith(HUB):
        return import_checkpoint(str(place).removeprefix(HUB))
    return Run.open(arguments.path(parameter, place))


def _opened(run: str | Path | Run | ForeignRun) -> Run | ForeignRun:
    """The run, or the run in a folder. Raises UserError if there is none, or another one since `run` was opened."""
    if isinstance(run, ForeignRun):
        return run
    if not isinstance(run, Run):
        return _in(run, "run")
    there = Run.open(run.path)
    if there.config_sha256 != run.config_sha256:
        raise UserError(f"{run.path} holds another run now: open it again with xt.load")
    return run


def _ids_of(run: Run | ForeignRun, model: LanguageModel, parameter: str, text: str | Sequence[int]) -> list[int]:
    """The token ids of a text, or those given. Raises UserError if there are none, or the model does not know one."""
    if isinstance(text, str):
        try:
            ids = list(run.tokenizer.encode(text).ids)
        except TypeError:
            raise UserError(f"`{parameter}` has half a character, a lone surrogate, so it is no text") from None
    else:
        given = text.tolist() if hasattr(text, "tolist") else text  # a tensor or an array
        ids = [int(id_) for id_ in several(parameter, given, WHOLE)]
    if not ids:
        raise UserError(f"`{parameter}` has no tokens: give a text")
    for id_ in ids:
        if not 0 <= id_ < model.vocab_size:
            raise UserError(
                f"`{parameter}`: there is no token {id_}; the model has those from 0 to {model.vocab_size - 1}"
            )
    return ids
