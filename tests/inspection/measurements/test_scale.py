"""Sizes, against weights that were set and what is known of encodings."""

import pytest
import torch

from extrapolate.encodings.base import encodings
from extrapolate.extensions import stack
from extrapolate.inspection import inspected as inspected_module

L = 16


def size(found, name: str, layer: int | None = None) -> float:
    return found[name, layer, None, None].mean


def test_a_weight_that_is_doubled_doubles_what_it_gives(build, windows, measure) -> None:
    model = build("rope", layers=2)
    before = measure("scale", windows(model))
    with torch.no_grad():
        model.blocks[1].attention.out.weight.mul_(2)
        model.blocks[1].attention.qkv.weight[-32:].mul_(3)  # values
        model.head.weight.mul_(5)
        model.embedding.weight.fill_(0.25)
    after = measure("scale", windows(model))
    assert size(after, "embedding") == pytest.approx(0.25)
    assert size(after, "stream", 0) == pytest.approx(0.25)
    assert size(after, "added") == 0
    same = build("rope", layers=2)
    with torch.no_grad():
        same.embedding.weight.fill_(0.25)
    without = measure("scale", windows(same))
    assert size(after, "value", 1) == pytest.approx(3 * size(without, "value", 1), rel=1e-5)
    assert size(after, "attention_output", 1) == pytest.approx(6 * size(without, "attention_output", 1), rel=1e-5)
    assert size(after, "attention_output", 0) == pytest.approx(size(without, "attention_output", 0), rel=1e-5)
    assert size(before, "embedding") == pytest.approx(0.5, rel=0.05)


def test_scores_of_a_bias_alone_deviate_as_the_bias_does(build, windows, measure) -> None:
    model = build("alibi")
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.zero_()
    found = measure("scale", windows(model))
    slopes = [2**-4, 2**-8]  # two heads
    squares = [
        (slope * torch.arange(query + 1.0)).std(correction=0).item() ** 2 for slope in slopes for query in range(8, 16)
    ]
    assert size(found, "score", 0) == pytest.approx((sum(squares) / len(squares)) ** 0.5, rel=1e-4)
    assert size(found, "query", 0) == size(found, "value", 0) == size(found, "attention_output", 0) == 0


def test_what_is_added_is_what_the_table_has(build, windows, measure) -> None:
    model = build("learned")
    with torch.no_grad():
        model.encoding.embeddings()[0].fill_(0.125)
    assert size(measure("scale", windows(model)), "added") == pytest.approx(0.125)


def test_values_are_those_that_attention_reads(build, windows, measure) -> None:
    """Also if W_v does not read what W_q reads, so that their joint matrix is not multiplied as a whole."""
    found = measure("scale", windows(build("expe")))
    without = measure("scale", windows(build("none")))
    assert size(found, "value_input", 0) == pytest.approx(size(without, "value_input", 0), rel=1e-6)
    assert size(found, "value", 0) == pytest.approx(size(without, "value", 0), rel=1e-6)
    assert size(found, "query", 0) != pytest.approx(size(without, "query", 0), rel=1e-3)


@pytest.mark.parametrize("name", encodings.names())
def test_windows_count_the_same_in_batches(build, windows, measure, monkeypatch, name) -> None:
    model = build(name, layers=2)
    whole = measure("scale", windows(model, count=5))
    monkeypatch.setattr(inspected_module, "BATCH_TOKENS", 2 * L)
    batched = measure("scale", windows(model, count=5))
    assert list(whole) == list(batched)
    for key, value in whole.items():
        assert value.value_W == pytest.approx(batched[key].value_W, rel=1e-4)
        assert len(value.value_W) == 5


def test_queries_in_chunks_count_once(build, windows, measure) -> None:
    """At 16 times L a window has two chunks of queries, some of which are not examined."""
    model = build("rope")
    found = measure("scale", windows(model, factor=16))
    assert size(found, "query", 0) == pytest.approx(size(measure("scale", windows(model)), "query", 0), rel=0.05)


def test_pairs_with_several_rotations_have_scores_and_no_queries(build, windows, measure) -> None:
    model = build("rope")
    plan = stack.parse("self-extend").plan(model.encoding, L, 4 * L)
    found = measure("scale", windows(model, 4, plan=plan))
    assert size(found, "score", 0) > 0
    assert not {"query", "key"} & {name for name, *_ in found}


def test_scores_are_those_of_a_softmax_and_a_recurrence_has_none(build, measure, windows) -> None:
    """The logarithm of a weight is a score only after a softmax."""
    asked = ("query", "key", "score", "value", "attention_output")
    for name, arguments, expected in (
        ("pattern", {"layers": "kda,rope"}, {1: set(asked), 0: {"value", "attention_output"}}),
        ("stick-breaking", {}, {0: set(asked) - {"score"}, 1: set(asked) - {"score"}}),
    ):
        found = measure("scale", windows(build(name, 2, arguments)))
        for layer, quantities in expected.items():
            assert {quantity for quantity, at, _, _ in found if at == layer} & set(asked) == quantities
