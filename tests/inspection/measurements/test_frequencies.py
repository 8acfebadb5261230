"""Norms and shares of frequencies in models whose values are known."""

import math

import pytest
import torch

from extrapolate.extensions import stack
from extrapolate.inspection.measurements.base import measurements

K, HEADS, WIDTH = 16, 2, 32


@pytest.fixture
def known(build):
    """Every normalised embedding is sqrt(D) in channel 0: a head's pair m has the norm m + 1, keys' twice that."""

    def make(encoding: str, **arguments):
        model = build(encoding, arguments=arguments)
        first = range(0, K, 2) if arguments.get("pairing") == "interleaved" else range(K // 2)
        with torch.no_grad():
            model.embedding.weight.zero_()
            model.embedding.weight[:, 0] = 100.0
            weight = model.blocks[0].attention.qkv.weight
            weight[: 2 * HEADS * K] = 0.0
            for head in range(HEADS):
                for m, channel in enumerate(first):
                    weight[head * K + channel, 0] = (m + 1) / math.sqrt(WIDTH)
                    weight[(HEADS + head) * K + channel, 0] = 2 * (m + 1) / math.sqrt(WIDTH)
        return model

    return make


@pytest.mark.parametrize(
    ("encoding", "arguments"),
    [("rope", {}), ("rope", {"pairing": "interleaved"}), ("p-rope", {"p": 0.5})],
)
def test_norms_set_by_hand_are_found(known, windows, measure, encoding, arguments) -> None:
    found = measure("frequencies", windows(known(encoding, **arguments), 2))
    for head in range(HEADS):
        for m in range(K // 2):
            assert found["query_norm", 0, head, m].mean == pytest.approx(m + 1, rel=1e-4)
            assert found["key_norm", 0, head, m].mean == pytest.approx(2 * (m + 1), rel=1e-4)
    radians = [found["radians", 0, None, m].mean for m in range(K // 2)]
    kept = 4 if encoding == "p-rope" else 8
    assert radians == pytest.approx([10_000 ** (-m / 8) if m < kept else 0.0 for m in range(8)], rel=1e-5)


def test_only_rotated_pairs_carry_scores_where_all_tokens_are_equal(known, windows, measure) -> None:
    """The keys differ only by position, which an unrotated pair does not show."""
    found = measure("frequencies", windows(known("p-rope", p=0.5), 2))
    for head in range(HEADS):
        shares = [found["score_share", 0, head, m].mean for m in range(K // 2)]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        assert shares[4:] == pytest.approx([0] * 4, abs=1e-4)


@pytest.mark.parametrize(
    "encoding", ["rope", "partial-rope", "pope", "xpos", "rnope", "p-rope:p=0.3,pairing=interleaved"]
)
def test_shares_add_up_to_one_in_every_head(build, windows, measure, encoding) -> None:
    name, _, arguments = encoding.partition(":")
    model = build(name, layers=2, arguments=dict(pair.split("=") for pair in arguments.split(",") if pair))
    found = measure("frequencies", windows(model, 4))
    layers = {layer for _, layer, _, _ in found}
    assert layers == ({0} if name == "rnope" else {0, 1})  # its last layer has no encoding
    for layer in layers:
        for head in range(HEADS):
            shares = [v.mean for key, v in found.items() if key[:3] == ("score_share", layer, head)]
            assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_the_share_is_the_covariance_with_the_whole_score(build, windows, measure) -> None:
    """One window's last query, pair by pair, in float64."""
    model = build("rope")
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.mul_(20)
    inspected = windows(model, count=1)
    kept = {}
    inspected.observe(lambda chunk: kept.update(chunk=chunk), inspected.tokens_WN)
    q, k = kept["chunk"].q_BHTK[0, 1].double(), kept["chunk"].k_BHSK[0, 1].double()
    wanted = torch.zeros(K // 2)
    for row, query in enumerate(range(8, 16)):
        parts = torch.stack([k[: query + 1, [m, m + 8]] @ q[row, [m, m + 8]] for m in range(8)])
        whole = parts.sum(dim=0)
        covariance = ((parts - parts.mean(dim=1, keepdim=True)) * (whole - whole.mean())).mean(dim=1)
        wanted += (covariance / whole.var(correction=0)) / 8
    found = measure("frequencies", inspected)
    assert [found["score_share", 0, 1, m].mean for m in range(8)] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_norms_are_those_of_the_tokens_that_are_looked_at(build, windows, measure) -> None:
    """The keys of the last L/2 tokens of a window have other norms than the first. Rotations change none."""
    model = build("rope")
    inspected = windows(model, 2)
    block = model.blocks[0]
    with torch.no_grad():
        read = block.attention_norm(model.embedding(inspected.tokens_WN[:, 24:32]))
        q, k, _ = block.attention.qkv(read).unflatten(-1, (3, HEADS, 2, K // 2)).unbind(dim=2)  # pairs are halves
    found = measure("frequencies", inspected)
    for name, of_token in (("query_norm", q), ("key_norm", k)):
        wanted_WHM = of_token.norm(dim=-2).mean(dim=1)
        for head in range(HEADS):
            for m in range(K // 2):
                assert found[name, 0, head, m].value_W == pytest.approx(wanted_WHM[:, head, m].numpy(), rel=1e-4)


@pytest.mark.parametrize(("extension", "scale"), [("pi:factor=4", 1 / 4), ("ntk:factor=4", None)])
def test_the_speeds_are_those_that_the_extension_makes(build, windows, measure, extension, scale) -> None:
    model = build("rope")
    plan = stack.parse(extension).plan(model.encoding, 16, 64)
    found = measure("frequencies", windows(model, 4, plan=plan))
    radians = [found["radians", 0, None, m].mean for m in range(8)]
    factors = [4 ** (-m / 7) for m in range(8)] if scale is None else [scale] * 8
    assert radians == pytest.approx([10_000 ** (-m / 8) * factors[m] for m in range(8)], rel=1e-5)


def test_heads_that_share_a_key_have_one_norm_of_it(build, windows, measure) -> None:
    """Also with normalised queries and keys, and scaled scores."""
    found = measure("frequencies", windows(build("rope", kv_heads=1, qk_norm=True, ssmax=True), 2))
    for m in range(K // 2):
        first, second = (found["key_norm", 0, head, m].value_W for head in range(HEADS))
        assert first == pytest.approx(second)
    squares = sum(found["query_norm", 0, 0, m].value_W ** 2 for m in range(K // 2))
    assert squares.max() <= K * 1.001  # the norm of all channels is sqrt(K)


@pytest.mark.parametrize("encoding", ["none", "alibi", "fope", "expe"])
def test_an_encoding_without_single_frequencies_is_refused_with_the_reason(build, windows, encoding) -> None:
    refused = measurements["frequencies"].refusal(windows(build(encoding)))
    assert refused is not None
    assert "pairs of channels" in refused


def test_several_rotations_are_refused(build, windows) -> None:
    model = build("rope")
    plan = stack.parse("self-extend").plan(model.encoding, 16, 64)
    assert "several speeds" in str(measurements["frequencies"].refusal(windows(model, 4, plan=plan)))
