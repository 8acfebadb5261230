"""Lengths that L does not divide, where L itself is not evaluated; and validation windows at their boundary."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation import validation
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.evaluation.protocols._spans import spread
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.evaluation.validation import validation_windows


def places(groups: tuple[Windows, ...]) -> list[int]:
    return sorted(int(place) for group in groups for _, place in group.targets().reshape(-1, 2))


@pytest.mark.parametrize("protocol", ["windows", "sliding"])
@pytest.mark.parametrize(("seq_len", "lengths"), [(8, [12]), (4, [6, 10]), (6, [4]), (9, [6, 12])])
def test_spans_are_divided_by_the_controls_length_too(protocol: str, seq_len: int, lengths: list[int]) -> None:
    """Else the control's windows would end before a span does, and their targets be others."""
    span = math.lcm(seq_len, *lengths)
    layout = protocols[protocol]().layout(np.array([2 * span + 5]), seq_len, lengths, 10_000)
    for groups in (layout.control, *layout.rows.values()):
        assert places(groups) == list(range(1, 2 * span + 1))
    assert {group.length for group in layout.control} == {seq_len}


def test_validation_windows_need_one_token_more_than_they_read() -> None:
    for longest in (0, 15, 16):
        with pytest.raises(ValueError, match=r"no validation document holds a window of 16 .*min_heldout_tokens=17"):
            validation_windows(SimpleNamespace(lengths=np.array([3, longest])), 16, 64)
    with pytest.raises(ValueError, match="no validation document"):
        validation_windows(SimpleNamespace(lengths=np.zeros(0, np.int64)), 16, 64)
    (group,) = validation_windows(SimpleNamespace(lengths=np.array([3, 17])), 16, 64)
    assert (group.document_W.tolist(), group.start_W.tolist(), group.length, group.scored) == ([1], [0], 16, 16)


@pytest.mark.parametrize(("most", "windows"), [(1, 1), (16, 1), (31, 1), (32, 2), (10_000, 6)])
def test_validation_windows_are_as_many_as_targets_allow_and_at_least_one(most: int, windows: int) -> None:
    (group,) = validation_windows(SimpleNamespace(lengths=np.array([100])), 16, most)
    assert len(group.start_W) == windows


def test_the_validation_loss_is_the_mean_over_targets_under_the_plan_and_precision(monkeypatch) -> None:
    asked = []

    def losses(
        model: str, split: str, group: Windows, plan: object, *, precision, batch_tokens, progress
    ) -> np.ndarray:
        asked.append((model, split, group, plan, precision, batch_tokens))
        progress(len(group.start_W))
        return np.full((len(group.start_W), group.scored), 1.0 + len(asked), np.float32)

    monkeypatch.setattr(validation, "target_losses", losses)
    groups = (
        Windows(np.array([0, 0]), np.array([0, 8]), 8, 8),
        Windows(np.array([1]), np.array([0]), 8, 4),
    )
    told: list[int] = []
    found = validation.validation_loss("model", "split", groups, PLAIN, "bf16", batch_tokens=64, progress=told.append)
    assert found == pytest.approx((16 * 2.0 + 4 * 3.0) / 20)
    assert [call[:2] + call[3:] for call in asked] == [("model", "split", PLAIN, "bf16", 64)] * 2
    assert told == [2, 1]
    validation.validation_loss("model", "split", groups)
    assert asked[-1][3:] == (PLAIN, "fp32", BATCH_TOKENS)


@pytest.mark.parametrize(
    ("available", "most", "apart", "places"),
    [
        (11, 2, 3, [3, 6]),  # 3 places before them, 4 after
        (11, 3, 5, [0, 5, 10]),  # just enough room
        (11, 3, 6, [0, 3, 7]),  # not enough: as even as can be
        (11, 1, 4, [5]),
        (11, 4, None, [0, 2, 5, 8]),
    ],
)
def test_places_so_far_apart_are_in_the_middle_of_their_document(available, most, apart, places) -> None:
    documents, found = spread(np.array([0, available]), most, apart)
    assert documents.tolist() == [1] * most
    assert found.tolist() == places
