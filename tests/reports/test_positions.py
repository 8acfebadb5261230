"""Curves by position and the failure length, from documents' rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.positions import LEAST, by_position, failure_table, failures, with_seeds

L = 64


def rows(
    excess: dict[int, float], documents: int = 40, factor: int = 4, noise: float = 0.02, **changes
) -> pd.DataFrame:
    """Documents' rows of one model whose loss is `excess` above its control from each position on."""
    rng = np.random.default_rng(0)
    made = []
    for document in range(documents):
        effect = rng.normal(0, noise)  # a document's own, shared by its buckets
        for position in range(0, factor * L, L // 2):
            above = next((excess[start] for start in sorted(excess, reverse=True) if position >= start), 0.0)
            made.append(
                {
                    "protocol": "windows", "factor": float(factor), "length": factor * L, "targets_hash": "t",
                    "model": "RoPE", "document": str(document), "block": 0, "position": position, "seed": 0,
                    "n_targets": 32 * (1 + document % 3), "control_loss": 4.0,
                    "loss": 4.0 + (above + effect + rng.normal(0, noise) if position >= L else 0.0),
                    "optimum_loss": None,
                }
                | changes
            )  # fmt: skip
    return pd.DataFrame(made)


def failure(frame: pd.DataFrame):
    (found,) = failures(by_position(frame))
    return found


def test_a_rise_is_found_where_it_begins() -> None:
    found = failure(rows({128: 0.1}))
    assert (found.fails_from, found.holds_to) == (128, None)
    assert (found.clusters, found.cluster, found.seeds, found.length) == (40, "documents", 1, 256)


def test_what_holds_is_said_to_hold() -> None:
    found = failure(rows({160: 0.3}, documents=300, noise=0.005))
    assert (found.fails_from, found.holds_to) == (160, 160)
    assert found.text() == "160 (holds to 160)"
    found = failure(rows({0: -0.05}, documents=300))
    assert (found.fails_from, found.holds_to) == (None, 256)
    assert found.text() == "holds to 256"


def test_what_is_not_known_is_not_said_to_hold() -> None:
    found = failure(rows({128: 0.3}, documents=12, noise=0.6))
    assert (found.fails_from, found.holds_to) == (None, None)
    assert found.text() == "not found"


def test_it_holds_to_the_first_bucket_that_may_be_above() -> None:
    """Not across it, to later buckets that surely are not."""
    found = failure(rows({96: 0.02, 128: -0.05}, documents=60, noise=0.02))
    assert (found.fails_from, found.holds_to) in ((None, 96), (96, 96))


def test_a_failure_is_above_zero_surely_and_at_least_the_least_by_its_mean() -> None:
    """The band need not be above LEAST itself."""
    frame = rows({64: 1.5 * LEAST}, documents=200, noise=0.02)
    curve = by_position(frame).set_index("position").loc[64]
    assert 0 < curve["low"] < LEAST < curve["difference"]
    assert failure(frame).fails_from == 64


def test_clusters_are_those_that_the_band_is_made_of() -> None:
    frame = rows({64: 0.5}, documents=40)
    lacking = (frame["document"].astype(int) >= 33) & (frame["position"] == 224)
    assert failure(frame[~lacking]).clusters == 33


def test_a_small_difference_is_no_failure_however_sure() -> None:
    assert failure(rows({64: 0.8 * LEAST}, documents=3000, noise=0.001)).fails_from is None
    assert failure(rows({64: 1.2 * LEAST}, documents=3000, noise=0.001)).fails_from == 64


def test_noise_alone_fails_in_about_one_of_twenty() -> None:
    """For all buckets at once: 100 times nothing at all, over 12 or 14 buckets."""
    failed = 0
    for seed in range(100):
        frame = rows({}, documents=40, factor=8)
        rng = np.random.default_rng(seed)
        frame["loss"] += rng.normal(0, 0.2, len(frame)) * (frame["position"] >= L)
        failed += failure(frame).fails_from is not None
    assert failed <= 9  # one-sided, so 2.5 of 100 are expected


def test_what_lies_within_l_is_not_looked_at() -> None:
    frame = rows({})
    frame.loc[frame["position"] < L, "loss"] += 1.0
    assert failure(frame).fails_from is None
    curve = by_position(frame).set_index("position")
    assert curve.loc[0, "difference"] == pytest.approx(1.0)
    assert curve.loc[[0, 32], "low"].isna().all()
    assert curve.loc[64:, "low"].notna().all()


def test_curves_are_means_over_targets_and_seeds() -> None:
    first, second = rows({}), rows({64: 0.5}, seed=1)
    curve = by_position(pd.concat([first, second])).set_index("position")
    one, other = (by_position(frame).set_index("position") for frame in (first, second))
    assert curve["loss"].to_numpy() == pytest.approx((one["loss"] + other["loss"]).to_numpy() / 2)
    weights = first.groupby("position").apply(lambda f: np.average(f["loss"], weights=f["n_targets"]))
    assert one["loss"].to_numpy() == pytest.approx(weights.to_numpy())
    assert curve["seeds"].unique().tolist() == [2]
    assert curve.loc[0, "n_targets"] == first[first["position"] == 0]["n_targets"].sum()


def test_the_failure_length_of_each_seed_stands_beside_that_of_their_mean() -> None:
    frame = pd.concat([rows({64: 0.5}), rows({128: 0.2}, seed=1), rows({}, seed=2), rows({128: 0.1}, model="one seed")])
    found = {one.model: one for one in with_seeds(failures(by_position(frame)), frame)}
    assert found["RoPE"].by_seed == "64, 128, not found"
    assert found["RoPE"].text() == "64; by seed: 64, 128, not found"
    assert found["one seed"].by_seed == ""
    assert found["one seed"].text() == "128"


def test_too_few_to_say() -> None:
    found = failure(rows({64: 1.0}, documents=5))
    assert (found.fails_from, found.cluster, found.clusters) == (None, "stretches", 5)
    assert found.text() == "too few"


def test_the_table_has_a_column_for_every_factor() -> None:
    curves = by_position(pd.concat([rows({128: 0.1}), rows({}, factor=2), rows({}, factor=1)]))
    table = failure_table(failures(curves), ["RoPE", "other"]).set_index("Model")
    assert table.loc["RoPE"].tolist()[1] == "128"
    assert list(table.columns) == ["Failure length (ev=2)", "Failure length (ev=4)", "Seeds"]
    assert table.loc["RoPE", "Seeds"] == "1"
    assert table.loc["other"].tolist() == ["n/a", "n/a", "n/a"]
