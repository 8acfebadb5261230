"""xt.attention"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from extrapolate.api.texts import ids_of, opened
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import extension_to_apply, plan_for_texts
from extrapolate.machine.limits import memory_limit
from extrapolate.model.attention import Maps
from extrapolate.model.model import Model
from extrapolate.names import AS_TRAINED
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs.arguments import TEXT, WHOLE, check


@dataclass(frozen=True)
class Attention:
    """What the tokens of a text attend to.

    weights: float32 [layers, H, T, T]: `weights[layer, head, query, key]` is the share of a query's attention that a
    key gets. Every row adds up to 1, unless the encoding has other weights than a softmax; a key after the query, or
    beyond a window, has 0. tokens: the T tokens as text. ids: the same as numbers. layers: which layers of the model
    these are, counted from 0: all, but for those that have something in place of attention.
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
    extend: str = AS_TRAINED,
    length: int | None = None,
    trust_code: bool = False,
) -> Attention:
    """Returns the attention of a trained model over a text: weights [layers, H, T, T] for T tokens, and the tokens.

    run: a run or its folder. text: a text, or token ids. extend: one extension, such as `yarn:factor=8 + log-n`, or
    `without-own` (default: as the run was trained). length: the length in tokens that extensions are set for, at least
    T (default: T). trust_code: allow Python files that came with the run to run, even if you have not run them before;
    see docs/trust.md.

    Runs on the CPU in float32. `weights.numpy()` is an array for plotting. Layers that have something in place of
    attention are left out. Raises UserError if no layer has attention, the extension does not apply, the encoding is
    not defined at this length, or the weights (layers x H x T x T numbers of 4 bytes) would take more than half of the
    memory available to the process.
    """
    check("extend", extend, TEXT)
    subject = opened(run)
    model = subject.model
    if not isinstance(model, Model):
        raise UserError(f"another library runs the model of {subject.path}: its attention cannot be seen from here")
    ids = ids_of(subject, model, "text", text)
    at = max(2, len(ids))
    if length is not None:
        check("length", length, WHOLE)
        if length < len(ids):
            raise UserError(f"`length={length}` is less than the {len(ids)} tokens of the text")
        at = length
    attending = [layer for layer, encoding in enumerate(model.encodings) if encoding.attends()]
    if not attending:
        raise UserError(f"no layer of {model.label()} has attention: {subject.path} has no weights to show")
    plan = plan_for_texts(subject, model, extension_to_apply(subject, model, extend), at)
    needed, limit = len(attending) * model.config.heads * len(ids) ** 2 * 4, memory_limit() // 2
    if needed > limit:
        raise UserError(
            f"the attention of {len(ids)} tokens takes {needed / 1e9:,.1f} GB in all layers, and half of the memory is "
            f"{limit / 1e9:,.1f} GB: give a shorter text"
        )
    maps = Maps(len(ids))
    model.hidden(torch.tensor([ids]), replace(model.setting(plan), observer=maps))
    tokens = [subject.tokenizer.decode([id_], skip_special_tokens=False) for id_ in ids]
    return Attention(torch.cat([maps.weights[layer] for layer in attending]), tokens, ids, attending)
