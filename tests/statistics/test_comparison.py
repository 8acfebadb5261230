"""Comparisons of rows made by hand, and tables that do not agree with each other."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.statistics.comparison import (
    CONTROL,
    MARK,
    Comparison,
    against,
    comparisons,
    corrected,
    resampled,
    table,
    with_best,
)
from extrapolate.statistics.intervals import Interval
from extrapolate.statistics.sums import settings

FIRST = Path(__file__).parents[1] / "fixtures/rope"


def put(folder: Path, evals: dict[str, object], documents: dict[str, object]) -> Path:
    """The tables of a run, with other values in all rows."""
    folder.mkdir()
    tables = (("evals", results.EVALS, evals), ("eval_documents", results.EVAL_DOCUMENTS, documents))
    for name, columns, values in tables:
        rows = [row | values for row in results.read(FIRST / f"{name}.parquet", columns)]
        results.write(folder / f"{name}.parquet", rows[:1] if values.get("extension") else rows, columns)
    return folder


def test_rows_of_extensions_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(xt.UserError, match="no row is of a run as it was trained: evaluate again"):
        xt.compare(put(tmp_path / "rope", {"extension": "pi"}, {"extension": "pi"}))


def test_a_model_is_called_as_its_evaluation_calls_it(without_pictures: None, tmp_path: Path) -> None:
    folder = put(tmp_path / "rope", {}, {"model": "another"})
    assert set(xt.compare(folder)["model"]) == {"RoPE"}
    xt.report(folder, tmp_path / "report")


def rows(losses: dict[str, dict[int | None, float]], documents: int = 40, **changes: object) -> pd.DataFrame:
    """Documents' rows: model -> seed -> mean loss. Documents differ, and are nearly alike for all models."""
    made = []
    for at, (model, seeds) in enumerate(losses.items()):
        for seed, loss in seeds.items():
            rng = np.random.default_rng([at, 9 if seed is None else seed])
            own = np.random.default_rng(0).normal(0, 0.5, documents)
            noise = rng.normal(0, 0.02, documents)
            made += [
                {
                    "protocol": "windows", "factor": 4.0, "targets_hash": "t", "model": model, "seed": seed,
                    "document": str(document), "block": 0, "n_targets": 100, "control_loss": 5.0 + own[document],
                    "loss": loss + own[document] + noise[document] - noise.mean(), "optimum_loss": None,
                }
                for document in range(documents)
            ]  # fmt: skip
    return pd.DataFrame(made).astype({"seed": "Int64"}).assign(**changes)


def of_pair(frame: pd.DataFrame, confidence: float = 0.95):
    (found,) = [one for one in comparisons(frame, confidence) if one.other != CONTROL]
    return found


OVERLAPPING = {"A": {0: 5.512, 1: 5.660}, "B": {0: 5.619, 1: 5.721}}


def test_two_encodings_whose_seeds_overlap_are_undecided() -> None:
    """The documents are sure of the mean of these runs; two seeds cannot be."""
    found = of_pair(rows(OVERLAPPING))
    assert found.difference.mean == pytest.approx(-0.084)
    assert found.verdict() == "undecided"
    assert found.by_seed == pytest.approx((-0.107, -0.061))
    assert found.these_runs.verdict() == "better"
    assert found.p > 0.05


def test_the_best_model_has_the_lowest_mean_over_seeds() -> None:
    """Not the lowest loss of the worst seed, of the middle one, or of the best."""
    losses = {"worst": (5.35, 5.36, 5.4), "middle": (5.1, 5.15, 6.2), "best": (4.9, 5.6, 5.8), "mean": (5.0, 5.2, 5.7)}
    frame = rows({model: dict(enumerate(of_seeds)) for model, of_seeds in losses.items()})
    found = {(one.model, one.other): one.difference.mean for one in with_best(settings(frame))}
    assert found == {
        ("worst", "mean"): pytest.approx(0.07), ("middle", "mean"): pytest.approx(0.55 / 3),
        ("best", "mean"): pytest.approx(0.4 / 3),
    }  # fmt: skip


def test_a_models_mean_is_per_target_and_without_a_loss_it_is_infinite() -> None:
    frame = rows({"A": {0: 5.0, 1: 6.0}, "B": {0: 4.0, 1: 4.0}}, documents=2).assign(n_targets=[100, 300] * 4)
    frame["loss"] = [4.0, 6.0, 5.0, 7.0, 4.0, 4.0, 4.0, math.nan]
    models = settings(frame)[0].models
    assert models["A"].mean() == pytest.approx((5.5 + 6.5) / 2)
    assert models["B"].mean() == math.inf


def test_one_seed_is_about_this_run() -> None:
    first = {model: {0: seeds[0]} for model, seeds in OVERLAPPING.items()}
    one = {"A": {0: 5.5}, "B": OVERLAPPING["B"]}
    imported = {"A": {None: 5.5}, "B": {0: 5.6, 1: 5.6, 2: 5.6}}
    for losses in (first, one, imported):
        assert of_pair(rows(losses)).verdict() == "better (this run)"
    assert len(of_pair(rows(imported)).by_seed) == 3


def test_seeds_that_agree_are_an_order() -> None:
    alike = {"A": {0: 5.51, 1: 5.66, 2: 5.60}, "B": {0: 5.61, 1: 5.761, 2: 5.699}}
    found = of_pair(rows(alike))
    assert found.verdict() == "better"
    assert found.p < 0.01


def test_seeds_are_paired_in_any_order_of_rows() -> None:
    first, *_, last = (mine for _, mine in rows(OVERLAPPING).groupby(["model", "seed"]))
    rest = rows(OVERLAPPING).drop([*first.index, *last.index]).sample(frac=1, random_state=0)
    assert of_pair(pd.concat([first[::-1], last, rest])).by_seed == pytest.approx((-0.107, -0.061))


def test_some_seeds_that_diverge_are_no_verdict() -> None:
    assert of_pair(rows({"A": {0: math.inf, 1: 5.5}, "B": {0: 5.6, 1: 5.6}})).verdict() == "undecided"
    assert of_pair(rows({"A": {0: math.inf, 1: math.inf}, "B": {0: 5.6, 1: 5.6}})).verdict() == "worse"


def test_the_table_has_each_seeds_difference_beside_the_mean() -> None:
    shown = table([of_pair(rows(OVERLAPPING))], 0.95)
    assert list(shown.columns) == [
        "model", "other", "ev", "difference", "95% interval", "verdict", "needs about", "by seed", "seeds",
    ]  # fmt: skip
    assert shown.loc[0, ["difference", "by seed", "verdict", "seeds"]].to_list() == [
        "-0.084", "-0.107, -0.061", "undecided", "0, 1",
    ]  # fmt: skip


def test_a_correction_turns_what_is_barely_sure_into_undecided() -> None:
    """Forty models that differ from their control by chance alone, and one that does."""
    noise = np.random.default_rng(1)
    frame = pd.concat(
        rows({f"model {n}": {0: 5.0}}).assign(loss=lambda f: f["control_loss"] + noise.normal(0, 0.1, 40))
        for n in range(40)
    )
    real = rows({"real": {0: 5.2}})
    found = list(comparisons(pd.concat([frame, real]), pairs=False))
    by_chance = [one.model for one in found if one.sure() and one.model != "real"]
    assert by_chance
    after = corrected(found, "holm")
    assert [one.model for one in after if one.sure()] == ["real"]
    assert corrected(found, "none") == found
    marks = against(after, CONTROL, [one.model for one in after]).set_index("Model")["ev=4"]
    assert marks["real"].endswith(f"] {MARK}")
    assert marks[by_chance[0]].endswith("]")
    with pytest.raises(xt.UserError, match="unknown correction 'bonferroni'"):
        corrected(found, "bonferroni")


def test_what_is_undecided_says_about_how_many_seeds_would_decide_it() -> None:
    found = of_pair(rows(OVERLAPPING))
    needed = found.needed()
    assert needed.seeds > 3
    assert found.advice() == f"{needed.seeds} seeds"
    assert found.row()["needed_seeds"] == needed.seeds
    assert table([found], 0.95).loc[0, "needs about"] == found.advice()
    after = corrected([found] * 10, "holm")[0]
    assert after.needed().seeds > needed.seeds
    unsure = of_pair(rows({"A": {0: 5.5, 1: 5.501, 2: 5.502}, "B": {0: 5.506, 1: 5.507, 2: 5.508}}, documents=11))
    assert unsure.verdict() == "undecided"
    assert unsure.advice().endswith(" stretches")
    one_seed = of_pair(rows({"A": {0: 5.512}, "B": {0: 5.515}}, documents=12))
    assert (one_seed.verdict(), one_seed.advice()) == ("undecided (this run)", "")
    alike = of_pair(rows({"A": {0: 5.51, 1: 5.66, 2: 5.60}, "B": {0: 5.61, 1: 5.761, 2: 5.699}}))
    assert (alike.verdict(), alike.advice(), alike.row()["needed_seeds"]) == ("better", "", None)
    assert "needs about" not in table([alike], 0.95)


def test_what_intervals_are_over_is_one_range_a_kind() -> None:
    def one(count: int, clusters: str, seeds: int) -> Comparison:
        by_seed = (0.1,) * seeds
        return Comparison("windows", 2.0, "A", "B", Interval(0.1, 0.0, 0.2, count), clusters, (), by_seed=by_seed)

    found = [one(144, "stretches", 1), one(141, "stretches", 3), one(143, "stretches", 3), one(52, "documents", 3)]
    assert resampled(found) == "Intervals are over 52 documents, 141 to 144 stretches, and 1 or 3 seeds."
    assert resampled(found[-1:]) == "Intervals are over 52 documents, and 3 seeds."
