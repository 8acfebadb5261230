"""Extrapolation against training tokens: from checkpoints along the way, made by hand and really trained."""

from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.reports.sections.checkpoints import Checkpoints, by_checkpoint, in_words
from extrapolate.reports.sections.extensions import Extensions

NEAR, FAR = "Loss (ev=1)", "Loss (ev=16)"


def rows(losses: dict[str, list[tuple[float, float]]], seeds: int = 1) -> pd.DataFrame:
    """Rows of losses: for each model its losses at 1x and 16x, a checkpoint after each thousand tokens."""
    return pd.DataFrame(
        [
            {
                "run": f"{model}-{seed}", "model": model, "extension": "as-trained", "seed": seed, "factor": factor,
                "tokens": 1000 * (at + 1), "step": at + 1, "loss": loss + 0.2 * seed,
            }
            for model, mine in losses.items()
            for seed in range(seeds)
            for at, both in enumerate(mine)
            for factor, loss in zip((1.0, 16.0), both, strict=True)
        ]
    )  # fmt: skip


RISING = {"RoPE": [(5.0, 5.2), (4.5, 4.9), (4.2, 5.3)], "ALiBi": [(5.1, 5.1), (4.6, 4.6), (4.3, 4.3)]}


def test_how_much_16x_got_worse_while_1x_got_better() -> None:
    said = in_words(by_checkpoint(rows(RISING | {"NoPE": [(5.0, 5.1)]}), [*RISING, "NoPE"], {}), NEAR, FAR)
    assert said == [
        "RoPE: from 1,000 to 3,000 tokens, Loss (ev=1) changed by -0.800 and Loss (ev=16) by +0.100. The latter is "
        "above the former by +0.200 at first, +1.100 at the end. Loss (ev=16) was lowest after 2,000 tokens, and rose "
        "by 0.400 to the end.",
        "ALiBi: from 1,000 to 3,000 tokens, Loss (ev=1) changed by -0.800 and Loss (ev=16) by -0.800. The latter is "
        "above the former by +0.000 at first, +0.000 at the end.",
    ]


def test_a_checkpoint_that_a_seed_lacks_is_left_out() -> None:
    whole = rows(RISING, seeds=2)
    lacking = whole[(whole["run"] != "RoPE-1") | (whole["tokens"] != 2000)]
    table = by_checkpoint(lacking, ["ALiBi", "RoPE"], {})
    assert table[["Model", "Tokens"]].to_numpy().tolist() == [
        ["ALiBi", 1000], ["ALiBi", 2000], ["ALiBi", 3000], ["RoPE", 1000], ["RoPE", 3000],
    ]  # fmt: skip
    assert table[FAR].tolist() == pytest.approx([5.2, 4.7, 4.4, 5.3, 5.4])
    assert set(table["Seeds"]) == {2}


def test_kept_checkpoints_of_real_runs(cli, ckpt: Path, without_pictures: None, tmp_path: Path) -> None:
    few = ["--factors", "1,4", "--max-targets", 512, "--protocol", "windows"]
    cli("eval-lengths", "ckpt/rope", *few, "--checkpoint", "all", "--extend", "pi:factor=2").succeeded()
    cli("eval-lengths", "ckpt/none", *few).succeeded()
    cli("report", "ckpt").succeeded()
    table = results.read_frame(tmp_path / "report/checkpoints.parquet")
    evals = xt.rows(ckpt / "rope")
    kept = sorted(set(evals["tokens"]))
    assert len(kept) == 3
    for model in ("RoPE", "RoPE + PI(2)"):
        mine, own = table[table["Model"] == model], evals[evals["model"] == model]
        assert mine["Tokens"].tolist() == kept
        for factor in (1, 4):
            losses = own[own["factor"] == factor].sort_values("tokens")["loss"]
            assert mine[f"Loss (ev={factor})"].tolist() == losses.tolist()
    columns = Checkpoints.tables[0].names
    assert list(table.columns) == [*columns[:2], "Loss (ev=1)", "Loss (ev=4)", *columns[3:]]
    assert table[table["Model"] == "NoPE"]["Tokens"].tolist() == [kept[-1]]
    lengths = results.read_frame(tmp_path / "report/failure_lengths.parquet").set_index(["model", "factor"])
    last = table[table["Tokens"] == kept[-1]].set_index("Model")
    for model in last.index:
        fails, there = last.loc[model, "Failure length"], lengths.loc[(model, 4.0), "fails_from"]
        assert (pd.isna(fails) and pd.isna(there)) or fails == there
    page = (tmp_path / "report/report.md").read_text()
    assert "## Extrapolation by training tokens, protocol windows" in page
    # The tables of the last checkpoints are as without those along the way.
    losses = pd.read_parquet(tmp_path / "report/loss_by_ev.parquet").set_index("Model")
    assert losses.loc["RoPE", "Loss (ev=4)"] == last.loc["RoPE", "Loss (ev=4)"]
    of_last = evals[evals["tokens"] == kept[-1]].set_index(["extension", "factor"])
    changes = results.read_frame(tmp_path / "report/extensions.parquet")
    for factor in (1.0, 4.0):
        difference = of_last.loc[("pi:factor=2", factor), "loss"] - of_last.loc[("as-trained", factor), "loss"]
        assert changes[f"Difference (ev={factor:g})"].tolist() == [pytest.approx(difference)]
    columns = Extensions.tables[0].names
    assert list(changes.columns) == [*columns[:2], "Difference (ev=1)", "Difference (ev=4)", *columns[3:]]
    assert "![the change of the loss by extension and length](extensions.png)" in page
    assert "## Cost and loss, protocol windows" in page
    cost = results.read_frame(tmp_path / "report/cost.parquet").set_index("Model")
    assert cost.loc["RoPE", "Training seconds"] == of_last["training_seconds"].iloc[0]
    assert cost.loc["RoPE + PI(2)", "Evaluation MiB (ev=4)"] == of_last.loc[("pi:factor=2", 4.0), "peak_mib"]
