"""Generates text token by token.

Shapes: B batch, here 1, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from extrapolate.interop.export import needs_whole_text
from extrapolate.model.cache import Kept
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.llama import Decoder


def likeliest(logits_V: Tensor) -> int:
    """The likeliest token."""
    return int(logits_V.argmax())


class Drawn:
    """Draws tokens from the softmax of logits divided by a temperature, among all or the `top_k` likeliest."""

    def __init__(self, temperature: float, top_k: int | None, seed: int) -> None:
        self.temperature, self.top_k = temperature, top_k
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits_V: Tensor) -> int:
        logits_V = logits_V.double().cpu()
        best, ids = logits_V.topk(min(self.top_k or len(logits_V), len(logits_V)))
        # The largest is subtracted, so that no temperature is too low.
        weights = ((best - best[0]) / self.temperature).softmax(dim=0)
        return int(ids[torch.multinomial(weights, 1, generator=self._generator)])


def caches(model: LanguageModel) -> bool:
    """Whether earlier tokens are cached."""
    return isinstance(model, Decoder) and not needs_whole_text(model, ())


@torch.inference_mode()
def generated(
    model: LanguageModel,
    tokens: Sequence[int],
    most: int,
    setting: Any,
    ended: Callable[[list[int]], bool],
    choose: Callable[[Tensor], int] = likeliest,
) -> list[int]:
    """The tokens that follow, at most `most`, up to the first at which `ended` is true.

    setting: made by the model from a plan. choose: picks a token by its logits, [V]. Earlier tokens are cached, unless
    another library runs the model, or their values change with the length of the text.
    """
    kept = Kept()
    cached: dict[str, Any] = {"cache": kept} if caches(model) else {}
    new: list[int] = []
    while len(new) < most and not (new and ended(new)):
        whole = [*tokens, *new]
        tokens_BT = torch.tensor([whole[kept.length :]], device=model.device)
        hidden_BTD = model.hidden(tokens_BT, setting, **cached)
        if cached:
            kept.length = len(whole)
        new.append(choose(model.head(hidden_BTD[0, -1:])[0]))
    return new
