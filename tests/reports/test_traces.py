"""What charts are made of: numbers as JSON has them, and lines in the styles of the pictures."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import styles, traces
from extrapolate.reports.chart import Axis, Chart, Heat, Panel, Series, differences
from extrapolate.reports.sections import checkpoints, inspection, losses, positions, training
from extrapolate.reports.traces import Plot, figure
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


def lines_of(chart: Chart) -> list[dict[str, Any]]:
    """The traces, as a browser reads them."""
    found: list[dict[str, Any]] = json.loads(json.dumps(figure(chart), allow_nan=False))["traces"]
    return found


def losses_chart(rows: pd.DataFrame, against: Sequence[Comparison] = ()) -> Chart:
    return losses.chart(rows, style_of(rows), against, "title", "a.png")


def test_numbers_are_those_of_json() -> None:
    found = traces.numbers([1.0, 2.123456, math.nan, math.inf, -math.inf, None, 4_096_000, 1e300])
    assert json.dumps(found, allow_nan=False) == "[1, 2.1235, null, null, null, null, 4096000, null]"


@pytest.mark.parametrize(("x", "even"), [([0.25, 0.75, 1.25, 1.75], True), ([0.25, 0.75, 1.25, 1.8], False)])
def test_equal_distances_are_written_once(x: list[float], even: bool) -> None:
    (line,) = lines_of(Chart("text", "a.png", [Panel([Series("a", x, [1, 2, 3, 4])], Axis())]))
    assert (line.get("x0"), line.get("dx"), line.get("x")) == ((0.25, 0.5, None) if even else (None, None, x))


def test_losses_have_the_difference_to_the_control_and_every_seed() -> None:
    rows = rows_of(2)
    rows = pd.concat([rows, rows[rows["model"] == "m1"].assign(run="m1-s1", loss=[4.3, 4.35, math.inf])])
    against = [Comparison("windows", 2.0, "m0", CONTROL, Interval(0.05, 0.03, 0.07, 40), "documents", ())]
    low, high, first, *seeds, mean = [line for line in lines_of(losses_chart(rows, against)) if line["name"][0] == "m"]
    assert first["y"] == [4.0, 4.05, 4.1]
    assert first["text"] == ["", ", against its control +0.050 [+0.030, +0.070]", ""]
    assert [line["y"] for line in seeds] == [[4.1, 4.15, 4.2], [4.3, 4.35, None]]
    assert mean["y"] == [4.2, 4.25, None]
    assert (low["x"], high["fill"]) == ([1, 2], "tonexty")  # at 4x a seed is infinite
    assert [low["y"][0], high["y"][0]] == pytest.approx([4.2 - 12.706 * 0.1, 4.2 + 12.706 * 0.1], abs=1e-3)
    assert {line["legendgroup"] for line in (*seeds, low, high, mean)} == {"m1"}


def test_lines_that_lie_on_each_other_are_named_in_the_caption() -> None:
    rows = rows_of(4)  # m0 at 4.0, 4.05, 4.1, and each further model 0.1 above
    rows.loc[rows["model"] == "m2", "loss"] = [4.0005, 4.0505, 4.0995]
    rows.loc[rows["model"] == "m3", "loss"] = [4.0, 4.05, 4.11]  # apart at 4x alone
    assert "The lines of m0, m2 lie on each other." in losses_chart(rows).caption
    assert "lie on each other" not in losses_chart(rows[rows["model"] != "m2"]).caption


def test_of_many_models_with_seeds_none_has_a_band() -> None:
    rows = rows_of(9)
    rows = pd.concat([rows, rows.assign(run=rows["run"] + "-s1", loss=rows["loss"] + 0.1)])
    filled = [line for line in lines_of(losses_chart(rows)) if "fill" in line]
    assert filled == []
    few = rows[rows["model"] < "m8"]
    filled = [line for line in lines_of(losses_chart(few)) if "fill" in line]
    assert len(filled) == 8


def test_of_many_models_some_are_grey_behind_the_others() -> None:
    rows = rows_of(30)
    made = lines_of(losses_chart(rows))
    grey = [line for line in made if line.get("showlegend") is False]
    assert [line["name"] for line in grey] == [f"m{at}" for at in range(20, 30)]
    assert made[:10] == grey


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
        (cross,) = [line for line in made if line["mode"] == "markers"]
        assert cross["x"] == [1.75]
        assert cross["name"] == "m0"
        assert cross["text"] == [", fails from 96 tokens on"]


def log(steps: int) -> pd.DataFrame:
    at = np.arange(1, steps + 1)
    return pd.DataFrame({"step": at, "tokens": 1000 * at, "loss": 4 + 1 / at, "tokens_per_s": 2000.0})


def test_training_curves_are_thinned_and_know_their_time() -> None:
    logs = {"m0": [log(2500)], "m1": [log(3).drop(columns="tokens_per_s")]}
    made = training.chart(logs, style_of(rows_of(2)))
    assert figure(made)["kept"] == training.KEPT
    found = lines_of(made)
    for long, short in (found[::2], found[1::2]):  # the steps of each run, and their mean
        assert len(long["x"]) <= traces.MOST_POINTS
        assert long["x"][:2] == [1000, 4000]
        assert long["meta"]["seconds"][:2] == [0.5, 2.0]
        assert short["x"] == [1000, 2000, 3000]
        assert "meta" not in short


def test_the_page_smooths_one_mean_over_seeds_which_ends_with_the_first_of_them() -> None:
    logs = {"m0": [log(4).assign(loss=[5.0, 4.0, 3.0, 2.0]), log(3).assign(loss=[5.4, 4.4, 3.4], tokens_per_s=1000.0)]}
    made = lines_of(training.chart(logs, style_of(rows_of(1))))
    *steps, mean = made
    assert [line["y"] for line in steps] == [[5, 4, 3, 2], [5.4, 4.4, 3.4]]
    assert all(line["hoverinfo"] == "skip" and line["line"]["width"] < 1 for line in steps)
    assert [line["name"] for line in made if line.get("showlegend", True)] == ["m0"]
    assert mean["x"] == [1000, 2000, 3000]
    assert mean["y"] == [5.2, 4.2, 3.2]
    assert mean["meta"]["seconds"] == pytest.approx([0.8, 1.5, 2.2], abs=0.051)


def test_a_large_report_stays_small() -> None:
    """Of 40 runs, 5 lengths and 6 extensions."""
    rows = rows_of(240, 5)
    style, named = style_of(rows), styles.named(style_of(rows), rows)
    curves = pd.concat(
        rows[rows["factor"] == 16.0].assign(
            position=32 * at, bucket=32, length=1024, windows="16x", difference=0.123456, low=0.1, high=0.2
        )
        for at in range(32)
    ).reset_index(drop=True)
    charts = [
        losses_chart(rows),
        positions.Curves(curves, [], named, style, 64).losses("b.png"),
        positions.Curves(curves, [], named, style, 64).differences("b.png"),
        training.chart({f"m{at}": [log(2000)] for at in range(40)}, style),
    ]
    assert sum(len(Plot(chart).html()) for chart in charts) < 900_000


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
    made = figure(inspection.curves(inspected(), "a.png"))
    near, far = made["traces"]
    assert (near["name"], far["name"]) == ("1x", "4x")
    assert near["x"] == [0, 1, 2]
    assert near["y"] == pytest.approx([1.6, 2.6, 3.6])
    assert far["y"] == pytest.approx([4.6, 5.6, 6.6])
    assert made["layout"]["xaxis"]["categoryarray"] == [0, 1, 2]


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
    lengths = figure(replace(made, panels=made.panels[:1]))
    (line,) = lengths["traces"]
    assert (line["x"], line["y"]) == ([1000, 2000, 3000], [96, None, 64])
    assert lengths["layout"]["yaxis"]["range"][0] == 0


def test_of_more_than_two_panels_the_page_shows_the_last_first() -> None:
    panels = [Panel([Series("RoPE", [1.0], [2.0])], Axis(), title=f"{at}x") for at in (1, 2, 4)]
    made = Plot(Chart("text", "a.png", panels)).html()
    assert made.count('<figure class="chart">') == 3
    assert 'value="2" checked><span>4x</span>' in made
    assert Plot(Chart("text", "a.png", panels[:2])).html().count('<figure class="chart">') == 1


def test_what_leaves_the_range_is_counted() -> None:
    lines = [Series("RoPE", [1, 2, 3], [9.0, 4.0, 9.0]), Series("seed", [1], [99.0], kind="reference")]
    chart = Chart("text", "a.png", [Panel(lines, Axis(), Axis(range=(3.0, 5.0)), since=2)])
    note, name = figure(chart)["layout"]["annotations"]
    assert (name["text"], name["y"]) == ("seed", 1)
    assert note["text"].startswith("Off the scale: 1 points")


TABLE = pd.DataFrame({"1x": [0.01, -0.2], "4x": [math.nan, 0.3], "16x": [math.inf, 50.0]})


def test_cells_say_their_numbers_and_what_diverged_does_not_make_the_rest_pale() -> None:
    many = pd.DataFrame({"1x": [0.01 * at for at in range(1, 20)] + [50.0]})
    found = differences("title", many, list("abcdefghijklmnopqrst"))
    assert found.signed
    assert found.most < 0.2
    assert differences("", TABLE, ["a", "b"]).texts() == [["+0.010", "", "+inf"], ["-0.200", "+0.300", "+50.000"]]
    assert Heat("", ["a", "b"], list(TABLE), TABLE.to_numpy(), most=1.0, digits=2).texts()[1][0] == "-0.20"
    assert differences("", TABLE[["4x"]].head(1), ["a"]).most == 1.0  # nothing to colour


def test_the_page_names_rows_and_says_every_cell() -> None:
    made = figure(Chart("text", "a.png", differences("title", TABLE, ["<b>a</b>", "b"])))
    (trace,) = made["traces"]
    assert trace["z"] == [[0.01, None, None], [-0.2, 0.3, 50]]
    assert trace["hovertext"][0] == ["<b>a</b>, 1x: +0.010", "<b>a</b>, 4x: n/a", "<b>a</b>, 16x: +inf"]
    assert made["layout"]["yaxis"]["ticktext"] == ["<b>a</b>", "b"]
