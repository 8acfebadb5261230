"""Whether an answer still changes: hand-made differences, and a model that is really trained."""

from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.reports.sections.doubling import DOUBLINGS, MATTERS, Doubling, shown, still_moving
from extrapolate.statistics.comparison import CONTROL, Comparison
from extrapolate.statistics.intervals import Interval


def doubling(now: float, change: float, error: float = 0.01, model: str = "ExPE", other: str = "RoPE") -> Doubling:
    def compared(mean: float) -> Comparison:
        found = Interval(mean, mean - 2 * error, mean + 2 * error, 40)
        return Comparison("fixed-target", 16.0, model, other, found, "documents", (0, 1, 2))

    return Doubling(compared(now), compared(change), 500_000, 1_000_000)


@pytest.mark.parametrize(
    ("now", "change", "error", "moving"),
    [
        (-0.80, -0.30, 0.01, True),  # more than a third of the difference
        (-0.80, -0.25, 0.01, False),
        (-0.80, +0.30, 0.01, True),  # in the other direction
        (-0.80, -0.30, 0.20, False),  # perhaps by chance
        (0.01, -0.05, 0.01, True),  # undecided now
        (0.004, 0.006, 0.001, False),  # both too small to matter
        (0.0, MATTERS, 0.001, True),
        (float("inf"), float("inf"), 0.01, False),
    ],
)
def test_a_change_tells_if_it_is_sure_and_large_for_its_difference(
    now: float, change: float, error: float, moving: bool
) -> None:
    assert bool(doubling(now, change, error).moving) is moving


def test_the_sentence_names_the_largest_change() -> None:
    settled = doubling(-0.8, -0.1)
    assert still_moving([]) == still_moving([settled]) == ""
    assert still_moving([settled, doubling(-0.82, -0.3)]) == (
        "This answer still changes with more training: from 500,000 to 1,000,000 tokens, ExPE's loss at 16x minus "
        "RoPE's went from -0.52 to -0.82 nats."
    )
    rise = doubling(0.44, 0.31, model="RoPE", other=CONTROL)
    assert still_moving([doubling(-0.82, -0.3), rise, settled]) == (
        "This answer still changes with more training: from 500,000 to 1,000,000 tokens, RoPE's loss at 16x minus its "
        "control's went from +0.13 to +0.44 nats; 1 of the 2 other differences still changes, too."
    )
    none = {"Rise": "", "Rise, change": "", "Minus RoPE": "", "Minus RoPE, change": ""}
    assert shown([rise, settled]).to_dict("records") == [
        none | {"Model": "RoPE", "Rise": "+0.440", "Rise, change": "+0.310 [+0.290, +0.330] still changes"},
        none | {"Model": "ExPE", "Minus RoPE": "-0.800", "Minus RoPE, change": "-0.100 [-0.120, -0.080]"},
    ]


@pytest.mark.usefixtures("without_pictures")
def test_a_trained_model_is_compared_with_its_half(store: Path, tmp_path: Path) -> None:
    """By default: the half is kept, evaluated by fixed-target, and in the report."""
    sizes = dict(width=16, layers=1, heads=1, seq_len=16, batch_tokens=64, tokens=200 * 64)
    runs = [xt.train(pe, data=store, out=tmp_path / f"ckpt/{pe}", **sizes) for pe in ("rope", "alibi")]
    table = xt.evaluate(runs, factors=(1, 2), max_targets=1024)
    steps = table.groupby("protocol")["step"].unique().map(sorted).to_dict()
    assert steps == {"windows": [200], "fixed-target": [100, 200]}
    assert table["annealed"].all()
    xt.report(tmp_path / "ckpt", tmp_path / "report")
    made = pd.read_parquet(tmp_path / "report/doublings.fixed-target.parquet")
    assert set(made) == {column.name for column in DOUBLINGS.columns}
    made = made.set_index(["model", "other"])
    loss = table[(table["protocol"] == "fixed-target") & (table["factor"] == 2)].set_index(["model", "step"])["loss"]
    first = made.index[0][1]
    other = ({"RoPE", "ALiBi"} - {first}).pop()
    now, before = (loss[other, step] - loss[first, step] for step in (200, 100))
    found = made.loc[other, first]
    assert found["difference"] == pytest.approx(now)
    assert found["change"] == pytest.approx(now - before)
    assert found[["half_tokens", "tokens"]].tolist() == [6400, 12800]
    last = xt.evaluate(tmp_path / "ckpt/rope", factors=(1, 2), protocols="windows", max_targets=1024)
    assert set(last["step"]) == {200}
