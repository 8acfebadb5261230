"""The numbers that pictures of encodings are drawn from, against the formulas."""

import math

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import EMBEDDED, encodings
from extrapolate.extensions import stack
from extrapolate.inspection.views import scores, views
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L = 16


def model_of(name: str) -> Model:
    torch.manual_seed(0)
    spec = specs.parse(name)
    sizes = ModelConfig(vocab_size=1, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=8)
    return Model(sizes, spec.name, spec.arguments, L).eval()


def plan(model: Model, text: str, length: int):
    return stack.parse(text).plan(model.encoding, L, length)


@pytest.mark.parametrize("name", encodings.names())
def test_every_encoding_has_finite_views_and_scores(name):
    model = model_of(name)
    for view in views(model, L):
        assert view.values_TC.shape == (L, len(view.dimensions))
        assert view.values_TC.isfinite().all()
    assert bool(views(model, L)) == (name not in ("none", "stick-breaking", "kda", "pattern"))
    found_HS = scores(model, L)
    if not model.encoding.attends():
        assert found_HS is None
        return
    assert found_HS.shape == (2, L)
    assert found_HS[:, 0].isfinite().all()  # every token sees itself
    assert not found_HS.isinf().any()


def test_sinusoids_are_added_to_the_embedding():
    (view,) = views(model_of("sinusoidal"), 8)
    assert view.place == "added to the embedding"
    assert view.dimensions == tuple(range(32))
    assert view.values_TC[5, 2].item() == pytest.approx(EMBEDDED * math.sin(5 * 10_000 ** (-2 / 32)), abs=1e-6)
    # The mean over heads of a product of sines and cosines is the mean cosine of the distance's angles.
    wanted = sum(math.cos(3 * 10_000 ** (-2 * m / 32)) for m in range(16)) * EMBEDDED**2 / (2 * 16**0.5)
    assert scores(model_of("sinusoidal"), 64)[:, 3].mean().item() == pytest.approx(wanted, abs=1e-5)


def test_a_trained_table_is_shown_and_ends_where_it_ends():
    model = model_of("learned")
    (view,) = views(model, L)
    assert torch.equal(view.values_TC, model.encoding.table_LD.detach())
    assert scores(model, L + 1) is None
    assert scores(model, 4 * L, plan(model, "table-resize", 4 * L)).shape == (2, 4 * L)


def test_expe_shows_the_channels_that_it_writes_and_no_others():
    (view,) = views(model_of("expe:size=3,start=-1,step=0.1,slope=0.5"), 8)
    assert view.dimensions == (0, 1, 2)
    assert view.values_TC[4].tolist() == pytest.approx([-0.6, -0.1, 0.4], abs=1e-6)


def test_a_rotated_query_scores_by_the_cosine_of_the_distance():
    (view,) = views(model_of("rope"), 8)
    angle = 5 * 10_000 ** (-2 / 16)
    assert view.values_TC[5, 1].item() == pytest.approx(math.cos(angle) - math.sin(angle), abs=1e-5)
    found_HS = scores(model_of("rope"), 4 * L)
    wanted = [2 * sum(math.cos(r * 10_000 ** (-2 * m / 16)) for m in range(8)) / 4 for r in range(4 * L)]
    assert found_HS[1].tolist() == pytest.approx(wanted, abs=1e-4)


def test_a_bias_falls_with_distance_in_scores_and_in_its_view():
    model = model_of("alibi")
    (view,) = views(model, 8)
    assert view.kind == "head"
    assert view.values_TC[0].tolist() == pytest.approx([-7 / 16, -7 / 256])
    assert scores(model, 40)[0, 30].item() == pytest.approx(16**0.5 - 30 / 16, abs=1e-5)


@pytest.mark.parametrize(("extension", "distance", "same_as"), [("pi", 40, 10), ("rerope:window=8", 40, 8)])
def test_an_extension_moves_the_scores(extension, distance, same_as):
    model = model_of("rope")
    before, after = scores(model, 64), scores(model, 64, plan(model, extension, 64))
    assert after[:, distance].tolist() == pytest.approx(before[:, same_as].tolist(), abs=1e-4)
    assert after[:, 40].tolist() != pytest.approx(before[:, 40].tolist(), abs=1e-2)


def test_what_a_window_hides_is_missing():
    model = model_of("rope")
    found_HS = scores(model, 64, plan(model, "window:size=10", 64))
    assert found_HS[:, :10].isfinite().all()
    assert found_HS[:, 10:].isnan().all()


def test_a_scale_of_queries_counts():
    model = model_of("none")
    found_HS = scores(model, 64, plan(model, "log-n", 64))
    assert found_HS.flatten().tolist() == pytest.approx([4 * math.log(64) / math.log(L)] * 128)
