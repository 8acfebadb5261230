"""The share of the available gain."""

import pandas as pd
import pytest

from extrapolate.reports.page import Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.optimum import Optimum, optimum_by_ev
from extrapolate.statistics.comparison import OPTIMUM, Comparison
from extrapolate.statistics.intervals import Interval


def rows(losses: dict[str, dict[int, float]], optimum: dict[int, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"model": model, "factor": float(factor), "loss": loss, "optimum_loss": optimum[factor], "seed": 0}
            for model, mine in losses.items()
            for factor, loss in mine.items()
        ]
    )


def test_shares_of_the_gain() -> None:
    optimum = {1: 2.5, 2: 2.3, 4: 2.0}
    losses = {
        "best": optimum,
        "flat": {1: 2.6, 2: 2.6, 4: 2.6},
        "half": {1: 2.7, 2: 2.6, 4: 2.45},
        "worse": {1: 2.6, 2: 2.8, 4: 3.1},
    }
    made = rows(losses, optimum)
    table = optimum_by_ev(made, ["half", "flat", "best", "worse"])
    assert table["Model"].tolist() == ["optimum", "half", "flat", "best", "worse"]
    table = table.set_index("Model")
    assert table.loc["optimum", [f"Loss (ev={f})" for f in optimum]].tolist() == list(optimum.values())
    gains = table[["Gain captured (ev=2)", "Gain captured (ev=4)"]]
    assert gains.loc["best"].tolist() == pytest.approx([1, 1])
    assert gains.loc["flat"].tolist() == pytest.approx([0, 0])
    assert gains.loc["half"].tolist() == pytest.approx([0.5, 0.5])
    assert gains.loc["worse"].tolist() == pytest.approx([-1, -1])
    assert gains.loc["optimum"].isna().all()
    assert table["Seeds"].dropna().to_dict() == {"half": 1, "flat": 1, "best": 1, "worse": 1}


def test_where_nothing_more_can_be_gained_there_is_no_share() -> None:
    table = optimum_by_ev(rows({"m": {1: 2.6, 2: 2.5}}, {1: 2.0, 2: 2.0}), ["m"]).set_index("Model")
    assert pd.isna(table.loc["m", "Gain captured (ev=2)"])


def test_the_gain_is_from_1x_whatever_else_was_evaluated() -> None:
    losses, optimum = {"m": {0.5: 3.0, 1: 2.7, 2: 2.6}}, {0.5: 2.8, 1: 2.5, 2: 2.3}
    table = optimum_by_ev(rows(losses, optimum), ["m"]).set_index("Model")
    assert table.loc["m", "Gain captured (ev=2)"] == pytest.approx(0.5)
    assert [column for column in table if column.startswith("Gain")] == ["Gain captured (ev=2)"]
    without = optimum_by_ev(rows({"m": {2: 2.6, 4: 2.5}}, {2: 2.3, 4: 2.0}), ["m"])
    assert not [column for column in without if column.startswith("Gain")]


def test_a_model_below_the_optimum_is_told_in_bold() -> None:
    made = rows({"RoPE": {1: 2.6, 4: 1.9}, "ALiBi": {1: 2.6, 4: 2.5}}, {1: 2.5, 4: 2.0})
    losses = pd.DataFrame({"Model": ["RoPE", "ALiBi"]})
    ends = {"RoPE": Interval(-0.1, -0.11, -0.09, 40), "ALiBi": Interval(0.5, 0.49, 0.51, 40)}
    compared = [
        Comparison("windows", 4.0, model, OPTIMUM, found, "documents", (0,), these_runs=found, p=p, one_run=True)
        for (model, found), p in zip(ends.items(), (0.03, 0.01), strict=True)
    ]
    data = ReportData(rows={"windows": made}, losses={"windows": losses}, compared=compared)
    assert Optimum.subjects(data) == ["windows"]
    part = Optimum.part(data, "windows")
    (strong,) = [block for block in part.blocks if isinstance(block, Text) and block.strong]
    assert strong.markdown().startswith("**RoPE is below the optimum at 4x. ")
    table, said = (block.markdown() for block in part.blocks[-2:])
    assert table.splitlines()[2] == r"| RoPE | -0.100 [-0.110, -0.090] \* | 1 |"
    assert "Holm's correction for the number of comparisons in this table, 2." in said
    assert "another seed may give another order" in said
    assert list(part.files) == ["optimum_by_ev.parquet"]
