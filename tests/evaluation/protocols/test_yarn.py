"""The windows of `yarn` against a walk along each document; what it refuses; which documents it reads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import Windows, parse_protocol

Seen = dict[tuple[int, int], int]  # inputs before each target, by document and place


def seen(groups: tuple[Windows, ...]) -> Seen:
    found: Seen = {}
    for group in groups:
        for document, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
            for place in range(start + group.length - group.scored + 1, start + group.length + 1):
                assert (document, place) not in found, "a target is scored twice"
                found[document, place] = place - start
    return found


def walked(tokens: int, length: int, stride: int, bos: int) -> dict[int, int]:
    """One document's targets: the windows are pushed along until they hold each."""
    found = {}
    for place in range(1 - bos, tokens):
        begin = 0
        while place >= begin + length - bos:
            begin += stride
        found[place] = place - begin + bos
    return found


@settings(max_examples=80, deadline=None)
@given(
    documents=st.lists(st.integers(0, 90), min_size=1, max_size=4),
    seq_len=st.integers(2, 12),
    stride=st.one_of(st.none(), st.integers(1, 11)),
    bos=st.booleans(),
)
def test_every_token_of_the_documents_is_scored_as_a_walk_says(documents, seq_len, stride, bos) -> None:
    text = "yarn" if stride is None else f"yarn:stride={stride}"
    protocol = parse_protocol(f"{text}{',' if stride else ':'}bos={bos}")
    lengths = [seq_len, 2 * seq_len]
    step = protocol.stride_at(seq_len)
    assert step == (stride or seq_len // 2)
    refusal = ""
    try:
        layout = protocol.layout(np.array(documents), seq_len, lengths, 10_000)
    except UserError as error:
        refusal = str(error)
    long_enough = max(documents) - 1 + bos >= 2 * seq_len - 1
    assert ("too short" in refusal) == (step > seq_len - 1)
    assert ("no held-out document holds" in refusal) == (not long_enough and step < seq_len)
    assert bool(refusal) == (step > seq_len - 1 or not long_enough)
    if refusal:
        return
    long = [d for d, tokens in enumerate(documents) if tokens - 1 + bos >= 2 * seq_len - 1]
    for length, groups in [*layout.rows.items(), (None, layout.control)]:
        at, moved = (seq_len, min(step, seq_len // 2)) if length is None else (length, step)
        expected = {(d, p): n for d in long for p, n in walked(documents[d], at, moved, bos).items()}
        assert seen(groups) == expected
    assert max(seen(layout.control).values()) <= seq_len - 1


def test_the_usual_stride_is_that_of_the_script_where_l_allows_it() -> None:
    assert [parse_protocol("yarn").stride_at(seq_len) for seq_len in (2, 64, 512, 4096)] == [1, 32, 256, 256]


def test_documents_are_read_from_their_beginnings_equally_far_where_the_limit_cuts_them() -> None:
    layout = parse_protocol("yarn").layout(np.array([500, 40, 31, 300]), 8, [8, 32], 200)
    ends = {d: max(p for e, p in seen(layout.control) if e == d) for d, _ in seen(layout.control)}
    assert ends == {0: 81, 1: 39, 3: 80}  # the third is too short; 39 targets of the second are all it has
    few = parse_protocol("yarn").layout(np.array([500] * 10), 8, [8, 32], 70)
    assert {d for d, _ in seen(few.control)} == {0, 5}
    with pytest.raises(UserError, match="`max_targets=30` holds no window of 32 tokens"):
        parse_protocol("yarn").layout(np.array([500]), 8, [8, 32], 30)


@pytest.mark.parametrize(
    ("text", "lengths", "message"),
    [
        ("yarn:stride=8", [8, 16], "yarn moves its windows on by 8 tokens: an evaluation length of 8 is too short"),
        ("sliding:stride=9", [8, 16], "sliding moves its windows on by 9 tokens: an evaluation length of 8 is too"),
        # It once took the tokens before such a window for its own.
        ("sliding", [2, 8], "sliding moves its windows on by 4 tokens: an evaluation length of 2 is too short"),
        ("yarn:stride=1", [1, 8], "yarn needs windows of more than 1 tokens"),
    ],
)
def test_strides_that_would_leave_tokens_out_are_refused(text: str, lengths: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_protocol(text).layout(np.array([500]), 8, lengths, 1000)
    assert parse_protocol("sliding:stride=8").layout(np.array([500]), 8, [8, 16], 1000)


@pytest.mark.parametrize(("stride", "back"), [(2, 2), (4, 4), (8, 4)])
def test_the_control_moves_on_by_no_more_than_half_of_l(stride: int, back: int) -> None:
    """So that nearly every target has more than half of L before it."""
    layout = parse_protocol(f"sliding:stride={stride}").layout(np.array([17]), 8, [8, 16], 1000)
    assert min(inputs for (_, place), inputs in seen(layout.control).items() if place > 8) == 8 - back + 1
    assert (layout.control is layout.rows[8]) == (stride <= 4)
