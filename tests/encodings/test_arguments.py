"""Arguments as the docstrings give them: defaults at several sizes, and the last value on each side that is taken."""

from pathlib import Path
from typing import Any

import pytest

from extrapolate.encodings.base import Dims, encodings
from extrapolate.extensions import stack
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

SMALL = Dims(width=32, heads=2, head_dim=16, seq_len=16, layers=2)
LARGE = Dims(width=512, heads=8, head_dim=64, seq_len=2048, layers=12)
ROTARY = {"theta": 10_000.0, "pairing": "half"}
EXPE = {"start": -1.0, "learned": "no", "blocks": "all", "value_input": False}
# A test file with the name of an encoding has what it needs to say of defaults and of checkpoints.
OWN_TESTS = {
    name for name in encodings.names() if Path(__file__).with_name(f"test_{name.replace('-', '_')}.py").exists()
}
# Of each encoding: what is the same at all sizes, what follows from the small ones, and from the large.
# A pair m of M completes a turn where 10 000^(-m/M) >= 2 pi / L: m <= 0.81 of 8 pairs, and 20.1 of 32.
DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "alibi": ({}, {}, {}),
    "bam": ({"shape": 1.0, "loc": 0.0, "train_loc": False, "shared": True}, {}, {}),
    "cope": ({"count": 64, "scaled": False}, {}, {}),
    "dape": ({"base": "alibi", "width": 32}, {}, {}),
    "darope": (ROTARY | {"alpha": 0.5, "spread": 0.1}, {"kept": 1, "length": 16}, {"kept": 21, "length": 2048}),
    "expe": (EXPE, {"size": 4, "step": 1 / 8, "slope": 1 / 8}, {"size": 64, "step": 1 / 1024, "slope": 1 / 1024}),
    "exqpe": (EXPE, {"size": 4, "step": 1 / 8, "slope": 1 / 8}, {"size": 64, "step": 1 / 1024, "slope": 1 / 1024}),
    "fire": ({"width": 32, "depth": 1, "shared": False}, {"threshold": 8.0}, {"threshold": 1024.0}),
    "fope": ({"gain": 0.3, "theta": 10_000.0}, {"kept": 1}, {"kept": 21}),
    "fox": ({"form": "fox", "gate_bias": 0.0}, {}, {}),
    "gape": (ROTARY | {"p": 1.0, "drop": "slowest"}, {"length": 16}, {"length": 2048}),
    "grape": ({"form": "a", "width": 8}, {}, {}),
    "hope": (ROTARY, {"kept": 1}, {"kept": 21}),
    "kerple": ({"kernel": "log"}, {}, {}),
    "learned": ({}, {}, {}),
    "lerope": (ROTARY, {}, {}),
    "none": ({}, {}, {}),
    "p-rope": (ROTARY | {"p": 0.75, "drop": "slowest"}, {}, {}),
    "local-global": (
        {"theta": 1_000_000.0, "local_theta": 10_000.0, "factor": 1.0, "pairing": "half"},
        {"every": 2, "window": 8},
        {"every": 6, "window": 1024},
    ),
    "partial-rope": (ROTARY | {"fraction": 0.25}, {}, {}),
    "path": ({"forget": False, "rank": 32}, {}, {}),
    "pope": ({"theta": 10_000.0, "delta": "zero"}, {}, {}),
    "random": (
        {"evaluate": "sample", "base": "rope:theta=10000.0,pairing=half", "curriculum": 0.0},
        {"max": 512},
        {"max": 65_536},
    ),
    "rnope": (ROTARY, {"every": 2, "window": 8}, {"every": 4, "window": 1024}),
    "rope": (ROTARY, {}, {}),
    "rope-pp": (ROTARY | {"imaginary": "second-half"}, {}, {}),
    "sandwich": ({"size": 128}, {}, {}),
    "scale-invariant": (ROTARY | {"tau": 10.0}, {"kept": 1}, {"kept": 21}),
    "selective-rope": (ROTARY | {"rank": 16, "theta": 500_000.0, "gate": False, "form": "learned"}, {}, {}),
    "shaw": ({}, {"max_distance": 15}, {"max_distance": 128}),
    "sinusoidal": ({"theta": 10_000.0}, {}, {}),
    "t5": ({}, {"buckets": 8, "max_distance": 16}, {"buckets": 32, "max_distance": 128}),
    "tapa": ({"amplitude": 0.5, "power": 0.1}, {}, {}),
    "wall": ({"gate_bias": 8.0}, {}, {}),
    "xpos": ({"gamma": 0.4, "theta": 10_000.0}, {"scale_base": 16.0}, {"scale_base": 2048.0}),
}


def test_every_encoding_is_here_or_has_a_test_of_its_own() -> None:
    assert DEFAULTS.keys() <= set(encodings.names()) <= DEFAULTS.keys() | OWN_TESTS


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_docstring(name: str) -> None:
    always, small, large = DEFAULTS[name]
    assert layer_encodings(name, {}, SMALL)[0].arguments() == always | small
    assert layer_encodings(name, {}, LARGE)[0].arguments() == always | large


@pytest.mark.parametrize(
    ("name", "argument", "taken", "refused"),
    [
        ("cope", "count", [2], [1]),
        ("dape", "width", [1], [0]),
        ("expe", "size", [0, 1, 32], [-1, 33]),
        ("exqpe", "size", [0, 1, 32], [-1, 33]),
        ("fire", "width", [1], [0]),
        ("fire", "depth", [1], [0]),
        ("fire", "threshold", [0.5], [0.0, -1.0]),
        ("fope", "gain", [0.0], [-0.1]),
        ("fope", "kept", [1, 8], [0, 9]),
        ("gape", "length", [1], [0]),
        ("gape", "p", [0.0, 1.0], [-0.01, 1.01]),
        ("grape", "width", [2, 4], [0, 3]),
        ("hope", "kept", [0, 8], [-1, 9]),
        ("p-rope", "p", [0.0, 1.0], [-0.01, 1.01]),
        ("partial-rope", "fraction", [0.0, 0.125, 1.0], [-0.125, 0.05, 0.1875, 1.125]),
        ("path", "rank", [1], [0]),
        ("pope", "theta", [1.5], [1.0]),
        ("random", "max", [16, 17], [15]),
        ("random", "curriculum", [0.0, 1.0], [-0.1, 1.1]),
        ("local-global", "every", [1, 2], [0, 3]),
        ("local-global", "window", [1], [0]),
        ("local-global", "local_theta", [1.5], [1.0]),
        ("local-global", "factor", [0.5], [0.0]),
        ("rnope", "every", [1, 2], [0, 3]),
        ("rnope", "window", [1], [0]),
        ("rope", "theta", [1.5], [1.0]),
        ("sandwich", "size", [2, 4], [0, 1, 3]),
        ("scale-invariant", "kept", [0, 8], [-1, 9]),
        ("scale-invariant", "tau", [0.1], [0.0]),
        ("shaw", "max_distance", [1, 1000], [0]),
        ("sinusoidal", "theta", [0.5], [0.0]),
        ("t5", "buckets", [2, 4], [0, 1, 3]),
        ("t5", "max_distance", [5, 1000], [4]),  # half of the eight buckets is 4
        ("tapa", "amplitude", [0.0625, 0.9375], [0.0, 0.03, 0.97, 1.0]),
        ("tapa", "power", [0.01], [0.0]),
        ("xpos", "scale_base", [0.5], [0.0]),
        ("xpos", "gamma", [0.5], [0.0]),
    ],
)
def test_the_last_values_that_are_taken_and_the_first_that_are_not(
    name: str, argument: str, taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        assert layer_encodings(name, {argument: value}, SMALL)[0].arguments()[argument] == value
    for value in refused:
        with pytest.raises(ValueError, match=argument):
            layer_encodings(name, {argument: value}, SMALL)


@pytest.mark.parametrize("seq_len", [1, 2, 3, 4, 7, 8, 63, 64, 256])
def test_defaults_that_follow_from_l_are_taken_at_any_l(seq_len: int) -> None:
    """By their words: half of L, L less 1, and so on, each no less than what is taken."""
    dims = Dims(width=32, heads=2, head_dim=16, seq_len=seq_len, layers=2)
    assert layer_encodings("rnope", {}, dims)[0].arguments()["window"] == max(1, seq_len // 2)
    buckets, far = layer_encodings("t5", {}, dims)[0].arguments().values()
    assert buckets == max(2, min(32, 2 * (seq_len // 4)))
    assert far == max(buckets // 2 + 1, min(128, seq_len))
    assert layer_encodings("fire", {}, dims)[0].arguments()["threshold"] == seq_len / 2
    if seq_len > 1:
        assert layer_encodings("shaw", {}, dims)[0].arguments()["max_distance"] == min(seq_len - 1, 128)


@pytest.mark.parametrize(
    ("spec", "unusual", "label"),
    [
        (("rope", {"theta": 500.0}), {"theta": 500.0}, "RoPE(theta=500)"),
        (("rope", {"theta": 10_000.0}), {}, "RoPE"),
        (("random", {"base": "rope:theta=500"}), {"base": "rope:theta=500.0"}, "Random(RoPE(theta=500))"),
        (("random", {"base": "rope:theta=10000"}), {}, "Random(RoPE)"),
        (("random", {"base": "alibi", "max": 64}), {"base": "alibi", "max": 64}, "Random(ALiBi, max=64)"),
        (("dape", {"base": "fire:depth=2", "width": 8}), {"base": "fire:depth=2", "width": 8},
         "DAPE(FIRE(depth=2), width=8)"),
    ],
)  # fmt: skip
def test_labels_and_folders_have_what_is_not_a_default(
    spec: tuple[str, dict[str, Any]], unusual: dict[str, Any], label: str
) -> None:
    encoding = layer_encodings(*spec, SMALL)[0]
    assert encoding.unusual_arguments() == unusual
    assert encoding.label() == label


KDA = {
    *("taps_HK4", "log_speed_H", "forget_bias_HK", "scale_K", "forget_down.weight", "forget_up.weight"),
    *("write.weight", "gate_down.weight", "gate_up.weight", "gate_up.bias"),
}
WITH_STATE = {
    "asentmax": {"gain.weight", "exponent.weight"},
    "bam": {"scale_H", "shape_H"},
    "cope": {"table_PK"},
    "darope": {"content.weight", "alpha_H"},
    "dape": {"network.0.weight", "network.0.bias", "network.2.weight", "network.2.bias"},
    "fire": {"c", "factor", "network.0.weight", "network.0.bias", "network.2.weight", "network.2.bias"},
    "fope": {"cos_HMC", "sin_HMC"},  # drawn once, and not trained
    "fox": {"gate.weight", "gate.bias"},
    "gape": {"query_HK", "key_HK", "query_bias_H", "key_bias_H", "gamma_H"},
    "grape": {"omega_H", "query_HK", "key_HK"},
    "hype": {"query_norm.weight", "key_norm.weight", "norm.weight", "gate.weight"},
    "kda": KDA,
    "kerple": {"a_H", "p_H"},
    "learned": {"table_LD"},
    "lerope": {"alpha_M"},
    "path": {"narrow.weight", "wide.weight", "taps_UC", "strength.weight", "strength.bias"},
    "pattern": {f"inner.{name}" for name in KDA},
    "pope": {"delta_HK"},
    "retention": {"gate.weight"},
    "selective-rope": {"down.weight", "up.weight", "tap_UC"},
    "shaw": {"table_RK"},
    "t5": {"table_RH"},
    "wall": {"gate.weight", "gate.bias"},
}


@pytest.mark.parametrize("name", [name for name in encodings.names() if name in WITH_STATE or name not in OWN_TESTS])
def test_a_checkpoint_holds_what_is_trained_or_drawn_and_no_constants(name: str) -> None:
    assert set(layer_encodings(name, {}, SMALL)[0].state_dict()) == WITH_STATE.get(name, set())


def applicable(name: str) -> set[str]:
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
    return set(stack.applicable(Model(sizes, name, {}, 16)))


def test_which_extensions_apply() -> None:
    assert applicable("darope") == {"log-n", "pi", "temperature"}
    assert applicable("selective-rope") == {"log-n", "temperature"}
    assert applicable("lerope") == applicable("rope-pp") == applicable("rope")
    assert "pi" in applicable("rope-id") == applicable("alibi") - {"llama4"}  # which is for layers without a rotation
    assert {"log-n", "temperature", "yarn", "ntk"} <= applicable("repo")
    assert not {"pi", "window", "sinks", "rerope", "expe-scale"} & applicable("repo")
