"""What the charts of sections are made of."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import styles
from extrapolate.reports.chart import Chart, Heat, Series, differences
from extrapolate.reports.sections import checkpoints, inspection, losses, positions, training
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


def test_lines_that_lie_on_each_other_are_named_in_the_caption() -> None:
    rows = rows_of(4)  # m0 at 4.0, 4.05, 4.1, and each further model 0.1 above
    rows.loc[rows["model"] == "m2", "loss"] = [4.0005, 4.0505, 4.0995]
    rows.loc[rows["model"] == "m3", "loss"] = [4.0, 4.05, 4.11]  # apart at 4x alone
    assert "The lines of m0, m2 lie on each other." in losses_chart(rows).caption
    assert "lie on each other" not in losses_chart(rows[rows["model"] != "m2"]).caption


def test_of_many_models_with_seeds_none_has_a_band() -> None:
    rows = rows_of(9)
    rows = pd.concat([rows, rows.assign(run=rows["run"] + "-s1", loss=rows["loss"] + 0.1)])
    assert all(line.band().empty for line in lines_of(losses_chart(rows)))
    few = rows[rows["model"] < "m8"]
    assert sum(not line.band().empty for line in lines_of(losses_chart(few))) == 8


def test_of_many_models_some_are_grey() -> None:
    made = lines_of(losses_chart(rows_of(30)))
    grey = [line.name for line in made if line.style is None and not line.is_reference]
    assert grey == [f"m{at}" for at in range(20, 30)]


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


def test_a_training_has_one_mean_over_seeds_which_ends_with_the_first_of_them() -> None:
    def log(*losses: float) -> pd.DataFrame:
        steps = np.arange(1, len(losses) + 1)
        return pd.DataFrame({"step": steps, "tokens": 1000 * steps, "loss": losses, "tokens_per_s": 2000.0})

    made = lines_of(training.chart({"m0": [log(5, 4, 3, 2), log(5.4, 4.4, 3.4)]}, style_of(rows_of(1))))
    *steps, mean = made
    assert [line.kind for line in steps] == ["thin", "thin"]
    assert [line.y for line in steps] == [[5, 4, 3, 2], [5.4, 4.4, 3.4]]
    assert (mean.x, mean.y) == ([1000, 2000, 3000], pytest.approx([5.2, 4.2, 3.2]))


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


def test_failure_lengths_along_the_training_have_gaps_where_none_was_found() -> None:
    rows = pd.concat(rows_of(1).assign(tokens=tokens, step=tokens) for tokens in (1000, 2000, 3000))
    failed = {("m0", 1000): Failure("m0", "up to 4x", 4.0, 256, 96, None, 40, "documents", 1)}
    failed[("m0", 3000)] = Failure("m0", "up to 4x", 4.0, 256, 64, None, 40, "documents", 1)
    table = checkpoints.by_checkpoint(rows.assign(seed=0), ["m0"], failed)
    made = checkpoints.chart(rows, table, style_of(rows), "a.png")
    assert not isinstance(made.panels, Heat)
    (line,) = lines_of(replace(made, panels=made.panels[:1]))
    assert (line.x, line.y) == ([1000, 2000, 3000], pytest.approx([96, math.nan, 64], nan_ok=True))
    assert made.panels[0].y.range[0] == 0


TABLE = pd.DataFrame({"1x": [0.01, -0.2], "4x": [math.nan, 0.3], "16x": [math.inf, 50.0]})


def test_cells_say_their_numbers_and_what_diverged_does_not_make_the_rest_pale() -> None:
    many = pd.DataFrame({"1x": [0.01 * at for at in range(1, 20)] + [50.0]})
    found = differences("title", many, list("abcdefghijklmnopqrst"))
    assert found.signed
    assert found.most < 0.2
    assert differences("", TABLE, ["a", "b"]).texts() == [["+0.010", "", "+inf"], ["-0.200", "+0.300", "+50.000"]]
    assert Heat("", ["a", "b"], list(TABLE), TABLE.to_numpy(), most=1.0, digits=2).texts()[1][0] == "-0.20"
    assert differences("", TABLE[["4x"]].head(1), ["a"]).most == 1.0  # nothing to colour
