"""Checks that an encoding's hooks give the same numbers under autocast as in float32.

Shapes: T queries, S keys, D width, H heads, K head dim.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Context, Encoding, scaled_product
from extrapolate.errors import UserError
from extrapolate.model.answers import attempt

# Positions and distances that bfloat16 cannot represent. One is fractional, as extensions make them.
POSITIONS_T = (0.0, 1.0, 37.0, 257.0, 300.25, 511.0)
POSITIONS_S = (0.0, 3.0, 129.0, 259.0)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Bilinear)  # autocast runs them in bfloat16, like the model's own


class Replayed(nn.Module):
    """Wraps a layer of weights: records its outputs, and replays them in float32 while `again` is set."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.outputs: list[Tensor] = []
        self.again = False

    def forward(self, *inputs: Tensor) -> Tensor:
        """Runs the layer, or replays the recorded outputs in order."""
        if self.again:
            return self.outputs.pop(0).float()
        self.outputs.append(self.layer(*inputs))
        return self.outputs[-1]


@contextmanager
def _replaying(encoding: Encoding) -> Iterator[None]:
    replayed = [module for module in encoding.modules() if isinstance(module, Replayed)]
    for module in replayed:
        module.again = True
    yield
    for module in replayed:
        module.again = False
        module.outputs.clear()


def replay(encoding: Encoding) -> None:
    """Wraps the encoding's layers of weights in Replayed, to compare what is computed from their bfloat16 outputs."""
    for module in list(encoding.modules()):
        if isinstance(module, Replayed):
            continue  # shared between layers, and already wrapped
        for key, child in list(module.named_children()):
            if isinstance(child, _LAYERS):
                setattr(module, key, Replayed(child))


@torch.no_grad()
def check_autocast(layers: list[Encoding], file: Path, kv_heads: int) -> None:
    """Raises UserError if a hook gives other numbers under autocast than in float32.

    Inputs are float32, and queries and keys also bfloat16, which autocast's projections give. kv_heads: G. Modifies
    `layers`, see `replay`.
    """
    end = min(e.max_length or 16 * e.dims.seq_len for e in layers)
    pos_T, pos_S = (torch.tensor([p for p in of if p < end]) for of in (POSITIONS_T, POSITIONS_S))
    asked = [_Hooks(encoding, pos_T, pos_S, kv_heads) for encoding in layers]
    for hooks in asked:
        for hook in ("positions", "rotate", "bias", "scores", "weights", "mix"):
            _compare(hooks, hook, file)
        _check_rounded_once(hooks, file)
    for hooks in asked:  # then the hooks that read the residual stream, perhaps through layers of weights
        replay(hooks.encoding)
        for hook in ("embed", "attention_input", "prepare"):
            _compare(hooks, hook, file)


class _Hooks:
    """Calls an encoding's hooks by name, always with the same numbers."""

    def __init__(self, encoding: Encoding, pos_T: Tensor, pos_S: Tensor, kv_heads: int) -> None:
        self.encoding, self.pos_T, self.pos_S = encoding, pos_T, pos_S
        dims = encoding.dims
        self.x_BTD = torch.randn(2, len(pos_T), dims.width)
        self.q_BHTK = torch.randn(2, dims.heads, len(pos_T), dims.head_dim).bfloat16()
        self.state = encoding.prepare(self.x_BTD)
        self.key_pos = pos_S if self.state is None else pos_T  # with a state, keys are all tokens too
        self.k_BGSK = torch.randn(2, kv_heads, len(self.key_pos), dims.head_dim).bfloat16()
        k_BGTK = torch.randn(2, kv_heads, len(pos_T), dims.head_dim)
        q, k = encoding.rotate(self.q_BHTK.float(), k_BGTK, pos_T, pos_T, self.state)
        self.turned_BHTK, self.turned_k_BGTK = q.bfloat16(), k.bfloat16()
        self.turned_BHSK = self.turned_k_BGTK.repeat_interleave(dims.heads // kv_heads, dim=1)
        self.scores_BHTS = scaled_product(q, k.repeat_interleave(dims.heads // kv_heads, dim=1))
        hidden_TT = pos_T[None, :] > pos_T[:, None]
        self.scores_BHTS = self.scores_BHTS.masked_fill(hidden_TT, float("-inf"))
        every = slice(0, len(pos_T))
        self.context = Context(pos_T, pos_T, every, every, hidden_TT, self.state)

    def rotated(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The rotated queries and keys, given in this dtype."""
        return self.encoding.rotate(self.q_BHTK.to(dtype), self.k_BGSK.to(dtype), self.pos_T, self.key_pos, self.state)

    def name(self, hook: str) -> str:
        """The hook's name in a message."""
        layer = self.encoding.dims.layer
        return f"{hook} of layer {layer}" if layer else hook

    def ask(self, hook: str) -> Any:
        """The result of a hook, with hidden keys set to 0."""
        encoding, x_BTD, pos_T, context = self.encoding, self.x_BTD, self.pos_T, self.context
        q_BHTK, k_BHSK, k_BGTK = self.turned_BHTK, self.turned_BHSK, self.turned_k_BGTK

        def seen(x: Tensor | None, hidden_TS: Tensor) -> Tensor | None:
            return None if x is None else x.masked_fill(hidden_TS, 0.0)

        calls: dict[str, Callable[[], Any]] = {
            "positions": lambda: encoding.positions(torch.arange(len(pos_T), dtype=torch.float32)),
            "embed": lambda: encoding.embed(x_BTD, pos_T) if encoding.dims.layer == 0 else None,
            "attention_input": lambda: encoding.attention_input(x_BTD, pos_T),
            "prepare": lambda: encoding.prepare(x_BTD),
            "rotate": lambda: self.rotated(torch.float32),
            "bias": lambda: seen(encoding.bias(pos_T, self.pos_S), self.pos_S > pos_T[:, None]),
            "scores": lambda: seen(encoding.scores(q_BHTK, k_BHSK, context), context.hidden_TS),
            "weights": lambda: encoding.weights(self.scores_BHTS, context),
            "mix": lambda: encoding.mix(q_BHTK, k_BGTK, k_BGTK, self.state),
        }
        return calls[hook]()


def _compare(hooks: _Hooks, hook: str, file: Path) -> None:
    def both() -> tuple[Any, Any]:
        with torch.autocast("cpu", torch.bfloat16):
            rounded = hooks.ask(hook)
        with _replaying(hooks.encoding):
            return rounded, hooks.ask(hook)

    rounded, exact = attempt(file, hook, both)
    if not same(rounded, exact):
        raise UserError(
            f"{file}: {hooks.name(hook)} gives other numbers under autocast than in float32: compute them within "
            "torch.autocast(x.device.type, enabled=False), and call .float() on what comes from queries, keys or layers"
        )


def _check_rounded_once(hooks: _Hooks, file: Path) -> None:
    exact = tuple(x.bfloat16() for x in hooks.rotated(torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attempt(file, "rotate", lambda: tuple(hooks.rotated(torch.bfloat16)))
    if not same(rounded, exact):
        raise UserError(
            f"{file}: {hooks.name('rotate')} rounds bfloat16 queries or keys on the way: turn x.float(), and return "
            ".to(x.dtype)"
        )


def same(some: Any, others: Any) -> bool:
    """Whether both are equal bit for bit and have the same types; compares tuples, lists and dicts by member."""
    if isinstance(others, Tensor):
        return isinstance(some, Tensor) and some.dtype == others.dtype and torch.equal(some, others)
    if isinstance(others, dict):
        return isinstance(some, dict) and same(tuple(some.items()), tuple(others.items()))
    if isinstance(others, tuple | list):
        return isinstance(some, tuple | list) and len(some) == len(others) and all(map(same, some, others))
    return some == others if isinstance(others, int | float | str | None) else type(some) is type(others)
