"""Curves by position and the failure length, from documents' rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from extrapolate.statistics.positions import LEAST, by_position, examined, failure_table, failures, with_seeds

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
                    "model": "RoPE", "document": str(document), "block": 0, "position": position, "bucket": L // 2,
                    "seed": 0, "run": "r", "plan_hash": None,
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


def test_what_holds_is_said_to_hold() -> None:
    found = failure(rows({160: 0.3}, documents=300, noise=0.005))
    assert (found.fails_from, found.holds_to) == (160, 160)
    assert (found.clusters, found.cluster, found.seeds, found.length) == (300, "documents", 1, 256)
    assert found.text() == "160 (holds to 160)"
    found = failure(rows({0: -0.05}, documents=300))
    assert (found.fails_from, found.holds_to) == (None, 256)
    assert found.text() == "holds to 256"


def test_it_holds_to_the_first_bucket_that_may_be_above() -> None:
    """Not across it, to later buckets that surely are not; and what is not known is not said to hold."""
    unknown = failure(rows({128: 0.3}, documents=12, noise=0.6))
    assert (unknown.fails_from, unknown.holds_to, unknown.text()) == (None, None, "not found")
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
    assert failure(rows({64: 0.8 * LEAST}, documents=300, noise=0.001)).fails_from is None
    assert failure(rows({64: 1.2 * LEAST}, documents=300, noise=0.001)).fails_from == 64


def test_noise_alone_is_called_a_failure_in_few_reports() -> None:
    """Of all buckets of all models at once: 20 times nothing at all (tools/failure_coverage.py has more)."""
    frame = pd.concat([rows({}, model=str(model), noise=0.0) for model in range(2)], ignore_index=True)
    failed = 0
    for seed in range(20):
        frame["loss"] = 4.0 + np.random.default_rng(seed).normal(0, 0.2, len(frame)) * (frame["position"] >= L)
        failed += any(one.fails_from is not None for one in failures(by_position(frame)))
    assert failed <= 2  # one-sided, so 1 of 40 is expected


def test_surely_is_said_of_all_models_at_once() -> None:
    """So that a model's band is wider beside others, but not if they are the same again."""
    frame = rows({}, noise=0.1)
    rng = np.random.default_rng(1)
    others = [frame.assign(model=str(at), loss=4.0 + rng.permutation(frame["loss"] - 4.0)) for at in range(12)]
    again = [frame.assign(model=str(at)) for at in range(12)]
    widths = []
    for beside in ([], others, again):
        curve = by_position(pd.concat([frame, *beside]))
        curve = curve[(curve["model"] == "RoPE") & curve["low"].notna()]
        widths.append((curve["high"] - curve["low"]).to_numpy())
    alone, beside_others, beside_itself = widths
    assert (beside_others > 1.1 * alone).all()
    assert beside_itself == pytest.approx(alone)


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


def test_a_model_that_does_not_look_at_the_length_has_one_failure_length() -> None:
    """Each bucket is that of the shortest windows that have it: of these there are the most, the longer begin alike."""
    frames = [rows({128: 0.1}, factor=factor, plan_hash="p") for factor in (1, 2, 4)]
    frames[2]["loss"] += 0.05 * (frames[2]["position"] < 128)  # not looked at: windows of 2x have these buckets
    curves = by_position(pd.concat(frames))
    (found,) = failures(curves)
    assert (found.windows, found.factor, found.length, found.fails_from) == ("up to 4x", 4.0, 256, 128)
    banded = curves[curves["low"].notna()]
    assert banded[["factor", "position"]].to_numpy().tolist() == [
        [2, 64], [2, 96], [4, 128], [4, 160], [4, 192], [4, 224],
    ]  # fmt: skip


def test_a_bucket_that_a_window_cuts_off_is_that_of_a_longer_one() -> None:
    half = rows({}, factor=2, plan_hash="p").assign(length=112, factor=1.75)
    curves = by_position(pd.concat([half[half["position"] < 112], rows({}, factor=2, plan_hash="p")]))
    assert examined(curves)[["factor", "position"]].to_numpy().tolist() == [[1.75, 64], [2, 96]]


@pytest.mark.parametrize("hashes", [("p", "q"), (None, None), ("p", None)])
def test_a_model_that_looks_at_the_length_has_a_failure_length_for_each(hashes: tuple[str | None, str | None]) -> None:
    of_2x, of_4x = (rows({64: 0.1 * at}, factor=2 * at, plan_hash=hashes[at - 1]) for at in (1, 2))
    found = failures(by_position(pd.concat([rows({}, factor=1, plan_hash="p"), of_2x, of_4x])))
    assert [(one.windows, one.length, one.fails_from) for one in found] == [("2x", 128, 64), ("4x", 256, 64)]


def test_runs_may_have_plans_of_their_own() -> None:
    """An extension can read what a run learned: each run's plan must be the same at every length."""
    frames = [
        rows({}, factor=factor, plan_hash=f"plan of {seed}", run=f"r{seed}", seed=seed)
        for factor in (2, 4)
        for seed in (0, 1)
    ]
    assert [one.windows for one in failures(by_position(pd.concat(frames)))] == ["up to 4x"]
    frames[3]["plan_hash"] = "plan of 0"
    assert [one.windows for one in failures(by_position(pd.concat(frames)))] == ["2x", "4x"]


def test_a_model_that_diverges_costs_the_others_nothing() -> None:
    diverged = rows({}, model="diverged")
    diverged.loc[diverged["position"] >= 160, "loss"] = np.inf
    found = {one.model: one for one in failures(by_position(pd.concat([rows({128: 0.1}), diverged])))}
    assert found["diverged"].fails_from == 160
    assert found["RoPE"].fails_from == 128


def test_the_table_has_a_row_for_a_model_or_for_a_model_and_a_length() -> None:
    pi = pd.concat([rows({64: 0.5}, factor=factor, model="RoPE + PI", plan_hash=str(factor)) for factor in (4, 2)])
    one = pd.concat([rows({128: 0.1}, factor=factor, plan_hash="p") for factor in (1, 2, 4)])
    table = failure_table(failures(by_position(pd.concat([pi, one]))), ["RoPE", "RoPE + PI", "learned"])
    assert list(table.columns) == ["Model", "Windows", "Failure length", "Seeds"]
    assert table.to_numpy().tolist() == [
        ["RoPE", "up to 4x", "128", "1"], ["RoPE + PI", "2x", "64", "1"], ["RoPE + PI", "4x", "64", "1"],
        ["learned", "n/a", "n/a", "n/a"],
    ]  # fmt: skip
