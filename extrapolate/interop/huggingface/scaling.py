"""The scaling of a checkpoint's rotary embedding, as an extension here."""

import math

from extrapolate import specs
from extrapolate.interop.huggingface.config import Fields, short

# What each type of rotary embedding may say, and what it may leave out.
ROPE_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, set()),
    "longrope": ({"long_factor", "short_factor"}, {"factor", "attention_factor"}),
    "yarn": ({"factor"}, {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"}),
}
ROPE_SHARED = {"type", "rope_type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor"}


def kind_of(rope: Fields) -> str:
    """The type of rotary embedding that an object of a configuration describes. Raises UserError on an unknown one."""
    kind = rope.values.get("rope_type") or rope.values.get("type") or "default"
    kind = "longrope" if kind == "su" else kind  # as Phi-3's first releases call it
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        raise rope.error(f"rope_type is {short(kind)}; what can be read: {', '.join(ROPE_FIELDS)}")
    needed, optional = ROPE_FIELDS[kind]
    if missing := sorted(name for name in needed if rope.values.get(name) is None):
        raise rope.error(f"its rope_type, {kind}, lacks {', '.join(missing)}")
    given = {name for name, value in rope.values.items() if value is not None}
    if unknown := sorted(given - needed - optional - ROPE_SHARED):
        raise rope.error(f"its rope_type, {kind}, does not go with {', '.join(unknown)}")
    return kind


def scaling_of(rope: Fields, longest: int, original: int, length: int) -> str | None:
    """What a rotary embedding applies, as an extension's text; None for nothing.

    longest: max_position_embeddings. original: the length that the scaling counts in. length: L. All in tokens. Raises
    UserError on a scaling that no extension reproduces exactly.
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
        # Turns within L: more of them in a longer L, at the same frequency.
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
    """The factor of a scaling. Raises UserError if it is less than 1."""
    factor = rope.number("factor")
    if factor < 1:
        raise rope.unmatched("factor", factor)
    return factor


def _check_yarn(rope: Fields, factor: float) -> None:
    """Raises UserError unless scores are multiplied by A^2, A = 0.1 ln s + 1, and the ramp's ends are rounded."""
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
    """The extension of a longrope. Raises UserError unless scores are multiplied by 1 + ln s / ln L, for this L."""
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
