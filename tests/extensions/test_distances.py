"""Pairs that pretend to be nearer, against distances by hand and a decoder that turns by them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack
from extrapolate.model.model import Model

L = 16
ROPE = [10 ** (-m / 2) for m in range(8)]  # 16 channels, theta 10 000

Distance = Callable[[int, int], float]


def rerope(window: int, k: float | None = None) -> Distance:
    def distance(i: int, j: int) -> float:
        r = i - j
        if r < window:
            return r
        return window if k is None else window + (r - window) / k

    return distance


def self_extend(group: int, window: int) -> Distance:
    return lambda i, j: i - j if i - j < window else i // group + window - window // group - j // group


def dual_chunk(chunk: int, local: int) -> Distance:
    n = chunk - local

    def distance(i: int, j: int) -> float:
        chunks_between = i // n - j // n
        if chunks_between == 0:
            query = i % n
        elif chunks_between == 1:
            query = min(i % n + n, chunk)
        else:
            query = min(2 * n - 1, chunk)
        return query - j % n

    return distance


def string(shift: int, window: int) -> Distance:
    return lambda i, j: i - j if i - j < shift else i - j - shift + window


# Recipes, and the distances they stand for at 4 L.
CASES = [
    ("rerope", rerope(2)),
    ("rerope:window=5", rerope(5)),
    ("rerope:window=5,k=4", rerope(5, 4)),
    ("rerope:window=3,k=2.5", rerope(3, 2.5)),
    ("rerope:k=16", rerope(2, 16)),
    ("self-extend", self_extend(6, 4)),
    ("self-extend:group=4,window=8", self_extend(4, 8)),
    ("self-extend:group=3,window=7", self_extend(3, 7)),
    ("self-extend:group=8", self_extend(8, 4)),
    ("dual-chunk", dual_chunk(12, 2)),
    ("dual-chunk:chunk=9,local=4", dual_chunk(9, 4)),
    ("dual-chunk:chunk=14,local=0", dual_chunk(14, 0)),
    ("dual-chunk:chunk=8,local=7", dual_chunk(8, 7)),
    ("string:scale=1", string(5, 1)),
    ("string:scale=1,shift=12,window=3", string(12, 3)),
    ("string:scale=1,shift=7,window=0", string(7, 0)),
]
IDS = [text for text, _ in CASES]


def pretended(plan: Plan, length: int) -> np.ndarray:
    """The distance of every pair that a plan makes, nan where it is in the future; each pair is in one branch."""
    assert plan.pairs is not None
    index = torch.arange(length, dtype=torch.float32)
    i, j = index[:, None], index[None, :]
    causal = j <= i
    found, count = torch.full((length, length), torch.nan), torch.zeros(length, length, dtype=torch.int)
    for branch in plan.pairs.branches():
        here = branch.seen(i, j) & causal
        count += here
        found = torch.where(here, branch.queries(index)[:, None] - branch.keys(index)[None, :], found)
    assert torch.equal(count, causal.int()), "a pair is in no branch, or in two"
    return found.numpy()


@pytest.mark.parametrize("length", [17, 33, 64])
@pytest.mark.parametrize(("text", "distance"), CASES, ids=IDS)
def test_distances(text: str, distance: Distance, length: int, make_model: Callable[..., Model]) -> None:
    if text == "self-extend":  # the group follows the length, and here it is the one at 4 L
        length = 64
    plan = stack.parse(text).plan(make_model("rope", L).encoding, L, length)
    actual = pretended(plan, length)
    for i in range(length):
        for j in range(i + 1):
            assert actual[i, j] == pytest.approx(distance(i, j), abs=1e-5)


def rules(model: Model, kind: str) -> dict[str, Any]:
    """What the decoder by hand is told of an encoding."""
    if kind == "rope":
        return {"frequencies": ROPE}
    if kind == "alibi":
        return {"bias": lambda q, h, r: -(2 ** (-8 * (h + 1) / model.config.heads)) * r}
    assert kind == "shaw"  # R = L - 1
    table = next(value.double() for name, value in model.state_dict().items() if name.endswith("table_RK"))
    return {"bias": lambda q, h, r: float(q @ table[min(round(r), L - 1)]) / 4}


@pytest.mark.parametrize("kind", ["rope", "alibi", "shaw"])
@pytest.mark.parametrize(("text", "distance"), CASES, ids=IDS)
def test_by_hand(
    text: str,
    distance: Distance,
    kind: str,
    make_model: Callable[..., Model],
    by_hand: Callable[..., Tensor],
    every_path: Callable[..., list[Tensor]],
) -> None:
    if kind == "shaw" and "k=2.5" in text:
        pytest.skip("half a token: which of two vectors is nearer is a matter of rounding")
    model = make_model(kind, L, layers=1, heads=4 if kind == "rope" else 2, kv_heads=2)
    plan = stack.parse(text).plan(model.encoding, L, 64)
    expected = by_hand(model, 64, distance=distance, **rules(model, kind))
    for actual in every_path(model, 64, plan):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize(("text", "distance"), [CASES[0], CASES[2], CASES[5], CASES[9]])
def test_layers(
    text: str, distance: Distance, make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Any
) -> None:
    model = make_model("rope", L, layers=2, kv_heads=1)
    plan = stack.parse(text).plan(model.encoding, L, 64)
    expected = by_hand(model, 64, distance=distance, frequencies=ROPE)
    torch.testing.assert_close(logits(model, 64, plan).double(), expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("text", ["rerope:window=5", "self-extend:group=4,window=8", "dual-chunk"])
def test_other_frequencies_and_positions_apply_to_pretended_distances(
    text: str, make_model: Callable[..., Model], by_hand: Callable[..., Tensor], logits: Callable[..., Tensor]
) -> None:
    distance = dict(CASES)[text]
    model = make_model("rope", L, layers=1)
    squeezed = stack.parse(f"{text} + pi:factor=2").plan(model.encoding, L, 48)
    expected = by_hand(model, 48, distance=lambda i, j: distance(i, j) / 2, frequencies=ROPE)
    torch.testing.assert_close(logits(model, 48, squeezed).double(), expected, rtol=1e-4, atol=2e-4)
    slower = stack.parse(f"ntk:factor=3 + {text}").plan(model.encoding, L, 48)
    expected = by_hand(model, 48, distance=distance, frequencies=[w * 3 ** (-m / 7) for m, w in enumerate(ROPE)])
    torch.testing.assert_close(logits(model, 48, slower).double(), expected, rtol=1e-4, atol=2e-4)


PLAIN_CASES = [
    ("rerope:k=1", 64), ("rerope:window=5,k=1", 64), ("rerope", 2), ("rerope:window=40", 40),
    ("rerope:window=40,k=3", 40),
    ("self-extend:group=1", 64), ("self-extend:group=1,window=3", 64), ("self-extend", 16), ("self-extend", 4),
    ("self-extend:group=8,window=40", 40), ("self-extend:window=40", 16),
    ("dual-chunk", 10), ("dual-chunk", 1), ("dual-chunk:chunk=44,local=4", 40),
    ("string:scale=1", 5), ("string:scale=1,shift=40", 40), ("string:shift=8,window=8,scale=1", 64),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["rope", "alibi", "shaw", "fire"])
@pytest.mark.parametrize(("text", "length"), PLAIN_CASES)
def test_identities_are_exact(
    text: str, length: int, kind: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    model = make_model(kind, L, layers=1)
    plan = stack.parse(text).plan(model.encoding, L, length)
    assert plan == PLAIN
    assert torch.equal(logits(model, length, plan), logits(model, length))


@pytest.mark.parametrize(
    ("text", "length"),
    [("rerope", 3), ("rerope:window=40", 41), ("self-extend:group=8,window=40", 41), ("self-extend", 17),
     ("dual-chunk", 11), ("dual-chunk:chunk=44,local=4", 41), ("string:scale=1", 6),
     ("string:scale=1,shift=40", 41)],
)  # fmt: skip
def test_one_token_beyond_an_identity_is_not_plain(text: str, length: int, make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", L).encoding
    assert stack.parse(text).plan(encoding, L, length - 1) == PLAIN
    assert stack.parse(text).plan(encoding, L, length) != PLAIN


@pytest.mark.parametrize("text", ["rerope:window=5,k=1.0000001", "self-extend:group=3,window=3", "dual-chunk"])
@pytest.mark.parametrize("kind", ["rope", "pope", "xpos", "fope:kept=6", "sandwich", "kerple"])
def test_first_tokens_are_as_ever(
    text: str, kind: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]
) -> None:
    """Several branches give what one gives where no distance differs."""
    model = make_model(kind, L)
    first = {"r": 64, "s": 3, "d": 10}[text[0]]
    plan = stack.parse(text).plan(model.encoding, L, 64)
    torch.testing.assert_close(logits(model, 64, plan)[:first], logits(model, 64)[:first], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", ["self-extend", "dual-chunk"])
@pytest.mark.parametrize("seq_len", [16, 64, 100])
def test_no_distance_leaves_the_trained_range(text: str, seq_len: int, make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", seq_len).encoding
    for length in (seq_len + 1, 2 * seq_len - 1, 2 * seq_len, 5 * seq_len + 3, 16 * seq_len):
        found = pretended(stack.parse(text).plan(encoding, seq_len, length), length)
        assert np.nanmin(found) == 0
        assert np.nanmax(found) <= seq_len - 1


def test_rerope_reaches_no_further_than_its_window(make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", 64).encoding
    assert np.nanmax(pretended(stack.parse("rerope").plan(encoding, 64, 1024), 1024)) == 8
    assert np.nanmax(pretended(stack.parse("rerope:k=16").plan(encoding, 64, 1024), 1024)) == 8 + (1023 - 8) / 16


def test_default_sizes(make_model: Callable[..., Model]) -> None:
    for seq_len, pairs in (
        (64, [("rerope", "rerope:window=8"), ("dual-chunk", "dual-chunk:chunk=48,local=8"),
              ("self-extend:group=4", "self-extend:group=4,window=16")]),
        (4, [("rerope", "rerope:window=1"), ("dual-chunk", "dual-chunk:chunk=3,local=0"),
             ("self-extend:group=4", "self-extend:group=4,window=1")]),
        (100, [("rerope", "rerope:window=12"), ("dual-chunk", "dual-chunk:chunk=75,local=12"),
               ("self-extend:group=4", "self-extend:group=4,window=25")]),
    ):  # fmt: skip
        encoding = make_model("rope", seq_len).encoding
        for short, long in pairs:
            plans = [stack.parse(text).plan(encoding, seq_len, 8 * seq_len) for text in (short, long)]
            assert plans[0] == plans[1] != PLAIN


@pytest.mark.parametrize(("seq_len", "window"), [(16, None), (16, 1), (16, 9), (64, None), (64, 20), (100, None)])
def test_the_group_left_out_is_the_smallest_that_keeps_every_distance(
    seq_len: int, window: int | None, make_model: Callable[..., Model]
) -> None:
    encoding = make_model("rope", seq_len).encoding
    w = seq_len // 4 if window is None else window
    left_out = stack.parse("self-extend" + (f":window={window}" if window else ""))
    for length in (seq_len + 1, 2 * seq_len, 3 * seq_len + 1, 4 * seq_len - 1, 7 * seq_len):
        i, j = np.arange(length)[:, None], np.arange(length)[None, :]
        group = 1
        while (
            np.where(i - j < w, i - j, i // group + w - w // group - j // group).max(where=j <= i, initial=0) >= seq_len
        ):
            group += 1
        expected = stack.parse(f"self-extend:group={group},window={w}").plan(encoding, seq_len, length)
        assert left_out.plan(encoding, seq_len, length) == expected


def test_a_group_that_does_not_divide_the_window_leaves_no_pair_nearer_than_it(
    make_model: Callable[..., Model],
) -> None:
    plan = stack.parse("self-extend:group=4,window=10").plan(make_model("rope", L).encoding, L, 80)
    found = pretended(plan, 80)
    i, j = np.indices((80, 80))
    far = i - j >= 10
    assert found[far].min() == 10
    for row in found:
        steps = np.diff(row[~np.isnan(row)])
        assert (steps <= 0).all(), "a nearer key is taken to be further away"


@pytest.mark.parametrize("window", [16, 40])
def test_no_group_is_enough_for_a_window_of_the_whole_range(window: int, make_model: Callable[..., Model]) -> None:
    made = stack.parse(f"self-extend:window={window}")
    encoding = make_model("rope", L).encoding
    assert made.plan(encoding, L, L) == PLAIN
    with pytest.raises(
        ValueError, match=f"with a window of {window} no group keeps 64 tokens within 16; give a smaller"
    ):
        made.plan(encoding, L, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rerope:window=0", "rerope: window must be at least 1, not 0"),
        ("rerope:k=0.5", "rerope: k must be at least 1, not 0.5"),
        ("self-extend:group=0", "self-extend: group must be at least 1, not 0"),
        ("self-extend:window=0", "self-extend: window must be at least 1, not 0"),
        ("dual-chunk:chunk=1", "dual-chunk: chunk must be at least 2, not 1"),
        ("dual-chunk:local=-1", "dual-chunk: local must be at least 0, not -1"),
        ("string:shift=0", "string: shift must be at least 1, not 0"),
        ("string:window=-1", "string: window must be at least 0, not -1"),
        ("string:scale=0", "string: scale must be positive, not 0"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)


@pytest.mark.parametrize("text", ["dual-chunk:chunk=8,local=8", "dual-chunk:local=12", "dual-chunk:chunk=2"])
def test_chunks_must_be_more_than_what_they_overlap(text: str, make_model: Callable[..., Model]) -> None:
    with pytest.raises(ValueError, match="dual-chunk: chunk must be more than local"):
        stack.parse(text).plan(make_model("rope", L).encoding, L, 64)


def test_string_sharpens_as_its_code_does(make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", 100).encoding
    plan = stack.parse("string").plan(encoding, 100, 128)
    assert plan.logit_scale == pytest.approx((0.1 * np.log(2) + 1) ** 2)
    assert plan == stack.parse("string:shift=33,window=6").plan(encoding, 100, 128)
    found = pretended(plan, 127)
    assert np.nanmax(found) == 99
    plain = stack.parse("string:scale=1").plan(encoding, 100, 128)
    assert (plain.logit_scale, plain.pairs) == (1.0, plan.pairs)
    assert stack.parse("string").plan(encoding, 100, 33) == Plan(logit_scale=plan.logit_scale)
    with pytest.raises(ValueError, match="string: window must be at most shift, 33, not 34"):
        stack.parse("string:window=34").plan(encoding, 100, 128)
