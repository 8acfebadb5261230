"""tools/budget.py makes a page from kept rows; and reports on them say whether their answers still change."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow.parquet as pq
import pytest

import extrapolate as xt
from extrapolate.statistics.comparison import Comparison
from extrapolate.statistics.intervals import Interval

KEPT = Path(__file__).parents[2] / "docs/results/budget"


@pytest.fixture
def budget(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("budget")


def compared(model: str, other: str, mean: float, factor: float = 16) -> Comparison:
    found = Interval(mean, mean - 0.1, mean + 0.1, 40)
    return Comparison("fixed-target", factor, model, other, found, "documents", (0,))


def test_verdicts_are_kept_reversed_or_changed(budget: ModuleType) -> None:
    models = budget.MODELS[:3]
    pairs = [(models[1], models[0]), (models[2], models[0]), (models[2], models[1])]
    at_4 = [compared(*pair, -0.5, 4) for pair in pairs]
    first = at_4 + [compared(*pair, mean) for pair, mean in zip(pairs, (-0.5, 0.5, 0.0), strict=True)]
    then = at_4 + [compared(*pair, mean) for pair, mean in zip(pairs, (-0.2, -0.5, 0.5), strict=True)]
    table = budget.verdicts({1.0: first, 2.0: then, 12.0: then[:1]})  # of 12 million there are too few models
    assert table["Million tokens"].tolist() == ["1 to 2"] * 2
    assert table.loc[0, ["Kept", "Reversed", "Changed", "Not kept"]].tolist() == ["3", "0", "0", ""]
    assert table.loc[1, ["Kept", "Reversed", "Changed"]].tolist() == ["1", "1", "1"]
    assert table.loc[1, "Not kept"] == f"{models[0]}, {models[2]}; {models[1]}, {models[2]}"


def test_half_of_a_longer_run_is_no_run_of_that_budget(budget: ModuleType) -> None:
    row = {"model": "RoPE", "seed": 0, "protocol": "fixed-target"}
    rows = pd.DataFrame(
        row | {"run": run, "step": step, "millions": millions, "factor": factor, "loss": loss}
        for run, step, millions, loss in (
            ("long", 5, 1.0, 4.25),
            ("long", 10, 2.0, 4.0),
            ("own", 5, 1.0, 4.5),
            ("longer", 5, 1.0, 4.9),
            ("longer", 20, 4.0, 3.8),
        )
        for factor in (1.0, 4.0, 16.0)
    )
    every = budget.Rows(rows, rows, rows)
    assert budget.budgets(every) == [1.0, 2.0, 4.0]
    assert set(budget.of_budget(every, 1.0).losses["run"]) == {"own"}
    found = budget.branches(every)
    assert found[["Model", "Million tokens", "1x", "16x"]].values.tolist() == [["RoPE", "1.0", "-0.250", "-0.250"]]


def test_the_page_in_docs_is_made_from_the_kept_rows(budget: ModuleType, tmp_path: Path) -> None:
    page = (budget.RESULTS / "budget.md").read_text(encoding="utf-8")
    assert budget.page(budget.all_rows(), tmp_path / "drawn.png") == page
    assert (tmp_path / "drawn.png").stat().st_size


def answer_on(folder: Path, budget: str, *models: str) -> str:
    """The answer of a report on the kept rows of a budget, of all models or some."""
    folder.mkdir()
    for path in KEPT.glob("*.parquet"):
        every = set(pq.read_table(path, columns=["run"])["run"].to_pylist())
        names = {name for name in every if budget in name and (not models or name.startswith(models))}
        if names:
            pq.write_table(pq.read_table(path, filters=[("run", "in", names)]), folder / path.name)
    return xt.report(folder, folder / "report").answer


def test_a_report_on_runs_that_stopped_too_early_says_so_first(tmp_path: Path) -> None:
    """After 2 million tokens, ExPE has just passed RoPE at 16x."""
    said = answer_on(tmp_path / "kept", "-tokens2000000-")
    assert said.startswith(
        "This answer still changes with more training: from 999,424 to 1,998,848 tokens, ExPE's loss"
    )


def test_a_report_on_enough_tokens_does_not(tmp_path: Path) -> None:
    """After 4 million tokens, half of them would have given the same answer."""
    said = answer_on(tmp_path / "kept", "-tokens4000000-", "rope-", "stick-breaking-")
    assert said.startswith("In these runs, Stick-breaking is better than RoPE by 0.97 nats")
    assert "still changes" not in said
