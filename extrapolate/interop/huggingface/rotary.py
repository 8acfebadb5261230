"""How position enters a checkpoint's model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extrapolate import specs
from extrapolate.extensions import recipe as recipes
from extrapolate.extensions.frequencies import LongRoPE
from extrapolate.interop.huggingface.architectures import GEMMA3, PHI3, architecture_of
from extrapolate.interop.huggingface.fields import Fields, short
from extrapolate.interop.huggingface.layer_kinds import LayerKinds, kinds_of
from extrapolate.interop.huggingface.scaling import factor_of, kind_of, scaling_of
from extrapolate.interop.huggingface.source import Source
from extrapolate.specs import LARGEST_WHOLE


@dataclass(frozen=True)
class Rotary:
    """How position enters: the base theta, L in tokens, what always applies, as a recipe's text, and the encoding.

    unrotated_scale: what the products of channels that do not rotate are to be multiplied by, for the extension
    sharpens them, too.
    """

    theta: float
    seq_len: int
    extension: str | None
    encoding: str = "rope"
    others: Mapping[str, Any] = field(default_factory=dict)  # arguments of the encoding
    unrotated_scale: float = 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the encoding."""
        return {} if self.encoding == "none" else {"theta": self.theta, **self.others}


def rotary_of(source: Source, seq_len: int | None = None) -> Rotary:
    """The rotary embedding, for the training length named or else the one the configuration says.

    That is the original length of a scaling, or max_position_embeddings. Raises UserError on a scaling that no
    extension of ours reproduces exactly.
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
        if kind == "linear" and local is not rope:  # of the layers that see everything
            arguments["factor"], scaling = factor_of(rope), None
    elif fraction < 1:
        encoding, arguments = "partial-rope", {"fraction": fraction}
        if kind == "longrope":
            factor = rope.number("factor", longest / original)
            unrotated_scale = 1 / LongRoPE(factor=factor).logit_scale(length, length)
    if (pairing := architecture_of(config).pairing) != "half":
        arguments["pairing"] = pairing
    parts = [] if scaling is None or encoding == "none" else [scaling]  # where nothing rotates, nothing is scaled
    if kinds.window is not None:
        parts.append(specs.spell("window", {"size": kinds.window}))
    extension = recipes.parse(" + ".join(parts)).text if parts else None
    return Rotary(rope.number("rope_theta"), length, extension, encoding, arguments, unrotated_scale)


def _ropes(config: Fields, kinds: LayerKinds) -> tuple[Fields, Fields]:
    """What the configuration says of the rotation, and of that in layers with a window where others have none."""
    said, scaling = (config.values.get(name) or {} for name in ("rope_parameters", "rope_scaling"))
    for name, value in (("rope_parameters", said), ("rope_scaling", scaling)):
        if not isinstance(value, dict):
            raise config.error(f"{name} is {short(value)}, not an object")
    if config.values["architecture"] != GEMMA3:
        usual = {"rope_theta": config.number("rope_theta", 10_000.0)}
        rope = Fields(config.path, usual | _given(scaling or said))
        return rope, rope
    kinds_said = ("full_attention", "sliding_attention")
    # Some versions of transformers write a type for all layers beside, which means nothing.
    if any(value not in (None, "default") for name, value in said.items() if name not in kinds_said):
        raise config.error(f"rope_parameters is {short(said)}, and not an object for each type of layer")
    far, near = (said.get(name) or {} for name in kinds_said)
    if not isinstance(far, dict) or not isinstance(near, dict):
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
    """Raises UserError if a type of rotary embedding does not go with such layers, or with the architecture."""
    if config.values["architecture"] == PHI3 and kind not in ("default", "longrope"):
        raise config.error(f"rope_type is {kind}, which {PHI3} does not have")
    which = None
    if kinds.encoding == "rnope" and kind in ("yarn", "longrope"):  # ours sharpen the scores of all layers
        which = "layers have no rotation"
    elif kinds.encoding == "local-global" and kind not in ("default", "linear"):
        which = "layers have a window"
    elif fraction < 1 and kind == "yarn":
        which = "channels have no rotation"
    if which is not None:
        raise config.error(f"rope_type is {kind}, and some {which}: no extension here reproduces that")


def _rotated(config: Fields, rope: Fields) -> float:
    """The share of channels that rotate."""
    name = "partial_rotary_factor"
    given = rope if rope.values.get(name) is not None else config
    fraction = given.number(name, 1.0)
    if fraction > 1 or (fraction < 1 and not architecture_of(config).partial):
        raise config.unmatched(name, fraction)
    return fraction
