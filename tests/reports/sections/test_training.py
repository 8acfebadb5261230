"""Training curves and the table of what training took, from logs made by hand and of real runs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extrapolate import results
from extrapolate.reports.chart import smoothed
from extrapolate.reports.sections import training
from extrapolate.reports.sections.training import KEPT


def log(losses: list[float], validation: float = 4.0, speed: float = 2000.0) -> pd.DataFrame:
    """A log of steps of 1,000 tokens, with a validation at the end."""
    count = len(losses)
    steps = pd.DataFrame({"step": range(1, count + 1), "loss": losses, "tokens_per_s": speed})
    whole = pd.concat([steps, pd.DataFrame({"step": [count], "val_loss": [validation]})])
    return whole.assign(tokens=1000 * whole["step"])


def test_the_average_is_that_of_its_formula() -> None:
    losses = np.random.default_rng(0).normal(4, 0.3, 50)
    total = weight = 0.0
    for loss in losses:
        total, weight = KEPT * total + (1 - KEPT) * loss, KEPT * weight + (1 - KEPT)
    found = smoothed(pd.Series(losses), KEPT)
    assert found.iloc[-1] == pytest.approx(total / weight)
    assert found.iloc[0] == losses[0]


def test_an_infinite_loss_ends_the_average() -> None:
    """Without it the average would go on as if the training had not diverged."""
    assert smoothed(pd.Series([4.0, np.inf, 4.0, 4.0]), KEPT).tolist() == [4.0, np.inf, np.inf, np.inf]


def test_seconds_per_1000_steps_and_last_losses() -> None:
    row = training._row("RoPE", [log([5.0, 4.0, 3.0]), log([5.4, 4.4, 3.4], validation=4.4, speed=1000.0)])
    assert row["Tokens"] == 3000
    assert row["Training loss"] == pytest.approx(smoothed(pd.Series([5.2, 4.2, 3.2]), KEPT).iloc[-1])
    assert row["Validation loss"] == pytest.approx(4.2)
    assert row["Seconds per 1,000 steps"] == pytest.approx((500 + 1000) / 2)
    assert row["Seeds"] == 2
    diverged = training._row("RoPE", [log([np.nan, np.nan])])
    assert np.isnan(diverged["Training loss"])
    assert diverged["Validation loss"] == 4.0
    untimed = training._row("RoPE", [log([5.0, 4.0]).drop(columns="tokens_per_s")])
    assert np.isnan(untimed["Seconds per 1,000 steps"])


def test_means_over_seeds_are_over_all_seeds_as_far_as_the_first_ends() -> None:
    """A mean over those that came further would fall, or rise, where a seed ends."""
    both = [log([5.0, 4.0, 3.0, 2.0], validation=3.0), log([5.4, 4.4], validation=4.4)]
    both[0].loc[both[0]["step"] == 2, "val_loss"] = 4.0  # on its way
    row = training._row("RoPE", both)
    assert row["Tokens"] == 2000
    assert row["Training loss"] == pytest.approx(smoothed(pd.Series([5.2, 4.2]), KEPT).iloc[-1])
    assert row["Validation loss"] == pytest.approx(4.2)
    early = training._row("RoPE", [both[0], log([5.4, 4.4]).drop(columns="val_loss")])
    assert np.isnan(early["Validation loss"])


def test_the_time_of_a_step_is_by_the_median_speed() -> None:
    """A pause, or a slow first step, is one step of many."""
    one = log([5.0, 4.0, 3.0], speed=2000.0)
    one.loc[one["step"] == 1, "tokens_per_s"] = 1.0
    assert training._row("RoPE", [one])["Seconds per 1,000 steps"] == pytest.approx(500)


def test_a_report_on_real_runs(cli, evaluated: Path, without_pictures: None, tmp_path: Path) -> None:
    ended = cli("report", evaluated).succeeded()
    table = results.read_frame(tmp_path / "report/training.parquet").set_index("Model")
    assert set(table.index) == {"RoPE", "ExPE", "Learned", "NoPE"}
    rows = [json.loads(line) for line in (evaluated / "rope/metrics.jsonl").read_text().splitlines()]
    (validation,) = [row["val_loss"] for row in rows if "val_loss" in row][-1:]
    assert table.loc["RoPE", "Validation loss"] == validation
    losses = pd.Series([row["loss"] for row in rows if "loss" in row])
    assert table.loc["RoPE", "Training loss"] == pytest.approx(smoothed(losses, KEPT).iloc[-1])
    page = (tmp_path / "report/report.md").read_text()
    assert "![training loss against tokens](training_loss.png)" in page
    assert "Extrapolation by training tokens" not in page  # no checkpoint along the way was evaluated
    title, first, sentences, rest, *_ = page.split("\n\n")
    assert title == "# The answer"
    assert first.startswith("**Train Learned, NoPE, RoPE, ExPE longer before you read their verdicts: ")
    assert sentences.startswith("**In these runs, ")
    assert rest.startswith("Protocol fixed-target.")
    assert sentences.strip("*").split("(")[0].strip() in " ".join(ended.out.split())


def test_what_is_no_log_is_refused(cli, ckpt: Path, tmp_path: Path) -> None:
    cli("eval-lengths", "ckpt/rope", "--factors", "1", "--max-targets", 512).succeeded()
    none = pd.DataFrame({"step": [], "tokens": [], "loss": []}, dtype=float)
    texts = pd.DataFrame({"step": [1], "tokens": ["many"]})
    untold = pd.DataFrame({"step": [1.0, 2.0], "tokens": [np.nan, np.nan], "loss": [4.0, 3.0]})
    for wrong, said in (
        (texts, "it has no numbers in tokens, loss"),
        (none, "it has no steps"),
        (untold, "a row does not say its step and tokens"),
    ):
        results.write_frame(ckpt / "rope/metrics.parquet", wrong)
        assert cli("report", "ckpt").error().endswith(f"rope/metrics.parquet is no log of a training: {said}")
