"""What the charts of sections are made of."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from extrapolate.reports import styles
from extrapolate.reports.chart import Chart, Heat, Series
from extrapolate.reports.sections import inspection, losses, positions
from extrapolate.statistics.comparison import CONTROL, Comparison
from extrapolate.statistics.intervals import Interval
from extrapolate.statistics.positions import Failure


def rows_of(count: int, factors: int = 3) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": f"m{at}", "run": f"m{at}", "extension": "as-trained", "factor": 2.0**far, "seq_len": 64,
                "loss": 4.0 + 0.1 * at + 0.05 * far, "control_loss": 4.0,
            }
            for at in range(count)
            for far in range(factors)
        ]
    )  # fmt: skip


def style_of(rows: pd.DataFrame) -> dict[str, styles.Style]:
    return styles.styles(rows, list(dict.fromkeys(rows["model"])))


def lines_of(chart: Chart) -> list[Series]:
    """The series of a chart with one panel."""
    (panel,) = chart.panels
    return [replace(one, x=list(one.x), y=list(one.y)) for one in panel.series]


def losses_chart(rows: pd.DataFrame, against: Sequence[Comparison] = ()) -> Chart:
    return losses.chart(rows, style_of(rows), against, "title", "a.png")


def test_losses_have_the_difference_to_the_control_and_every_seed() -> None:
    rows = rows_of(2)
    rows = pd.concat([rows, rows[rows["model"] == "m1"].assign(run="m1-s1", loss=[4.3, 4.35, math.inf])])
    against = [Comparison("windows", 2.0, "m0", CONTROL, Interval(0.05, 0.03, 0.07, 40), "documents", ())]
    first, *seeds, mean = [line for line in lines_of(losses_chart(rows, against)) if line.name[0] == "m"]
    assert first.y == pytest.approx([4.0, 4.05, 4.1])
    assert first.texts == ["", ", against its control +0.050 [+0.030, +0.070]", ""]
    assert [line.kind for line in seeds] == ["thin", "thin"]
    assert [line.y for line in seeds] == [pytest.approx([4.1, 4.15, 4.2]), [4.3, 4.35, math.inf]]
    assert mean.y == pytest.approx([4.2, 4.25, math.inf])
    band = mean.band()
    assert list(band["x"]) == [1, 2]  # at 4x a seed is infinite
    assert band.loc[0, ["low", "high"]].tolist() == pytest.approx([4.2 - 12.706 * 0.1, 4.2 + 12.706 * 0.1], abs=1e-3)


def test_failure_lengths_are_crosses_on_the_lines() -> None:
    curves = pd.concat(
        rows_of(2, 1).assign(
            position=position, bucket=32, factor=4.0, length=256, windows="4x", difference=0.1, low=0.0, high=math.nan
        )
        for position in (0, 32, 64, 96)
    ).reset_index(drop=True)
    found = [
        Failure("m0", "4x", 4.0, 256, 96, None, 40, "documents", 1),
        Failure("m1", "4x", 4.0, 256, None, 256, 40, "", 1),
    ]
    drawn = positions.Curves(curves, found, ["m0", "m1"], style_of(curves), 64)
    for chart in (drawn.losses("a.png"), drawn.differences("a.png")):
        made = lines_of(chart)
        (cross,) = [line for line in made if line.kind == "crosses"]
        assert (cross.name, cross.x, cross.texts) == ("m0", [1.75], [", fails from 96 tokens on"])


def inspected() -> pd.DataFrame:
    """Rows of `inspections.parquet`: attention by distance and norms by frequency, in two layers of two heads."""
    common = {"seq_len": 64, "error": math.nan}
    rows = [
        common | {
            "factor": factor, "measurement": measurement, "quantity": quantity, "layer": layer, "head": head, "at": at,
            "value": factor + layer + 0.2 * head + at,
        }
        for factor in (1.0, 4.0)
        for measurement, quantity in (("attention", "mass"), ("frequencies", "query_norm"), ("frequencies", "key_norm"))
        for layer in (0, 1)
        for head in (0, 1)
        for at in (0.0, 1.0, 2.0)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_attention_by_distance_is_a_mean_over_layers_and_heads() -> None:
    made = inspection.curves(inspected(), "a.png")
    near, far = lines_of(made)
    assert (near.name, far.name) == ("1x", "4x")
    assert near.x == [0, 1, 2]
    assert near.y == pytest.approx([1.6, 2.6, 3.6])
    assert far.y == pytest.approx([4.6, 5.6, 6.6])
    assert [*made.panels[0].x.ticks] == [0, 1, 2]


def test_norms_are_means_over_heads_at_the_shortest_length() -> None:
    map_ = inspection.norms(inspected(), "a.png").panels
    assert isinstance(map_, Heat)
    assert map_.rows == ["queries, layer 0", "queries, layer 1", "keys, layer 0", "keys, layer 1"]
    assert map_.values_RC[1] == pytest.approx([2.1, 3.1, 4.1])
    assert map_.columns == ["0", "1", "2"]
    assert map_.most == pytest.approx(4.1)
