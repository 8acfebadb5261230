"""The effect of lost or cut context in models whose reach is known."""

import numpy as np
import pytest
import torch

from extrapolate.encodings.plan import Plan
from extrapolate.inspection.measurements import removal, truncation


@pytest.fixture
def reads_five(build, windows):
    """A model that reads the last five tokens, and uses them."""
    model = build("none")
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight[64:].mul_(50)
        model.head.weight.mul_(50)
    return windows(model, 4, plan=Plan(window=5))


def test_predictions_do_not_change_where_the_cut_leaves_what_is_read(reads_five, measure) -> None:
    found = measure("truncation", reads_five)
    distances = {at: value for (name, _, _, at), value in found.items() if name == "tv"}
    assert list(distances) == [1, 2, 4, 8, 16, 32]
    assert all(distances[cut].mean > 0.01 for cut in (1, 2, 4))
    assert all(distances[cut].mean < 1e-5 for cut in (8, 16, 32))
    assert all((value.value_W >= 0).all() and (value.value_W <= 1).all() for value in distances.values())
    whole = found["loss", None, None, None].mean
    assert found["loss", None, None, 8].mean == pytest.approx(whole, abs=1e-4)
    gain = found["gain", None, None, 1].mean
    assert gain == pytest.approx(found["loss", None, None, 1].mean - whole, abs=1e-5)
    assert abs(gain) > 1e-3


def test_the_whole_context_is_no_cut(build, windows) -> None:
    inspected = windows(build("rope"), 2)
    place_P = truncation.places(inspected)
    assert place_P.tolist() == [25, 27, 29, 31]  # over the last L/2 of 2 L
    with torch.no_grad():
        logits = inspected.model(inspected.tokens_WN[:, :-1], inspected.setting)[:, place_P].log_softmax(-1)
    cut = truncation.cut_predictions(inspected, place_P, inspected.length)
    torch.testing.assert_close(cut, logits.flatten(0, 1), rtol=1e-4, atol=1e-5)


def test_the_distance_is_half_the_sum_of_differences(build, windows, measure) -> None:
    """The places of one window, in NumPy."""
    inspected = windows(build("rope"), count=1)
    with torch.no_grad():
        inspected.model.head.weight.mul_(30)
        parts = [inspected.tokens_WN[:, max(0, end - 3) : end + 1] for end in truncation.places(inspected).tolist()]
        short = np.stack([inspected.model(part)[0, -1].softmax(-1).numpy() for part in parts])
        whole = inspected.model(inspected.tokens_WN[:, :-1])[0, truncation.places(inspected)].softmax(-1).numpy()
    wanted = 0.5 * np.abs(short - whole).sum(axis=1).mean()
    assert measure("truncation", inspected)["tv", None, None, 4].mean == pytest.approx(wanted, rel=1e-4)


def test_only_the_loss_of_what_is_read_rises(reads_five, measure) -> None:
    found = measure("removal", reads_five)
    rises = {at: value.value_W for (name, _, _, at), value in found.items() if name == "rise"}
    assert list(rises) == [1, 4, 16]
    assert np.abs(rises[1]).max() > 1e-3  # 1 to 3 tokens before the first scored input
    assert np.abs(rises[16]).max() < 1e-5  # 16 to 63


def test_the_tokens_at_a_distance_are_replaced_and_no_others(build, windows, monkeypatch) -> None:
    """The targets of the last two of 64 inputs are scored; tokens d to 4d - 1 before input 62 are replaced."""
    inspected = windows(build("none"), 4)
    vars(inspected)["random_tokens"] = torch.full_like(inspected.tokens_WN, -1)
    read = []

    def of_read(_, tokens_WN, first):
        read.append(((tokens_WN == -1).all(dim=0).nonzero().flatten().tolist(), first))
        assert (tokens_WN == -1).sum() == len(tokens_WN) * len(read[-1][0])
        return np.full(len(tokens_WN), float(len(read)))

    monkeypatch.setattr(removal, "losses", of_read)
    found = {(value.quantity, value.at): value.mean for value in removal.Removal.measure(inspected)}
    wanted = [[], [59, 60, 61], [*range(62 - 15, 62 - 3)], [*range(62 - 15)]]
    assert read == [(places, 62) for places in wanted]
    assert found == {("loss", None): 1, ("rise", 1): 1, ("rise", 4): 2, ("rise", 16): 3}


def test_the_error_is_that_of_a_mean_over_windows(reads_five, measure) -> None:
    value = measure("removal", reads_five)["loss", None, None, None]
    assert value.mean == pytest.approx(value.value_W.mean())
    assert value.error == pytest.approx(value.value_W.std(ddof=1) / len(value.value_W) ** 0.5)
