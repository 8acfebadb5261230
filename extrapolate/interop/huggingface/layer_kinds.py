"""What the layers of a checkpoint have: rotation or none, all keys or a window of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extrapolate.interop.huggingface.architectures import (
    ARCHITECTURES,
    GEMMA2,
    GEMMA3,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    SMOLLM3,
)  # fmt: skip
from extrapolate.interop.huggingface.fields import Fields, short
from extrapolate.model.config import MOST_LAYERS
from extrapolate.names import LONGEST

# The fields that say it, for messages.
OF_LAYERS = (
    "no_rope_layers",
    "layer_types",
    "max_window_layers",
    "sliding_window_pattern",
    "use_sliding_window",
    "sliding_window",
)


@dataclass(frozen=True)
class LayerKinds:
    """The encoding that has these layers, its arguments but the thetas, and a window that all layers have, tokens."""

    encoding: str
    arguments: Mapping[str, Any]
    window: int | None


def kinds_of(config: Fields) -> LayerKinds:
    """The kinds of a checkpoint's layers. Raises UserError if no encoding here has such layers."""
    layers = config.whole("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise config.error(f"num_hidden_layers is {layers}, and a model here has at most {MOST_LAYERS}")
    values = {**config.values, "use_sliding_window": config.flag("use_sliding_window")}
    try:
        kinds = layer_kinds(values, layers)
    except (TypeError, ValueError, ArithmeticError):
        kinds = None
    if kinds is None:
        said = [f"{name} is {short(config.values[name])}" for name in OF_LAYERS if name in config.values]
        raise config.error(f"{', '.join(said)}: no encoding here has such layers")
    return kinds


def layer_kinds(config: Mapping[str, Any], layers: int) -> LayerKinds | None:
    """The kinds of the layers of a completed configuration; None where no encoding here has such layers.

    SmolLM3's no_rope_layers has a 0 for each layer without rotation; by default each `no_rope_layer_interval`-th is
    one. layer_types says which layers see the last `sliding_window` keys alone. Raises TypeError, ValueError or
    ArithmeticError where a field is no list, or no number.
    """
    name = config["architecture"]
    rotates = [True] * layers
    if name == SMOLLM3:
        interval = config.get("no_rope_layer_interval") or 4
        rotates = [bool(one) for one in config.get("no_rope_layers") or [(i + 1) % interval for i in range(layers)]]
    slides = _sliding(config, rotates)
    said = ARCHITECTURES[name].of_layers and config.get("layer_types")
    if said:
        slides = [{"full_attention": False, "sliding_attention": True}.get(kind) for kind in config["layer_types"]]
    if len(rotates) != layers or len(slides) != layers or None in slides:
        return None
    flag = config.get("use_sliding_window") or name not in (SMOLLM3, QWEN2, QWEN3)
    size = config.get("sliding_window") if flag and any(slides) else None
    if size is not None and (type(size) is not int or size < 1):
        return None
    if size is None and any(slides) and (said or name in (GEMMA2, GEMMA3)):  # a window without a size
        return None
    return _encoding_of(rotates, [size if slid else None for slid in slides])


def _sliding(config: Mapping[str, Any], rotates: Sequence[bool]) -> list[bool | None]:
    """Which layers have the window, where layer_types does not say it."""
    name, layers = config["architecture"], range(len(rotates))
    if name == SMOLLM3:
        return [not rotated for rotated in rotates]
    if name in (QWEN2, QWEN3):
        return [i >= config["max_window_layers"] for i in layers]
    if name == GEMMA2:
        return [i % 2 == 0 for i in layers]
    if name == GEMMA3:
        return [(i + 1) % config["sliding_window_pattern"] != 0 for i in layers]
    return [name in (MISTRAL, PHI3) for _ in layers]


def _encoding_of(rotates: Sequence[bool], windows: Sequence[int | None]) -> LayerKinds | None:
    """The encoding whose layers rotate so, and have these windows."""
    if len(set(windows)) == 1 and len(set(rotates)) == 1:
        return LayerKinds("rope" if rotates[0] else "none", {}, windows[0])
    # Every n-th layer is another one: it does not rotate, or it alone sees all keys.
    others = [window is None for window in windows] if all(rotates) else [not rotated for rotated in rotates]
    every = others.index(True) + 1
    if others != [(i + 1) % every == 0 for i in range(len(others))]:
        return None
    of_others = {window for window, other in zip(windows, others, strict=True) if other}
    of_most = {window for window, other in zip(windows, others, strict=True) if not other}
    if len(of_most) != 1 or of_others != {None}:
        return None
    name = "local-global" if all(rotates) else "rnope"
    return LayerKinds(name, {"every": every, "window": of_most.pop() or LONGEST}, None)
