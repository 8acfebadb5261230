"""Heads that attend only by position, in models that are built to."""

import pytest
import torch

NAMES = {0: "own", 1: "previous"}


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("factor", [1, 4])
def test_a_head_built_to_attend_to_a_place_is_found(positional, windows, measure, back, factor) -> None:
    found = measure("heads", windows(positional(back), factor))
    for ending in ("", "_random"):
        scores = {name: found[name + ending, 0, 0, None].mean for name in ("own", "previous", "first")}
        assert scores.pop(NAMES[back]) > 0.99
        assert max(scores.values()) < 0.01
    assert found["overlap", 0, 0, None].mean > 0.95


def test_a_head_that_attends_evenly_has_scores_of_zero_and_keeps_its_pattern(positional, windows, measure) -> None:
    found = measure("heads", windows(positional(1), 4))
    for name in ("own", "previous", "first"):
        assert found[name, 0, 1, None].mean == pytest.approx(0, abs=1e-5)
    assert found["overlap", 0, 1, None].mean == pytest.approx(1, abs=1e-5)


def test_a_head_that_reads_an_absolute_position_attends_to_the_first_token(build, windows, measure) -> None:
    model = build("learned")
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.embedding.weight[:, 0] = 1.0
        table = next(model.encoding.parameters())
        table.zero_()
        table[0, 1] = 3.0
        weight = model.blocks[0].attention.qkv.weight
        weight[: 2 * 32] = 0.0
        weight[0, 0] = 5.0  # every query
        weight[32, 1] = 5.0  # the key at position 0
    found = measure("heads", windows(model))
    assert found["first", 0, 0, None].mean > 0.99
    assert found["first_random", 0, 0, None].mean > 0.99
    assert found["previous", 0, 0, None].mean < 0.01


def test_a_head_that_looks_for_a_token_does_not_keep_its_pattern(build, windows, measure) -> None:
    """Without positions a key is chosen by its token, so other tokens give another pattern."""
    model = build("none")
    with torch.no_grad():
        model.embedding.weight.normal_()
        model.embedding.weight[:, 0] = 10.0
        weight = model.blocks[0].attention.qkv.weight
        weight[: 2 * 32] = 0.0
        weight[0, 0] = 4.0  # every query asks the same
        weight[32, 1] = 20.0  # a key says what its token is
    found = measure("heads", windows(model, 4))
    assert found["overlap", 0, 0, None].mean < 0.7
    assert all(found[name, 0, 0, None].mean < 0.5 for name in ("own", "previous", "first"))
