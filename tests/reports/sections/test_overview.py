"""The table at the top of the page, from rows made by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports import styles
from extrapolate.reports.page import Beside, Cell, Details, Grid, Switch, Text, markdown
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.overview import Overview
from extrapolate.statistics.comparison import comparisons, with_best
from extrapolate.statistics.sums import settings

FACTORS = (1.0, 4.0)


def documents(losses: dict[str, dict[int, tuple[float, ...]]], protocol: str = "windows") -> pd.DataFrame:
    """model -> seed -> its loss at each factor: 40 documents, which differ far more than the models do."""
    made = []
    for at, (model, seeds) in enumerate(losses.items()):
        for seed, each in seeds.items():
            for factor, loss in zip(FACTORS, each, strict=True):
                own = np.random.default_rng(0).normal(0, 0.5, 40)
                noise = np.random.default_rng([at, seed]).normal(0, 0.02, 40)
                effects = loss + own - own.mean() + noise - noise.mean()
                made += [
                    {
                        "protocol": protocol, "factor": factor, "targets_hash": "t", "model": model, "seed": seed,
                        "run": f"{model}-{seed}", "document": str(n), "block": 0, "n_targets": 100, "loss": effects[n],
                        "control_loss": 5.0 + own[n] - own.mean(), "optimum_loss": None,
                    }
                    for n in range(40)
                ]  # fmt: skip
    return pd.DataFrame(made).astype({"seed": "Int64"})


def shown(
    losses: dict[str, dict[int, tuple[float, ...]]], lossless: bool = True, protocol: str = "windows"
) -> tuple[dict[str, Grid | Text], str]:
    """What the section shows by unit, and the words below it."""
    by_document = documents(losses, protocol)
    by = ["model", "factor", "seed", "run"]
    rows = by_document.groupby(by, as_index=False)[["loss", "control_loss"]].mean()
    rows = rows.assign(extension="as-trained", seq_len=64, protocol=protocol, n_targets=4000, n_documents=40)
    rows = rows.assign(tokens=1000, imported=None)
    rows["bits_per_byte"] = rows["loss"] / 2 if lossless else math.nan
    rows["n_bytes"] = 1.0 if lossless else math.nan
    part = Overview.part(
        ReportData(
            rows={protocol: rows},
            losses={protocol: pd.DataFrame({"Model": list(losses)})},
            documents=by_document,
            compared=tuple(comparisons(by_document, pairs=False)),
            styles=styles.styles(rows, list(losses)),
            sums=settings(by_document),
        ),
        "losses",
    )
    (beside,) = part.blocks
    assert isinstance(beside, Beside)
    switch, how = beside.right
    assert isinstance(switch, Switch)
    assert isinstance(how, Details)
    assert "![loss against length](loss_by_ev" in markdown(part.blocks)
    words = [block.text for block in how.blocks if isinstance(block, Text)]
    return {unit: view for unit, (view,) in switch.views.items()}, " ".join(words)


def cell(grid: Grid, model: str, factor: float) -> Cell:
    (row,) = [row for row in grid.rows if row[0].text == model]
    return row[1 + FACTORS.index(factor)]


MODELS = {
    "A": {0: (4.0, 4.5), 1: (4.0, 4.5)},
    "B": {0: (4.3, 4.4), 1: (4.3, 4.4)},
    "C": {0: (3.9, 4.0), 1: (4.102, 4.82)},  # its mean is never the best, and its seeds do not agree
}


@pytest.fixture(scope="module")
def grids() -> dict[str, Grid]:
    """The tables of MODELS, by unit."""
    return {unit: view for unit, view in shown(MODELS)[0].items() if isinstance(view, Grid)}


def test_the_best_of_each_length_is_marked_and_what_is_not_surely_worse(grids: dict[str, Grid]) -> None:
    kinds = {(model, factor): cell(grids["loss"], model, factor).kind for model in MODELS for factor in FACTORS}
    assert kinds == {
        ("A", 1.0): "best", ("B", 1.0): "", ("C", 1.0): "undecided",
        ("A", 4.0): "", ("B", 4.0): "best", ("C", 4.0): "undecided",
    }  # fmt: skip
    for unit in ("perplexity", "bits per byte"):
        assert cell(grids[unit], "A", 1.0).kind == "best"


def test_the_units_the_notes_and_the_colours(grids: dict[str, Grid]) -> None:
    values = {unit: cell(grid, "A", 4.0).value for unit, grid in grids.items()}
    assert values == pytest.approx(
        {"loss": 4.5, "perplexity": math.exp(4.5), "bits per byte": 2.25, "difference to the control": -0.5}
    )
    assert cell(grids["perplexity"], "A", 4.0).text == "90.02"
    note = cell(grids["loss"], "C", 1.0).note.splitlines()
    assert note[:2] == ["by seed: 3.900, 4.102", "worst seed: 4.102"]
    to_best = next(one for one in with_best(settings(documents(MODELS))) if (one.model, one.factor) == ("C", 1.0))
    assert to_best.other == "A"
    assert note[3] == f"to the best: {to_best.difference.text()}"
    assert cell(grids["perplexity"], "C", 1.0).note == ""  # the intervals are of losses
    # The lowest at the longest length comes first, and red is what is above 1x.
    assert [row[0].text for row in grids["loss"].rows] == ["B", "C", "A"]
    for model, factor, harm in (("A", 1.0, 0), ("A", 4.0, 0.25), ("B", 4.0, 0.05)):
        assert cell(grids["loss"], model, factor).harm == pytest.approx(harm)


def test_the_rank_at_the_longest_length_and_its_interval(grids: dict[str, Grid]) -> None:
    assert grids["loss"].columns[-1] == "rank at 4x"
    ranks = {row[0].text: (row[-1].text, row[-1].value) for row in grids["loss"].rows}
    assert ranks == {"B": ("1 [1, 2]", 1), "C": ("2 [1, 2]", 2), "A": ("3 [3, 3]", 3)}
    other_seeds, _ = shown({"A": {0: (4.0, 4.5)}, "B": {1: (4.3, 4.4)}, "ends": {0: (4.0, math.nan)}})
    assert [row[-1].text for row in other_seeds["perplexity"].rows] == ["1", "2", "n/a"]
    assert shown({"A": {0: (4.0, 4.5)}})[0]["loss"].columns[-1] == "4x", "a model alone has no rank"


def test_with_one_seed_it_is_about_this_run() -> None:
    grids, said = shown({"A": {0: (4.0, 4.5)}, "B": {0: (4.3, 4.4)}})
    assert "? and ranks are about these runs" in said
    assert cell(grids["loss"], "A", 4.0).kind == ""
    assert cell(grids["loss"], "A", 1.0).note.startswith("1 seed")
    assert "about these runs" not in shown({"A": dict.fromkeys(range(3), (4.0, 4.5))})[1]


def test_what_has_no_loss_has_no_mark_and_what_is_infinite_is_never_the_best() -> None:
    grids, _ = shown({"A": {0: (4.0, math.inf), 1: (4.0, math.inf)}, "B": {0: (4.3, 4.4), 1: (4.3, 4.4)}})
    assert cell(grids["loss"], "A", 4.0).kind == ""
    assert cell(grids["loss"], "A", 4.0).text == "inf"
    assert cell(grids["loss"], "B", 4.0).kind == "best"


def test_a_model_holds_to_where_it_is_surely_not_above_its_control() -> None:
    same, above = {0: (5.0, 5.0), 1: (5.0, 5.0)}, {0: (5.0, 5.5), 1: (5.0, 5.5)}
    grids, said = shown({"holds": same, "fails": above}, protocol="fixed-target")
    assert {row[0].text: (row[-1].text, row[-1].kind) for row in grids["loss"].rows} == {
        "holds": ("4x", "good"), "fails": ("1x", "")
    }  # fmt: skip
    assert "A model loses less than 0.01 nats up to a length" in said
    assert grids["loss"].columns[-1] == "loses < 0.01 up to"
    assert shown({"holds": same})[0]["loss"].columns[-1] == "4x"  # its windows begin without context
