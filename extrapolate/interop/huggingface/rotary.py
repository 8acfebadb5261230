"""How position enters a checkpoint's model: the encoding of its layers, and its scaling as an extension."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extrapolate import specs
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.longrope import LongRoPE
from extrapolate.interop.huggingface.config import (
    ARCHITECTURES,
    GEMMA2,
    GEMMA3,
    MISTRAL,
    PHI3,
    QWEN2,
    QWEN3,
    SMOLLM3,
    Fields,
    architecture_of,
    short,
)
from extrapolate.interop.huggingface.source import Source
from extrapolate.model.config import MOST_LAYERS
from extrapolate.names import LONGEST
from extrapolate.specs import LARGEST_WHOLE

# The fields that each type of rotary embedding requires, and those that it may leave out.
ROPE_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "longrope": ({"long_factor", "short_factor"}, {"factor", "attention_factor"}),
    "yarn": ({"factor"}, {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"}),
}
ROPE_SHARED = {"type", "rope_type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor"}
# Fields without a meaning for these types, as YaRN's own checkpoints have them, with the values that they may have.
NEUTRAL: dict[str, tuple[Any, ...]] = {"finetuned": (True, False), "extrapolation_factor": (1,), "attn_factor": (1,)}
# The fields that describe the kinds of layers, for messages.
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
    """The encoding with these layers, its arguments except thetas, and a window in tokens that all layers share."""

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
    """The kinds of the layers of a completed configuration; None if no encoding here has such layers.

    SmolLM3's no_rope_layers has a 0 for each layer without rotation, by default every `no_rope_layer_interval`-th one.
    layer_types says which layers see only the last `sliding_window` keys. Raises TypeError, ValueError or
    ArithmeticError if a field is not a list, or not a number.
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
    """Which layers have the window if there are no layer_types."""
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
    """The encoding whose layers have these rotations and windows; None if there is none."""
    if len(set(windows)) == 1 and len(set(rotates)) == 1:
        return LayerKinds("rope" if rotates[0] else "none", {}, windows[0])
    # Every n-th layer differs from the rest: it does not rotate, or only it sees all keys.
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


@dataclass(frozen=True)
class Rotary:
    """How position enters: the base theta, L in tokens, the stack that always applies, as text, and the encoding.

    others: further arguments of the encoding. unrotated_scale: what to multiply the products of unrotated channels by,
    because the extension sharpens them too.
    """

    theta: float
    seq_len: int
    extension: str | None
    encoding: str = "rope"
    others: Mapping[str, Any] = field(default_factory=dict)
    unrotated_scale: float = 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the encoding."""
        return {} if self.encoding == "none" else {"theta": self.theta, **self.others}


def rotary_of(source: Source, seq_len: int | None = None) -> Rotary:
    """The rotary embedding for a training length.

    seq_len: the training length in tokens (default: the original length of a scaling, or max_position_embeddings).
    Raises UserError on a scaling that no extension reproduces exactly.
    """
    config = source.config
    kinds = kinds_of(config)
    rope, local = _ropes(config, kinds)
    longest = config.whole("max_position_embeddings")
    name = "original_max_position_embeddings"
    original = config.values.get(name) or rope.values.get(name) or longest
    if type(original) is not int or not 2 <= original <= LARGEST_WHOLE:
        raise config.unmatched(name, original)
    length = original if seq_len is None else seq_len
    kind, fraction = kind_of(rope), _rotated(config, rope)
    _check_kind(config, kind, kinds, fraction)
    encoding, arguments = kinds.encoding, dict(kinds.arguments)
    scaling = scaling_of(rope, longest, original, length)
    unrotated_scale = 1.0
    if encoding == "local-global":
        arguments["local_theta"] = local.number("rope_theta")
        if kind == "linear" and local is not rope:  # only layers that see everything are scaled
            arguments["factor"], scaling = factor_of(rope), None
    elif fraction < 1:
        encoding, arguments = "partial-rope", {"fraction": fraction}
        if kind == "longrope":
            factor = rope.number("factor", longest / original)
            unrotated_scale = 1 / LongRoPE(factor=factor).logit_scale(length, length)
    if (pairing := architecture_of(config).pairing) != "half":
        arguments["pairing"] = pairing
    parts = [] if scaling is None or encoding == "none" else [scaling]  # without rotation there is nothing to scale
    if kinds.window is not None:
        parts.append(specs.spell("window", {"size": kinds.window}))
    extension = stacks.parse(" + ".join(parts)).text if parts else None
    return Rotary(rope.number("rope_theta"), length, extension, encoding, arguments, unrotated_scale)


def _ropes(config: Fields, kinds: LayerKinds) -> tuple[Fields, Fields]:
    """The configuration of the rotation, and that of layers with a window if other layers have none."""
    said, scaling = (config.values.get(name) or {} for name in ("rope_parameters", "rope_scaling"))
    for name, value in (("rope_parameters", said), ("rope_scaling", scaling)):
        if not isinstance(value, dict):
            raise config.error(f"{name} is {short(value)}, not an object")
    if config.values["architecture"] != GEMMA3:
        usual = {"rope_theta": config.number("rope_theta", 10_000.0)}
        rope = Fields(config.path, usual | _given(scaling or said))
        return rope, rope
    kinds_said = ("full_attention", "sliding_attention")
    far, near = (said.get(name) or {} for name in kinds_said)
    # Some versions of transformers also write a type for all layers, which means nothing.
    meant = [value for name, value in said.items() if name not in kinds_said and value not in (None, "default")]
    if meant or not isinstance(far, dict) or not isinstance(near, dict):
        raise config.error(f"rope_parameters is {short(said)}, and not an object for each type of layer")
    usual = {"rope_theta": config.number("rope_theta", 1_000_000.0)}
    everywhere = Fields(config.path, usual | _given(far) | _given(scaling))
    usual = {"rope_theta": config.number("rope_local_base_freq", 10_000.0)}
    local = Fields(config.path, usual | _given(near))
    if kind_of(local) != "default":
        raise config.error(f"rope_type of sliding_attention is {kind_of(local)}, and only default is read")
    return (everywhere if kinds.window is None else local), local


def _given(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _check_kind(config: Fields, kind: str, kinds: LayerKinds, fraction: float) -> None:
    """Raises UserError if the type of rotary embedding does not fit these layers or the architecture."""
    if config.values["architecture"] == PHI3 and kind not in ("default", "longrope"):
        raise config.error(f"rope_type is {kind}, which {PHI3} does not have")
    if kinds.encoding == "rnope" and kind in ("yarn", "longrope"):  # ours sharpen the scores of all layers
        which = "layers have no rotation"
    elif kinds.encoding == "local-global" and kind not in ("default", "linear"):
        which = "layers have a window"
    elif fraction < 1 and kind == "yarn":
        which = "channels have no rotation"
    else:
        return
    raise config.error(f"rope_type is {kind}, and some {which}: no extension here reproduces that")


def _rotated(config: Fields, rope: Fields) -> float:
    """The share of channels that rotate."""
    name = "partial_rotary_factor"
    given = rope if rope.values.get(name) is not None else config
    fraction = given.number(name, 1.0)
    if fraction > 1 or (fraction < 1 and not architecture_of(config).partial):
        raise config.unmatched(name, fraction)
    return fraction


def kind_of(rope: Fields) -> str:
    """The type of rotary embedding in a configuration. Raises UserError if it is unknown or its fields do not fit."""
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    kind = "longrope" if kind == "su" else kind  # the name in Phi-3's first releases
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        raise rope.error(f"rope_type is {short(kind)}; what can be read: {', '.join(ROPE_FIELDS)}")
    needed, optional = ROPE_FIELDS[kind]
    if missing := sorted(name for name in needed if rope.values.get(name) is None):
        raise rope.error(f"its rope_type, {kind}, lacks {', '.join(missing)}")
    given = {name for name, value in rope.values.items() if value is not None and value not in NEUTRAL.get(name, ())}
    if unknown := sorted(given - needed - optional - ROPE_SHARED):
        raise rope.error(f"its rope_type, {kind}, does not go with {', '.join(unknown)}")
    return kind


def scaling_of(rope: Fields, longest: int, original: int, length: int) -> str | None:
    """The scaling of a rotary embedding as an extension's text; None if there is none.

    longest: max_position_embeddings. original: the scaling's unit of length. length: L. All in tokens. Raises UserError
    on a scaling that no extension reproduces exactly.
    """
    kind = kind_of(rope)
    if kind == "linear":
        return specs.spell("pi", {"factor": factor_of(rope)})
    if kind == "dynamic":
        if length != longest or original != longest:
            raise rope.error(
                "its rope_type, dynamic, depends on max_position_embeddings, which is "
                f"{longest}: the training length cannot be {length}"
            )
        return specs.spell("dynamic-ntk", {"factor": factor_of(rope)})
    if kind == "llama3":
        # Turns within L. At the same frequency, a longer L has more of them.
        slow, fast = (rope.number(f"{name}_freq_factor") * length / original for name in ("low", "high"))
        return specs.spell("llama3", {"factor": factor_of(rope), "slow": slow, "fast": fast})
    if kind == "longrope":
        return _longrope(rope, longest, original, length)
    if kind == "yarn":
        factor = factor_of(rope)
        _check_yarn(rope, factor)
        fast, slow = (
            rope.number(f"beta_{name}", usual) * length / original for name, usual in (("fast", 32.0), ("slow", 1.0))
        )
        return specs.spell("yarn", {"factor": factor, "fast": fast, "slow": slow})
    return None


def factor_of(rope: Fields) -> float:
    """The factor of a scaling. Raises UserError if it is below 1."""
    factor = rope.number("factor")
    if factor < 1:
        raise rope.unmatched("factor", factor)
    return factor


def _check_yarn(rope: Fields, factor: float) -> None:
    """Raises UserError unless scores are multiplied by A^2 with A = 0.1 ln s + 1, and the ramp's ends are rounded."""
    if rope.values.get("truncate") not in (None, True):
        raise rope.unmatched("truncate", rope.values["truncate"])
    ours = 0.1 * math.log(factor) + 1
    given = rope.values.get("attention_factor")
    if given is not None and not math.isclose(rope.number("attention_factor"), ours, rel_tol=1e-6):
        raise rope.unmatched("attention_factor", given)
    if given is None and rope.values.get("mscale") and rope.values.get("mscale_all_dim"):
        above, below = (0.1 * rope.number(name) * math.log(factor) + 1 for name in ("mscale", "mscale_all_dim"))
        if not math.isclose(above / below, ours, rel_tol=1e-6):
            raise rope.unmatched("mscale", rope.values["mscale"])


def _longrope(rope: Fields, longest: int, original: int, length: int) -> str:
    """The extension for longrope. Raises UserError unless scores are multiplied by 1 + ln s / ln L for this L."""
    if length != original:
        raise rope.error(
            "its rope_type, longrope, depends on original_max_position_embeddings, which is "
            f"{original}: the training length cannot be {length}"
        )
    lists = {}
    for name in ("long", "short"):
        numbers = rope.values[f"{name}_factor"]
        if not isinstance(numbers, list) or not numbers or not all(type(one) in (int, float) for one in numbers):
            raise rope.unmatched(f"{name}_factor", numbers)
        lists[name] = ",".join(map(str, numbers))
    factor = rope.number("factor", longest / original)
    ours = math.sqrt(1 + math.log(max(1.0, factor)) / math.log(original))
    if not math.isclose(rope.number("attention_factor", ours), ours, rel_tol=1e-6):
        raise rope.unmatched("attention_factor", rope.values["attention_factor"])
    return specs.spell("longrope", {"factor": factor, **lists})
