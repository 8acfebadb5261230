"""Text that a model continues, token by token.

Shapes: B batch, here 1, T tokens, G key and value heads, K head dim, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Encoding
from extrapolate.interop.export import needs_whole_text
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.llama import Decoder


class Kept:
    """What all layers keep of earlier tokens: see `Cache`."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Takes a layer's keys, values and inputs of the tokens that follow; gives those of all tokens."""
        layer, new = encoding.dims.layer, (k_BGTK, v_BGTK, x_BTD)
        if layer in self._layers:
            k, v, x = (torch.cat(pair, dim=-2) for pair in zip(self._layers[layer], new, strict=True))
            new = (k, v, x)
        self._layers[layer] = new
        return new


def likeliest(logits_V: Tensor) -> int:
    """The likeliest token."""
    return int(logits_V.argmax())


class Drawn:
    """Tokens drawn from the softmax of their logits divided by a temperature, or from the `top_k` likeliest of them."""

    def __init__(self, temperature: float, top_k: int | None, seed: int) -> None:
        self.temperature, self.top_k = temperature, top_k
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits_V: Tensor) -> int:
        logits_V = logits_V.double().cpu()
        best, ids = logits_V.topk(min(self.top_k or len(logits_V), len(logits_V)))
        # Less the largest, so that no temperature is too low: what is divided is 0 or below.
        weights = ((best - best[0]) / self.temperature).softmax(dim=0)
        return int(ids[torch.multinomial(weights, 1, generator=self._generator)])


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

    setting: what the model made of a plan. choose: takes a token by its logits, [V]. Earlier tokens are computed once,
    unless another library runs the model, or what they are changes with the length of the text.
    """
    kept = Kept() if isinstance(model, Decoder) and not needs_whole_text(model, ()) else None
    new: list[int] = []
    whole = list(tokens)
    while len(new) < most and not (new and ended(new)):
        tokens_BT = torch.tensor([whole if kept is None else whole[kept.length :]], device=model.device)
        if kept is None or not isinstance(model, Decoder):
            hidden_BTD = model.hidden(tokens_BT, setting)
        else:
            hidden_BTD = model.hidden(tokens_BT, setting, cache=kept)
            kept.length = len(whole)
        new.append(choose(model.head(hidden_BTD[0, -1:])[0]))
        whole.append(new[-1])
    return new
