"""The windows of the validation loss at their boundary, and the mean over them."""

from types import SimpleNamespace

import numpy as np
import pytest

from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation import losses as scoring
from extrapolate.evaluation.losses import validation_windows
from extrapolate.evaluation.protocols.base import Windows


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
        progress(len(group.start_W), 0.0)
        return np.full((len(group.start_W), group.scored), 1.0 + len(asked), np.float32)

    monkeypatch.setattr(scoring, "target_losses", losses)
    groups = (
        Windows(np.array([0, 0]), np.array([0, 8]), 8, 8),
        Windows(np.array([1]), np.array([0]), 8, 4),
    )
    told: list[int] = []
    found = scoring.validation_loss(
        "model", "split", groups, PLAIN, "bf16", batch_tokens=64, progress=lambda inputs, loss: told.append(inputs)
    )
    assert found == pytest.approx((16 * 2.0 + 4 * 3.0) / 20)
    assert [call[:2] + call[3:] for call in asked] == [("model", "split", PLAIN, "bf16", 64)] * 2
    assert told == [2, 1]
    scoring.validation_loss("model", "split", groups)
    assert asked[-1][3:] == (PLAIN, "fp32", None)
