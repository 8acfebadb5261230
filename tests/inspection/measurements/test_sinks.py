"""The weight of the first tokens, the largest score and the stable rank of keys, against numpy and known models."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack
from extrapolate.inspection.measurements.sinks import stable_rank
from extrapolate.model.attention import Maps

L, K = 16, 16


def test_they_are_those_of_the_scores_computed_by_hand(build, windows, measure) -> None:
    """One layer, so that queries and keys are products of the embeddings; ranks by numpy's singular values."""
    model = build("rope")
    inspected = windows(model, 4)
    found = measure("sinks", inspected)
    tokens = inspected.tokens_WN[:, :-1]
    first = inspected.first_query
    with torch.no_grad():
        block = model.blocks[0]
        x = block.attention_norm(model.embedding(tokens))
        q, k = block.attention.qkv(x)[..., : 4 * K].unflatten(-1, (4, K)).transpose(1, 2).split(2, dim=1)
        pos = torch.arange(4 * L, dtype=torch.float32)
        q, k = model.encoding.rotate(q, k, pos, pos)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(K)).masked_fill(torch.ones(64, 64).triu(1) > 0, -math.inf)
    weights = scores.softmax(dim=-1)
    for head in range(2):
        singular = np.linalg.svd(k[:, head].double().numpy(), compute_uv=False)
        rank = (singular**2).sum(axis=1) / singular[:, 0] ** 2
        assert found["key_rank", 0, head, None].value_W == pytest.approx(rank, rel=1e-4)
        largest = scores[:, head, first:].amax(dim=-1).mean(dim=-1)
        assert found["largest_score", 0, head, None].value_W == pytest.approx(largest.numpy(), rel=1e-4)
        four = weights[:, head, first:, :4].sum(dim=-1).mean(dim=-1)
        assert found["first_four", 0, head, None].value_W == pytest.approx(four.numpy(), rel=1e-4)


def test_the_weight_is_that_of_the_maps_in_layers_of_every_depth(build, windows, measure) -> None:
    model = build("alibi", layers=3)
    inspected, maps = windows(model, 2), Maps(2 * L)
    found = measure("sinks", inspected)
    with torch.no_grad():
        model(inspected.tokens_WN[:, :-1], replace(inspected.setting, observer=maps))
    for layer in range(3):
        four_WH = maps.weights[layer][:, :, inspected.first_query :, :4].sum(dim=-1).mean(dim=-1)
        for head in range(2):
            assert found["first_four", layer, head, None].value_W == pytest.approx(four_WH[:, head].numpy(), rel=1e-4)


def test_keys_of_one_direction_have_rank_1_and_even_ones_rank_k() -> None:
    direction = torch.randn(K)
    one = torch.randn(1, 1, 40, 1) * direction
    even = torch.eye(K).repeat(3, 1)[None, None]
    assert stable_rank(one).item() == pytest.approx(1)
    assert stable_rank(even).item() == pytest.approx(K)
    half = torch.eye(K).repeat(3, 1)[None, None] * (torch.arange(K) < K // 2)
    assert stable_rank(half * 100).item() == pytest.approx(K / 2)


def test_with_no_position_all_keys_of_the_built_head_point_one_way_and_rope_spreads_them(positional, windows, measure):
    """Its keys are the same vector for all tokens, so only rotation spreads them, more in longer windows."""
    model = positional(1)
    ranks = [measure("sinks", windows(model, factor))["key_rank", 0, 0, None].mean for factor in (1, 2, 4)]
    assert 1 < ranks[0] < ranks[1] < ranks[2]


def test_what_a_window_hides_counts_nowhere(build, windows, measure) -> None:
    """In windows of two chunks of queries, the second of which begins with later keys."""
    model = build("rope")
    cut, whole = (measure("sinks", windows(model, 9, plan=plan)) for plan in (Plan(window=5), PLAIN))
    for head in range(2):
        assert cut["first_four", 0, head, None].mean == 0
        assert cut["largest_score", 0, head, None].mean < whole["largest_score", 0, head, None].mean
        assert cut["key_rank", 0, head, None].mean <= 5 + 1e-6


def test_keys_with_several_rotations_have_only_the_attention(build, windows, measure) -> None:
    model = build("rope")
    plan = stack.parse("self-extend").plan(model.encoding, L, 4 * L)
    found = measure("sinks", windows(model, 4, plan=plan))
    assert {quantity for quantity, *_ in found} == {"first_four"}
