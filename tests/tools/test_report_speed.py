"""The runs that tools/report_speed.py makes are runs that a report takes."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from extrapolate.reports.load_tables import load_tables

RUN = Path(__file__).parents[1] / "fixtures/rope"


def test_relabelled_runs_have_six_models_each_with_all_their_documents(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    tool = load("report_speed")
    count = 0
    for at in range(2):
        (tmp_path / f"e{at}").mkdir()
        count += tool.relabelled(RUN, at, tmp_path / f"e{at}", "windows")
    made = load_tables([tmp_path])
    assert len({row["model"] for row in made.evals()}) == 12
    documents = made.documents().to_pandas()
    assert len(documents) == count
    assert documents.groupby(["run", "model", "factor"], observed=True)["n_targets"].sum().nunique() == 1
