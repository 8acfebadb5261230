"""The table of losses as people read it."""

import pandas as pd
import pytest


@pytest.mark.parametrize("known", [True, False])
def test_a_column_of_times_that_nobody_knows_is_not_shown(cli, write_run, tmp_path, known: bool) -> None:
    folder = write_run(tmp_path / "runs", lambda row: row if known else row | {"training_seconds": None})
    report = tmp_path / "report"
    printed = cli("report", folder, "--out", report).succeeded().out
    assert ("Training" in printed) == known
    assert ("Training time |" in (report / "report.md").read_text()) == known
    assert ("Training time &" in (report / "loss_by_ev.tex").read_text()) == known
    assert pd.read_parquet(report / "loss_by_ev.parquet")["Training time"].notna().all() == known
