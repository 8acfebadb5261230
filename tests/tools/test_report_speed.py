"""The runs that tools/report_speed.py makes are runs that a report takes."""

import importlib.util
from pathlib import Path

from extrapolate.reports.gather import gather

SCRIPT = Path(__file__).parents[2] / "tools" / "report_speed.py"
RUN = Path(__file__).parents[1] / "fixtures/rope"


def test_relabelled_runs_have_six_models_each_with_all_their_documents(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("tools_report_speed", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    count = 0
    for at in range(2):
        (tmp_path / f"e{at}").mkdir()
        count += tool.relabelled(RUN, at, tmp_path / f"e{at}", "windows")
    made = gather([tmp_path])
    assert len({row["model"] for row in made.evals()}) == 12
    documents = made.documents().to_pandas()
    assert len(documents) == count
    assert documents.groupby(["run", "model", "factor"], observed=True)["n_targets"].sum().nunique() == 1
