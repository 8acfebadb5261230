"""A study that searches for its learning rates, from its file to its report."""

from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.studies.status import status_of

AXES = '[axes]\nencoding = ["rope"]\nlr = {from = 1e-6, factor = 3}\n'


@pytest.mark.usefixtures("elsewhere")
def test_it_goes_on_to_its_bound_and_says_so(small) -> None:
    """So low that each rate is better than the one below it."""
    study, out = small(AXES), Path("out")
    done = xt.sweep(study, out, engine="ray")
    tried = [3.33e-07, 1e-06, 3e-06, 9e-06, 2.7e-05]
    table = pd.read_parquet(out / "learning_rates.parquet")
    assert table["Learning rate"].tolist() == tried
    assert table["Taken"].tolist() == ["", "", "", "", "yes, the highest tried"]
    assert [run.name for run in done.runs] == ["rope-lr2.7e-05-s0"]
    (report,) = done.reports.values()
    sentence = "The learning rate is the highest that was tried for rope: a better one may exist."
    assert report.answer.endswith(sentence)
    page = (out / "report" / "report.md").read_text()
    assert page.count(sentence) == 2  # in the answer, and above the table
    shown = {one.cell: one.status for one in status_of(out)}
    assert shown == {f"rope-lr{rate}-s0": "passed over" for rate in tried[:-1]} | {"rope-lr2.7e-05-s0": "done"}
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert xt.sweep(study, out, engine="ray").learning_rates.equals(done.learning_rates)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == weights


def test_what_is_not_tried_yet_is_no_cell_that_is_left(small) -> None:
    folder = small(AXES).parent
    assert [one.cell for one in status_of(folder)] == [f"rope-lr{rate}-s0" for rate in ("3.33e-07", "1e-06", "3e-06")]
