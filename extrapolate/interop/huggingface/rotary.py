"""How position enters a checkpoint's model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extrapolate import specs
from extrapolate.extensions import recipe as recipes
from extrapolate.interop.huggingface.architectures import ONLY
from extrapolate.interop.huggingface.fields import Fields, short
from extrapolate.interop.huggingface.layer_kinds import LayerKinds, layer_kinds
from extrapolate.interop.huggingface.scaling import kind_of, scaling_of
from extrapolate.interop.huggingface.source import Source


@dataclass(frozen=True)
class Rotary:
    """How position enters: the base theta, L in tokens, what always applies, as a recipe's text, and the encoding."""

    theta: float
    seq_len: int
    extension: str | None
    encoding: str = "rope"
    others: Mapping[str, Any] = field(default_factory=dict)  # arguments of the encoding

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
    said = config.values.get("rope_scaling") or config.values.get("rope_parameters") or {}
    if not isinstance(said, dict):
        raise config.error(f"rope_scaling is {short(said)}, not an object")
    rope = Fields(config.path, said)
    theta = Fields(config.path, {**config.values, **said}).number("rope_theta", 10_000.0)
    longest = config.whole("max_position_embeddings")
    name = "original_max_position_embeddings"
    original = config.values.get(name) or said.get(name) or longest
    if not isinstance(original, int) or isinstance(original, bool) or original < 2:
        raise config.unmatched(name, original)
    length = original if seq_len is None else seq_len
    kind = kind_of(rope)
    if said.get("partial_rotary_factor") not in ONLY["partial_rotary_factor"]:
        raise config.unmatched("partial_rotary_factor", said["partial_rotary_factor"])
    scaling = scaling_of(rope, longest, original, length)
    parts = [] if scaling is None else [scaling]
    if config.values["architecture"] == "MistralForCausalLM" and config.values["sliding_window"] is not None:
        parts.append(specs.spell("window", {"size": config.whole("sliding_window")}))
    kinds = _kinds(config)
    if kinds.encoding == "none":
        parts = []  # nothing rotates that could be scaled
    elif kinds.encoding != "rope" and kind in ("yarn", "longrope"):  # ours sharpen the scores of all layers
        raise config.error(f"rope_type is {kind}, and some layers have no rotation: no extension here reproduces that")
    if kinds.window is not None:
        parts.append(specs.spell("window", {"size": config.whole("sliding_window")}))
    extension = recipes.parse(" + ".join(parts)).text if parts else None
    return Rotary(theta, length, extension, kinds.encoding, kinds.arguments)


def _kinds(config: Fields) -> LayerKinds:
    if config.values["architecture"] != "SmolLM3ForCausalLM":
        return LayerKinds("rope", {}, None)
    try:
        kinds = layer_kinds(config.values, config.whole("num_hidden_layers"))
    except (TypeError, ValueError, ArithmeticError):
        kinds = None
    if kinds is None:
        raise config.error(
            f"no_rope_layers is {short(config.values.get('no_rope_layers'))}, and layer_types is "
            f"{short(config.values.get('layer_types'))}: no encoding here has such layers"
        )
    return kinds
