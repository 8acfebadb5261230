"""What charts are described by: the colours and texts of maps, and averages."""

import math

import pandas as pd

from extrapolate.reports.chart import Chart, Heat, differences
from extrapolate.reports.traces import figure

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
