"""report --leaderboard: the ranks, and where they have no interval."""

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.reports.page import Table
from extrapolate.reports.sections.leaderboard import Leaderboard

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture
def models(write_run, tmp_path):
    """Writes runs of models: name -> what is added to the loss at 2x, and its seed."""

    def write(added, seed=None):
        for name, nats in added.items():

            def change(row, name=name, nats=nats):
                if row["extension"] != "as-trained":
                    return None
                at_2x = {} if row["factor"] == 1 else {"loss": None if nats is None else row["loss"] + nats}
                own = {} if seed is None else {"seed": seed[name]}
                return row | at_2x | own | {"run": f"run-{name}", "model": name, "config_hash": name}

            write_run(tmp_path / "ckpt" / f"run-{name}", change)
        return tmp_path / "ckpt"

    return write


def test_a_rank_and_its_interval_at_each_length(cli, models, tmp_path):
    models({"B": 0.05, "A": 0.1, "C": 0.05, "D": None})
    ended = cli("report", "ckpt", "--leaderboard").succeeded()
    table = pd.read_parquet(tmp_path / "report/leaderboard.parquet")
    assert list(table.columns) == [column.name for column in Leaderboard.tables[0].columns]
    at_2x = table[(table["factor"] == 2) & (table["protocol"] == "windows")].set_index("model")
    assert at_2x.index.to_list() == ["B", "C", "A"]
    assert at_2x["rank"].to_list() == [1, 1, 3]
    assert at_2x[["low", "high"]].to_numpy().tolist() == [[1, 2], [1, 2], [3, 3]]
    assert set(at_2x["models"]) == {3}
    assert at_2x["runs"].to_list() == ["run-B", "run-C", "run-A"]
    at_1x = table[(table["factor"] == 1) & (table["protocol"] == "windows")]
    assert set(at_1x["low"]) == {1}
    assert set(at_1x["high"]) == {4}
    assert "windows, rank by loss at each length, with its 95 % interval" in ended.out
    assert "3 [3, 3]" in ended.out
    page = (tmp_path / "report/report.md").read_text()
    assert "| D | 1 [1, 4] | n/a | 1 |" in page
    assert "another seed may give another order" in page
    assert "extrapolate report ckpt --leaderboard" in page


def test_a_model_without_a_loss_at_any_length_is_named(models, tmp_path):
    folder = models({"A": 0.1, "B": 0.0, "C": None})
    for name in "ABC":
        evals = folder / f"run-{name}/evals.parquet"
        results.change(evals, results.EVALS, lambda row: row if row["factor"] == 2 else None)
    xt.report(folder, tmp_path / "report", leaderboard=True)
    assert "and so not ranked: C." in (tmp_path / "report/report.md").read_text()


def test_models_that_share_no_seed_have_ranks_without_intervals(models, tmp_path):
    written = xt.report(models({"A": 0.1, "B": 0.0}, {"A": 0, "B": 1}), tmp_path / "report", leaderboard=True)
    table = pd.read_parquet(tmp_path / "report/leaderboard.parquet")
    assert table["low"].isna().all()
    assert table[table["factor"] == 2]["rank"].to_list() == [1, 2, 1, 2]
    shown = next(one for one in written.shown if "rank" in one.title)
    assert isinstance(shown, Table)
    assert shown.frame["ev=2"].to_list() == ["1", "2"]
    assert "A rank without an interval has fewer than 10 clusters" in (tmp_path / "report/report.md").read_text()
