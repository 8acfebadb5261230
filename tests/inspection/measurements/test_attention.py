"""Attention by distance, in models whose attention is known."""

import math
from dataclasses import replace

import pytest
import torch

from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack
from extrapolate.extensions.base import extensions
from extrapolate.inspection.measurements.attention import edges_of
from extrapolate.inspection.measurements.base import measurements
from extrapolate.model.model import layer_encodings

L = 16
DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=L)
# An extension with several rotations of each pair, and one that hides keys, with every encoding that they apply to.
EXTENDED = [
    (name, extension)
    for extension in ("self-extend", "sinks")
    for name in encodings.names()
    if extensions[extension].needs in layer_encodings(name, {}, DIMS)[0].accepts
]


def by_distance(found, layer: int, head: int) -> dict[float, float]:
    return {at: v.mean for (name, lay, hd, at), v in found.items() if (name, lay, hd) == ("mass", layer, head)}


@pytest.mark.parametrize("encoding", [name for name in encodings.names() if name != "learned"])
def test_attention_by_distance_adds_up_to_one_in_every_encoding(build, windows, measure, encoding) -> None:
    model = build(encoding, layers=2)
    attending = [layer for layer, encoding in enumerate(model.encodings) if encoding.attends()]
    if not attending:
        assert "has attention" in measurements["attention"].refusal(windows(model))
        return
    found = measure("attention", windows(model, 2, count=2))
    for layer in attending:
        for head in range(2):
            masses = by_distance(found, layer, head)
            assert list(masses) == edges_of(2 * L)
            assert sum(masses.values()) == pytest.approx(1, abs=1e-5)
            assert min(masses.values()) >= -1e-6
            assert found["beyond", layer, head, None].mean == pytest.approx(masses[L], abs=1e-5)
            assert found["entropy", layer, head, None].mean <= found["uniform_entropy", None, None, None].mean + 1e-5


def test_a_head_built_to_attend_to_the_previous_token_has_its_mass_there(positional, windows, measure) -> None:
    found = measure("attention", windows(positional(1), 4))
    assert by_distance(found, 0, 0)[1] > 0.99
    assert found["entropy", 0, 0, None].mean < 0.1
    assert found["beyond", 0, 0, None].mean < 0.01


def test_an_even_head_is_the_uniform_one(positional, windows, measure) -> None:
    found = measure("attention", windows(positional(1), 2))
    for name in ("entropy", "beyond", "first"):
        assert found[name, 0, 1, None].mean == pytest.approx(found[f"uniform_{name}", None, None, None].mean, rel=1e-4)
    queries = range(24, 32)  # the last L/2 of 2 L
    assert found["entropy", 0, 1, None].mean == pytest.approx(sum(math.log(q + 1) for q in queries) / 8, rel=1e-4)
    assert found["beyond", 0, 1, None].mean == pytest.approx(sum((q + 1 - L) / (q + 1) for q in queries) / 8, rel=1e-4)


def test_what_a_window_hides_has_no_mass(build, windows, measure) -> None:
    found = measure("attention", windows(build("rope", layers=2), 4, plan=Plan(window=5)))
    for layer in range(2):
        masses = by_distance(found, layer, 0)
        assert sum(mass for at, mass in masses.items() if at <= 4) == pytest.approx(1, abs=1e-5)
        assert all(mass == pytest.approx(0, abs=1e-6) for at, mass in masses.items() if at > 4)
        assert found["first", layer, 0, None].mean == 0


class Chunks:
    """An observer that keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, torch.Tensor, slice, slice]] = []

    def attended(self, layer, q_BHTK, k_BHSK, weight_BHTS, queries, keys) -> None:
        self.seen.append((layer, weight_BHTS, queries, keys))


@pytest.mark.parametrize(("encoding", "extension"), [(name, None) for name in encodings.names()] + EXTENDED)
def test_to_be_observed_changes_no_prediction_and_shows_no_later_key(build, encoding, extension) -> None:
    model = build(encoding, layers=2)
    length = L if encoding == "learned" else 150  # two chunks of queries
    plan = PLAIN
    if extension is not None:
        plan = stack.parse(extension).plan(model.encoding, L, length)
    tokens, chunks = torch.arange(length)[None] % 50, Chunks()
    setting = model.resolve(plan)
    with torch.no_grad():
        watched = model(tokens, replace(setting, observer=chunks))
        torch.testing.assert_close(watched, model(tokens, setting), rtol=1e-4, atol=1e-5)
    for layer in range(2):
        mine = [chunk for chunk in chunks.seen if chunk[0] == layer]
        if not model.encodings[layer].attends():
            assert not mine
            continue
        assert [query for _, _, queries, _ in mine for query in range(queries.start, queries.stop)] == [*range(length)]
        for _, weight_BHTS, queries, keys in mine:
            query_T = torch.arange(queries.start, queries.stop)
            assert not weight_BHTS[:, :, torch.arange(keys.start, keys.stop) > query_T[:, None]].any()
