"""Which keys are seen, against a decoder by hand that asks, pair by pair, how far apart they are."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack
from extrapolate.model.model import Model

L = 16
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000

Distance = Callable[[int, int], float | None]


def window(size: int) -> Distance:
    return lambda i, j: i - j if i - j < size else None


def sinks(count: int, size: int) -> Distance:
    """In a cache of count + size keys, the query in the last place."""

    def distance(i: int, j: int) -> float | None:
        if i - j < size:
            return i - j
        return min(i, count + size - 1) - j if j < count else None

    return distance


def lm_infinite(count: int, size: int) -> Distance:
    def distance(i: int, j: int) -> float | None:
        if i - j < size:
            return i - j
        return size if j < count else None

    return distance


def rules(model: Model, kind: str) -> dict[str, Any]:
    """What the decoder by hand is told of an encoding."""
    if kind == "rope":
        return {"frequencies": ROPE}
    if kind == "alibi":
        heads = model.config.heads
        return {"bias": lambda q, h, r: -(2 ** (-8 * (h + 1) / heads)) * r}
    if kind == "shaw":  # R = L - 1
        tables = [value.double() for name, value in model.state_dict().items() if name.endswith("table_RK")]
        assert len(tables) == model.config.layers == 1
        return {"bias": lambda q, h, r: float(q @ tables[0][min(round(r), L - 1)]) / 4}
    assert kind == "none"
    return {}


CASES = [
    ("window", window(L)),
    ("window:size=1", window(1)),
    ("window:size=5", window(5)),
    ("sinks", sinks(4, L - 4)),
    ("sinks:sinks=1,window=6", sinks(1, 6)),
    ("sinks:sinks=9,window=5", sinks(9, 5)),
    ("sinks:sinks=0,window=5", window(5)),
    ("lm-infinite", lm_infinite(10, L)),
    ("lm-infinite:sinks=2,window=7", lm_infinite(2, 7)),
    ("lm-infinite:sinks=9,window=3", lm_infinite(9, 3)),
    ("lm-infinite:sinks=0,window=5", window(5)),
]


@pytest.mark.parametrize("kind", ["rope", "alibi", "none", "shaw"])
@pytest.mark.parametrize(("text", "distance"), CASES, ids=[text for text, _ in CASES])
def test_by_hand(
    text: str,
    distance: Distance,
    kind: str,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    model = make_model(kind, L, layers=1, heads=4, kv_heads=2)
    plan = stack.parse(text).plan(model.encoding, L, 40)
    expected = by_hand(model, 40, distance=distance, **rules(model, kind))
    for actual in every_path(model, 40, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("kind", ["rope", "alibi"])
@pytest.mark.parametrize(("text", "distance"), [CASES[2], CASES[4], CASES[8]])
@pytest.mark.parametrize(("kv_heads", "length"), [(1, 17), (2, 33)])
def test_layers_lengths_and_shared_keys(
    text: str,
    distance: Distance,
    kind: str,
    kv_heads: int,
    length: int,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    logits: Callable[..., Tensor],
) -> None:
    model = make_model(kind, L, layers=2, kv_heads=kv_heads)
    plan = stack.parse(text).plan(model.encoding, L, length)
    expected = by_hand(model, length, distance=distance, **rules(model, kind))
    torch.testing.assert_close(logits(model, length, plan).double(), expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize(
    ("text", "distance"),
    [
        ("window:size=5", window(5)),
        ("sinks:sinks=2,window=5", sinks(2, 5)),
        ("lm-infinite:sinks=2,window=5", lm_infinite(2, 5)),
    ],
)
def test_ssmax_counts_every_token(
    text: str,
    distance: Distance,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    """Whatever is hidden, and it joins the other scales."""
    model = make_model("rope", L, layers=1, ssmax=True)
    strength = model.state_dict()["blocks.0.attention.ssmax.s_H"].double()
    for more, scale in (("", 1.0), (" + temperature:c=0.3", 1 + 0.3 * math.log(40 / L))):
        plan = stack.parse(text + more).plan(model.encoding, L, 40)
        factor = [[float(s) * math.log(i + 1) * scale for i in range(40)] for s in strength]
        expected = by_hand(model, 40, distance=distance, frequencies=ROPE, factor=lambda h, i, f=factor: f[h][i])
        for actual in every_path(model, 40, plan):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


def within(size: int, distance: Distance) -> Distance:
    return lambda i, j: distance(i, j) if i - j < size else None


@pytest.mark.parametrize(
    ("text", "distance"),
    [
        ("window:size=4", window(4)),
        ("window:size=9", window(9)),
        ("sinks:sinks=2,window=9", sinks(2, 9)),
        ("sinks:sinks=2,window=4", sinks(2, 4)),
        ("lm-infinite:sinks=2,window=3", lm_infinite(2, 3)),
    ],
)
def test_an_encoding_with_a_window_of_its_own_sees_what_both_show(
    text: str,
    distance: Distance,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    """RNoPE: the first layer turns and sees 6 keys, the second does not turn and sees all."""
    model = make_model("rnope:window=6", L)
    plan = stack.parse(text).plan(model.encoding, L, 30)
    expected = by_hand(model, 30, distance={0: within(6, distance), 1: distance}, frequencies={0: ROPE, 1: []})
    for actual in every_path(model, 30, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("kind", ["rope", "alibi", "none", "shaw", "rnope"])
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("window", L), ("window:size=40", 40), ("window:size=99", 40),
        ("sinks", L), ("sinks:window=36", 40), ("sinks:sinks=30,window=10", 40), ("sinks:sinks=0,window=40", 40),
        ("lm-infinite", L), ("lm-infinite:window=40", 40), ("lm-infinite:window=99,sinks=50", 40),
    ],
)  # fmt: skip
def test_a_window_that_holds_everything_changes_nothing_exactly(
    text: str, length: int, kind: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    model = make_model(kind, L, layers=1)
    plan = stack.parse(text).plan(model.encoding, L, length)
    assert plan == PLAIN
    assert torch.equal(logits(model, length, plan), logits(model, length))


@pytest.mark.parametrize(
    ("text", "longer"),
    [
        ("window", L + 1), ("window:size=40", 41),
        ("sinks", L + 1), ("sinks:sinks=3,window=30", 34),
        ("lm-infinite", L + 1), ("lm-infinite:window=30", 31),
    ],
)  # fmt: skip
def test_one_token_more_changes_something(
    text: str, longer: int, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    """All but the last query's logits are what they were, to rounding."""
    model = make_model("rope", L, layers=1)
    assert stack.parse(text).plan(model.encoding, L, longer - 1) == PLAIN
    plan = stack.parse(text).plan(model.encoding, L, longer)
    assert plan != PLAIN
    actual, plain = logits(model, longer, plan), logits(model, longer)
    torch.testing.assert_close(actual[:-1], plain[:-1], rtol=1e-4, atol=1e-4)
    if not text.startswith("lm"):  # the one distance it changes, L, it leaves at L
        assert not torch.allclose(actual[-1], plain[-1], atol=1e-3)


def test_default_sizes(make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", 64).encoding
    for short, long in (
        ("window", "window:size=64"),
        ("sinks", "sinks:sinks=4,window=60"),
        ("sinks:sinks=10", "sinks:window=54,sinks=10"),
        ("lm-infinite", "lm-infinite:sinks=10,window=64"),
    ):
        assert stack.parse(short).plan(encoding, 64, 256) == stack.parse(long).plan(encoding, 64, 256)
    assert stack.parse("window").plan(encoding, 64, 256) == Plan(window=64)
    assert stack.parse("window").plan(encoding, 64, 256) != stack.parse("window:size=63").plan(encoding, 64, 256)


@pytest.mark.parametrize(("text", "farthest"), [("sinks", 15), ("sinks:sinks=1", 15), ("lm-infinite", 16)])
def test_no_distance_is_further_than(text: str, farthest: int, make_model: Callable[..., Model]) -> None:
    """Sinks and the last keys together are L places; LM-Infinite's first keys lie at L itself."""
    pairs = stack.parse(text).plan(make_model("rope", L).encoding, L, 256).pairs
    assert pairs is not None
    index = torch.arange(256.0)
    i, j = index[:, None], index[None, :]
    seen = [branch.seen(i, j) & (j <= i) for branch in pairs.branches()]
    assert int(torch.stack(seen).sum(0).max()) == 1
    far = [(b.queries(i) - b.keys(j))[s] for b, s in zip(pairs.branches(), seen, strict=True)]
    assert float(torch.cat(far).max()) == farthest
    assert float(torch.cat(far).min()) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("window:size=0", "window: size must be at least 1, not 0"),
        ("window:size=2.5", "window: size=2.5 is not a whole number"),
        ("sinks:sinks=-1", "sinks: sinks must be at least 0, not -1"),
        ("sinks:window=0", "sinks: window must be at least 1, not 0"),
        ("lm-infinite:sinks=-1", "lm-infinite: sinks must be at least 0, not -1"),
        ("lm-infinite:window=0", "lm-infinite: window must be at least 1, not 0"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)
