"""Jet-Long's two forms, against distances and angles by hand and a decoder that turns by them."""

import math
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import DISTANCES, FREQUENCIES, Dims, encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.extensions import stack
from extrapolate.extensions.jet_long import RegroupedPairs, SlowedPairs
from extrapolate.model.branches import branches_of
from extrapolate.model.model import Model, layer_encodings

L = 16
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000


def regrouped(group: int, window: int) -> Callable[[int, int], float]:
    return lambda i, j: i - j if i - j <= window else i // group - j // group


@pytest.mark.parametrize(
    ("text", "length", "group", "window"),
    [
        ("jet-long", 17, 2, 1),
        ("jet-long", 32, 2, 1),
        ("jet-long", 33, 3, 1),
        ("jet-long:window=5", 48, 3, 5),
        ("jet-long:window=0", 64, 4, 0),
    ],
)
@pytest.mark.parametrize("kind", ["rope", "alibi"])
def test_far_pairs_count_in_groups(
    text: str, length: int, group: int, window: int, kind: str, make_model: Any, by_hand: Any, every_path: Any
) -> None:
    model = make_model(kind, L, layers=1, kv_heads=1)
    plan = stack.parse(text).plan(model.encoding, L, length)
    assert plan == Plan(pairs=RegroupedPairs(group, window))
    rule = {"bias": lambda q, h, r: -(2.0 ** (-4 * (h + 1))) * r} if kind == "alibi" else {"frequencies": ROPE}
    expected = by_hand(model, length, distance=regrouped(group, window), **rule)
    for actual in every_path(model, length, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=3e-4)


def slowed(length: int, window: int, fast: float = 32, slow: float = 1) -> tuple[list[float], float]:
    """The slower frequencies of ROPE, and the scores' factor."""
    low = max(0, math.floor(16 * math.log(L / (2 * math.pi * fast)) / (2 * math.log(1e4))))
    high = min(7, math.ceil(16 * math.log(L / (2 * math.pi * slow)) / (2 * math.log(1e4))))
    s = (length - window) / (L - window)
    found = []
    for m, w in enumerate(ROPE):
        ramp = min(1.0, max(0.0, (m - low) / max(high - low, 0.001)))
        found.append(w * (1 - ramp * (1 - 1 / s)))
    return found, 0.1 * math.log(s) + 1


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize(
    ("text", "length", "window", "turns"),
    [
        ("jet-long-freq", 17, 1, {}),
        ("jet-long-freq", 64, 1, {}),
        ("jet-long-freq:window=5", 48, 5, {}),
        ("jet-long-freq:window=0", 33, 0, {}),
        ("jet-long-freq:window=3,fast=2,slow=0.01", 40, 3, {"fast": 2, "slow": 0.01}),
    ],
)
def test_far_pairs_turn_more_slowly(
    text: str, length: int, window: int, turns: Any, kv_heads: int, make_model: Any, every_path: Any
) -> None:
    """One layer by hand: a pair's angle is w r up to the window, and goes on at w' from there."""
    model = make_model("rope", L, layers=1, kv_heads=kv_heads)
    plan = stack.parse(text).plan(model.encoding, L, length)
    slow, factor = slowed(length, window, **turns)
    assert plan.logit_scale == pytest.approx(factor)
    expected = one_layer(model, length, slow, window, factor)
    for actual in every_path(model, length, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=3e-4)


def one_layer(model: Model, length: int, slow: list[float], window: int, factor: float) -> Tensor:
    """Logits of the tokens that `logits` has, float64: a decoder of one layer, pair by pair."""
    weights = {name: value.double() for name, value in model.state_dict().items()}
    tokens_T = torch.randint(0, 61, (1, length), generator=torch.Generator().manual_seed(1))[0]

    def normed(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weights[name]

    x = weights["embedding.weight"][tokens_T]
    read = normed(x, "blocks.0.attention_norm.weight")
    kv_heads = model.config.kv_heads
    q, k, v = (read @ weights["blocks.0.attention.qkv.weight"].T).split([32, 16 * kv_heads, 16 * kv_heads], dim=-1)
    mixed = torch.zeros(length, 2, 16, dtype=torch.float64)
    for h in range(2):
        g = h * kv_heads // 2
        q_TK, k_TK, v_TK = q[:, 16 * h : 16 * h + 16], k[:, 16 * g : 16 * g + 16], v[:, 16 * g : 16 * g + 16]
        for i in range(length):
            scores = torch.zeros(i + 1, dtype=torch.float64)
            for j in range(i + 1):
                r = i - j
                for m, w in enumerate(ROPE):
                    angle = w * r if r <= window else w * window + slow[m] * (r - window)
                    turned = complex(q_TK[i, m], q_TK[i, m + 8]) * complex(math.cos(angle), math.sin(angle))
                    scores[j] += (turned * complex(k_TK[j, m], -k_TK[j, m + 8])).real
            mixed[i, h] = (factor * scores / 4).softmax(dim=0) @ v_TK[: i + 1]
    x = x + mixed.flatten(1) @ weights["blocks.0.attention.out.weight"].T
    hidden = normed(x, "blocks.0.feed_forward_norm.weight") @ weights["blocks.0.feed_forward.gate_up.weight"].T
    gate, up = hidden.chunk(2, dim=-1)
    x = x + (gate * gate.sigmoid() * up) @ weights["blocks.0.feed_forward.down.weight"].T
    return normed(x, "norm.weight") @ weights["head.weight"].T


@pytest.mark.parametrize("name", ["rope", "rope:pairing=interleaved", "partial-rope:fraction=0.5", "pope"])
def test_a_slower_pair_is_every_encodings_own(name: str, make_model: Any) -> None:
    """Far scores are those at the window, moved on by the encoding itself at slower frequencies.

    Checked without its formula: for frequencies that all fall to a half, a distance of W + 2 n counts as W + n.
    """
    model = make_model(name, L, layers=1, heads=2, kv_heads=2)
    encoding = model.encoding
    spectrum = encoding.spectrum()
    window, length = 3, 12
    q_BHTK, k_BHTK = torch.randn(2, 1, 2, length, 16, generator=torch.Generator().manual_seed(0))
    q_BHTK, k_BHTK = q_BHTK[:, :, :1].expand_as(q_BHTK), k_BHTK[:, :, :1].expand_as(k_BHTK)
    plan = Plan(pairs=SlowedPairs((0.5,) * spectrum.count, window))
    _, far = branches_of(plan, q_BHTK, k_BHTK, encoding.extended(plan), None)
    found = far.q_BHTK[0, 0, -1] @ far.k_BHTK[0, 0].T
    at = torch.arange(float(length))
    q, k = encoding.rotate(q_BHTK, k_BHTK, at, at)
    for n in range(4):
        expected = q[0, 0, -1] @ k[0, 0, length - 1 - window - n]
        torch.testing.assert_close(found[length - 1 - window - 2 * n], expected, rtol=1e-4, atol=1e-4)


def test_the_turn_up_to_the_window_is_stored_in_few_bits(make_model: Any) -> None:
    """Seen at index 0, where nothing else turns a query."""
    encoding, plan = make_model("rope", L, layers=1).encoding, Plan(pairs=SlowedPairs((0.5,) * 8, 3))
    q_BHTK = k_BGTK = torch.eye(16)[:, None, None].expand(-1, 2, 5, -1)  # a channel at a time
    exact, stored = (
        branches_of(plan, q_BHTK, k_BGTK, encoding.extended(plan).rounded_to(storage), None)[1].q_BHTK[:, :, 0]
        for storage in ("fp32", "bf16")
    )
    assert torch.equal(stored, exact.bfloat16().float())
    assert not torch.equal(stored, exact)


def test_xpos_decays_by_the_true_distance(make_model: Any) -> None:
    encoding = make_model("xpos", L, layers=1).encoding
    q_BHTK = k_BHTK = torch.ones(1, 2, 12, 16)
    plan = Plan(pairs=SlowedPairs((0.5,) * 8, 3))
    _, far = branches_of(plan, q_BHTK, k_BHTK, encoding.extended(plan), None)
    w, zeta = 1.0, (0 + 0.4) / 1.4
    for r in (4, 7, 11):
        pair = far.q_BHTK[0, 0, 11, :2] @ far.k_BHTK[0, 0, 11 - r, :2]
        assert float(pair) == pytest.approx(2 * zeta ** (r / L) * math.cos(3 * w + (r - 3) * w / 2), abs=1e-5)


@pytest.mark.parametrize(("other", "shares"), [("p-rope:p=0.5", [1.0] * 4 + [0.0] * 4), ("pi:factor=2", [0.5] * 8)])
def test_other_frequencies_and_positions_apply_to_far_pairs_too(
    other: str, shares: list[float], make_model: Any, every_path: Any
) -> None:
    """Also to the turn up to the window. Half of every position is half of every frequency."""
    model = make_model("rope", L, layers=1)
    slow, factor = slowed(48, 2)
    plan = stack.parse(f"{other} + jet-long-freq:window=2").plan(model.encoding, L, 48)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "ROPE", [w * share for w, share in zip(ROPE, shares, strict=True)])
        expected = one_layer(model, 48, [w * share for w, share in zip(slow, shares, strict=True)], 2, factor)
    for actual in every_path(model, 48, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=3e-4)


def test_the_ramp_ends_at_the_last_pair() -> None:
    """Even that one completes 11.6 turns here. A ramp up to one turn would go on to pair 12 of 0 to 7."""
    encoding = RoPE(Dims(64, 4, 16, 4096), theta=100.0)
    s = (8192 - 256) / (4096 - 256)
    plan = stack.parse("jet-long-freq").plan(encoding, 4096, 8192)
    assert isinstance(plan.pairs, SlowedPairs)
    assert plan.pairs.scale == pytest.approx([1] * 6 + [(1 + 1 / s) / 2, 1 / s])


def test_layers_without_rotation_and_with_unscaled_frequencies_are_left_alone(make_model: Any, logits: Any) -> None:
    """RNoPE's fourth layer has no angles, and a local layer of local-global keeps its own."""
    model = make_model("rnope:every=1", L, layers=1)
    plan = stack.parse("jet-long-freq").plan(model.encoding, L, 48)
    expected = logits(model, 48, Plan(logit_scale=plan.logit_scale))
    torch.testing.assert_close(logits(model, 48, plan), expected, rtol=1e-4, atol=1e-4)
    model = make_model("local-global:every=2,window=40", L, layers=2)
    local = layer_encodings("local-global", {"every": 2, "window": 40}, Dims(32, 2, 16, L, layers=2))[0]
    branches = branches_of(plan, torch.ones(1, 2, 9, 16), torch.ones(1, 2, 9, 16), local.extended(plan), None)
    for branch in branches:
        torch.testing.assert_close(branch.q_BHTK, branches[0].q_BHTK)


@pytest.mark.parametrize("text", ["jet-long", "jet-long-freq", "jet-long:window=5", "jet-long-freq:window=5"])
def test_nothing_changes_within_the_training_length(text: str, make_model: Any) -> None:
    encoding = make_model("rope", L).encoding
    for length in (1, 8, L):
        assert stack.parse(text).plan(encoding, L, length) == PLAIN
    assert stack.parse(text).plan(encoding, L, L + 1) != PLAIN


def test_default_windows() -> None:
    for seq_len, window in ((8, 1), (64, 4), (100, 6)):
        encoding = RoPE(Dims(64, 4, 16, seq_len))
        for name in ("jet-long", "jet-long-freq"):
            plans = [
                stack.parse(text).plan(encoding, seq_len, 4 * seq_len) for text in (name, f"{name}:window={window}")
            ]
            assert plans[0] == plans[1]


def test_the_window_is_inclusive_and_there_is_no_shift() -> None:
    for pairs in (RegroupedPairs(4, 5), SlowedPairs((0.5,) * 8, 5)):
        near, far = pairs.branches()
        i, j = torch.tensor(20), torch.arange(21)
        assert near.seen(i, j).tolist() == [False] * 15 + [True] * 6
        assert far.seen(i, j).tolist() == [True] * 15 + [False] * 6


def test_where_it_means_something(make_model: Any) -> None:
    for name in encodings.names():
        model = make_model(name, L)
        spectrum = model.encoding.spectrum()
        applies = "jet-long-freq" in stack.applicable(model)
        accepted = {FREQUENCIES, DISTANCES} <= model.encoding.accepts
        assert applies == (spectrum is not None and name != "fope" and accepted), name
    with pytest.raises(ValueError, match="jet-long-freq does not apply to FoPE: it turns queries once more, and pairs"):
        stack.check_applies(stack.parse("jet-long-freq"), make_model("fope", L))


@pytest.mark.parametrize("name", ["jet-long", "jet-long-freq"])
def test_what_is_refused(name: str, make_model: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}: window must be at least 0, not -1"):
        stack.parse(f"{name}:window=-1")
    encoding = make_model("rope", L).encoding
    for length in (4, 64):
        message = re.escape(f"{name}: window must be less than the training length, 16, not 16")
        with pytest.raises(ValueError, match=message):
            stack.parse(f"{name}:window=16").plan(encoding, L, length)
    with pytest.raises(ValueError, match="both change the pairs"):
        stack.parse(f"{name} + rerope")
    with pytest.raises(ValueError, match="jet-long-freq: fast must be more turns than slow"):
        stack.parse("jet-long-freq:fast=1")
