"""What extensions change, from rows made by hand and of real runs."""

from pathlib import Path

import pandas as pd
import pytest

from extrapolate import results
from extrapolate.reports.sections.extensions import Extensions, against_plain


def rows_of(losses: dict[tuple[str, str, int], list[float | None]]) -> pd.DataFrame:
    """Rows of `evals.parquet`: model, extension and seed, and the losses at 1x and 4x."""
    return pd.DataFrame(
        [
            {
                "model": model, "extension": extension, "run": f"{model.split()[0]}-{seed}", "seed": seed,
                "factor": factor, "loss": loss,
            }
            for (model, extension, seed), both in losses.items()
            for factor, loss in zip((1.0, 4.0), both, strict=True)
        ]
    ).astype({"loss": float})  # fmt: skip


def test_differences_are_of_the_same_run_and_say_where_an_extension_helps() -> None:
    rows = rows_of(
        {
            ("RoPE", "as-trained", 0): [4.0, 5.0], ("RoPE", "as-trained", 1): [4.2, 5.4],
            ("RoPE + YaRN", "yarn", 0): [4.1, 4.5], ("RoPE + YaRN", "yarn", 1): [4.2, 4.5],
            ("RoPE + PI", "pi", 0): [4.0, None], ("RoPE + PI", "pi", 1): [4.2, 5.0],
            ("ALiBi", "as-trained", 0): [4.0, 4.0], ("ExPE + PI", "pi", 0): [4.0, 4.0],
        }
    )  # fmt: skip
    table = against_plain(rows, ["RoPE", "RoPE + YaRN", "RoPE + PI", "ALiBi"]).set_index("Model")
    assert list(table.index) == ["RoPE + YaRN", "RoPE + PI"]  # without a plain run there is nothing to compare with
    assert table.loc["RoPE + YaRN", "Difference (ev=1)"] == pytest.approx(0.05)
    assert table.loc["RoPE + YaRN", "Difference (ev=4)"] == pytest.approx(-0.7)
    assert table.loc["RoPE + YaRN", ["As trained", "Helps at", "Harms at", "Seeds"]].tolist() == ["RoPE", "4x", "1x", 2]
    assert pd.isna(table.loc["RoPE + PI", "Difference (ev=4)"])  # one seed has no loss there
    assert table.loc["RoPE + PI", ["Helps at", "Harms at"]].tolist() == ["none", "none"]


def test_a_report_on_real_runs(cli, ckpt: Path, without_pictures: None, tmp_path: Path) -> None:
    few = ["--factors", "1,4", "--max-targets", 512, "--protocol", "windows"]
    cli("eval-lengths", "ckpt/rope", *few, "--extend", "pi:factor=2").succeeded()
    cli("report", "ckpt").succeeded()
    table = results.read_frame(tmp_path / "report/extensions.parquet")
    evals = pd.DataFrame(results.read(ckpt / "rope/evals.parquet", results.EVALS)).set_index(["extension", "factor"])
    for factor in (1.0, 4.0):
        difference = evals.loc[("pi:factor=2", factor), "loss"] - evals.loc[("as-trained", factor), "loss"]
        assert table[f"Difference (ev={factor:g})"].tolist() == [pytest.approx(difference)]
    columns = [column.name for column in Extensions.tables[0].columns]
    assert list(table.columns) == [*columns[:2], "Difference (ev=1)", "Difference (ev=4)", *columns[3:]]
    page = (tmp_path / "report/report.md").read_text()
    assert "![the change of the loss by extension and length](extensions.png)" in page
    assert "## Cost and loss, protocol windows" in page
    cost = results.read_frame(tmp_path / "report/cost.parquet").set_index("Model")
    assert cost.loc["RoPE", "Training seconds"] == evals["training_seconds"].iloc[0]
    assert cost.loc["RoPE + PI(2)", "Evaluation MiB (ev=4)"] == evals.loc[("pi:factor=2", 4.0), "peak_mib"]
