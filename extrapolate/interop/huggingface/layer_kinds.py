"""What the layers of a checkpoint of the Llama family have: rotation or none, all keys or a window of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extrapolate.evaluation.names import LONGEST


@dataclass(frozen=True)
class LayerKinds:
    """The encoding that has these layers, its arguments but theta, and a window that all layers have, tokens."""

    encoding: str
    arguments: Mapping[str, Any]
    window: int | None


def layer_kinds(config: Mapping[str, Any], layers: int) -> LayerKinds | None:
    """The kinds of a configuration's layers, of SmolLM3's fields; None where no encoding here has such layers.

    no_rope_layers has a 0 for each layer without rotation; by default each `no_rope_layer_interval`-th is one.
    layer_types says which see the last `sliding_window` keys alone. Raises TypeError, ValueError or ArithmeticError
    where a field is no list, or no number.
    """
    interval = config.get("no_rope_layer_interval") or 4
    rotates = [bool(one) for one in config.get("no_rope_layers") or [(i + 1) % interval for i in range(layers)]]
    size = config.get("sliding_window") if config.get("use_sliding_window") else None
    usual = ["full_attention" if rotated or size is None else "sliding_attention" for rotated in rotates]
    kinds = list(config.get("layer_types") or usual)
    if len(rotates) != layers or len(kinds) != layers or set(kinds) - {"full_attention", "sliding_attention"}:
        return None
    windows = [size if kind == "sliding_attention" else None for kind in kinds]
    if len(set(windows)) == 1 and len(set(rotates)) == 1:
        return LayerKinds("rope" if rotates[0] else "none", {}, windows[0])
    every = rotates.index(False) + 1 if False in rotates else 0
    if not every or rotates != [(i + 1) % every != 0 for i in range(layers)]:
        return None
    of_rotated = {window for window, rotated in zip(windows, rotates, strict=True) if rotated}
    of_others = {window for window, rotated in zip(windows, rotates, strict=True) if not rotated}
    if len(of_rotated) != 1 or of_others != {None}:
        return None
    return LayerKinds("rnope", {"every": every, "window": of_rotated.pop() or LONGEST}, None)
