"""Effective lengths of known accuracies, by hand."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.reports.page import markdown
from extrapolate.reports.sections.effective_length import EffectiveLength
from extrapolate.statistics.effective import THRESHOLD, accuracies, effective_lengths
from extrapolate.statistics.intervals import wilson

PROBES = Path(__file__).parents[1] / "fixtures/rope/eval_probes.parquet"
L, DEPTHS, TRIALS = 64, (0.0, 1.0), 100
Accuracy = tuple[float, ...] | float


def rows_of(model: str, probe: str, by_factor: dict[int, Accuracy], seed: int = 0) -> list[dict[str, object]]:
    """A row for each factor and depth: one accuracy for all depths, or one for each."""
    return [
        {
            "model": model, "probe": probe, "factor": float(factor), "length": factor * L, "seed": seed,
            "depth": depth, "n_trials": TRIALS, "accuracy": float(np.broadcast_to(accuracy, len(DEPTHS))[at]),
        }
        for factor, accuracy in by_factor.items()
        for at, depth in enumerate(DEPTHS)
    ]  # fmt: skip


ROWS = pd.DataFrame(
    [
        # 0.87 of 200 windows may be less than 0.85.
        *rows_of("A", "needle", {1: 1.0, 2: 0.99, 4: 0.87, 8: 0.99}),
        *rows_of("A", "tracking", {1: 1.0, 2: (1.0, 0.9), 4: 0.98, 8: 0.2}),
        *rows_of("B", "needle", {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}),
        *rows_of("B", "tracking", {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}),
        *rows_of("C", "needle", {1: 0.99, 2: 0.99}),
        *rows_of("C", "tracking", {1: 0.5, 2: 0.4}),
        *rows_of("ends", "needle", {1: 1.0, 2: np.nan}),
    ]
)


def test_the_interval_is_over_the_windows_of_all_depths() -> None:
    found = accuracies(ROWS).set_index(["model", "probe", "factor"])
    row = found.loc["A", "tracking", 2.0]
    assert row["accuracy"] == pytest.approx(0.95)
    assert (row["low"], row["high"]) == pytest.approx(wilson(0.95, 2 * TRIALS))
    assert found.loc[("ends", "needle", 2.0), ["accuracy", "low", "high"]].isna().all()


def test_seeds_are_averaged_and_add_no_windows() -> None:
    both = pd.DataFrame([*rows_of("A", "needle", {1: 1.0}), *rows_of("A", "needle", {1: 0.9}, seed=1)])
    (row,) = accuracies(both).to_dict("records")
    assert row["accuracy"] == pytest.approx(0.95)
    assert (row["low"], row["high"]) == pytest.approx(wilson(0.95, 2 * TRIALS))


def test_a_model_reaches_as_far_as_all_probes_surely_pass() -> None:
    found = effective_lengths(ROWS).set_index("model")
    assert found["length"].fillna(0).to_dict() == {"A": 128, "B": 512, "C": 0, "ends": 64}
    assert found["factor"].tolist()[:2] == [2.0, 8.0]
    assert found["probes"].to_dict() == {"A": 2, "B": 2, "C": 2, "ends": 1}
    assert found["ends_at"].fillna(0).to_dict() == {"A": 256, "B": 0, "C": 64, "ends": 128}
    assert found["fails"].fillna("none").to_dict() == {"A": "needle", "B": "none", "C": "tracking", "ends": "needle"}
    a = found.loc["A"]
    assert (a["accuracy"], a["low"], a["high"]) == pytest.approx((0.87, *wilson(0.87, 2 * TRIALS)))
    assert a["low"] < THRESHOLD < a["accuracy"]
    # What it passes beyond a length at which it fails does not count, and a lower threshold reaches further.
    assert effective_lengths(ROWS, 0.8).set_index("model")["length"]["A"] == 256
    assert effective_lengths(ROWS, 0.8).set_index("model")["fails"]["A"] == "tracking"


def test_the_section_says_which_probes_and_which_threshold(tmp_path) -> None:
    material = SimpleNamespace(probes=ROWS, threshold=THRESHOLD)
    assert EffectiveLength.subjects(material) == ["models"]
    assert EffectiveLength.subjects(SimpleNamespace(probes=pd.DataFrame())) == []
    part = EffectiveLength.part(material, "models")
    said = " ".join(markdown(part.blocks).split())
    low, high = wilson(0.87, 200)
    assert f"| A | 128 tokens (2x) | needle at 256: 0.870 [{low:.3f}, {high:.3f}] | 2 |" in said
    assert "| B | at least 512 tokens (8x) | nothing | 2 |" in said
    assert "| C | below 64 | tracking at 64: 0.500" in said
    assert "| ends | 64 tokens (1x) | the encoding, before 128 | 1 |" in said
    assert "passes all of these probes: needle, tracking. To pass is to have an accuracy of 0.85 or more" in said
    part.files["effective_lengths.parquet"](tmp_path / "effective_lengths.parquet")
    kept = pd.read_parquet(tmp_path / "effective_lengths.parquet")
    assert kept["length"].fillna(0).tolist() == [128, 512, 0, 64]
    assert set(kept["threshold"]) == {THRESHOLD}
    lower = markdown(EffectiveLength.part(SimpleNamespace(probes=ROWS, threshold=0.8), "models").blocks)
    assert "| A | 256 tokens (4x) | tracking at 512" in lower
    assert "an accuracy of 0.8 or more" in lower


@pytest.mark.usefixtures("without_pictures")
def test_a_report_takes_a_threshold_and_states_it(cli, write_run, tmp_path) -> None:
    run = write_run(tmp_path / "runs/rope")
    assert "no run was evaluated on probes" in cli("report", "runs", "--threshold", "0.05").error()
    shutil.copy(PROBES, run)
    cli("report", "runs", "--threshold", "0.05").succeeded()
    assert set(pd.read_parquet(tmp_path / "report/effective_lengths.parquet")["threshold"]) == {0.05}
    assert not (tmp_path / "report/leaderboard.parquet").exists()  # which was not asked for
    page = (tmp_path / "report/report.md").read_text()
    assert "an accuracy of 0.05 or more" in page
    assert "extrapolate report runs --threshold 0.05" in page
    assert cli("report", "runs", "--threshold", "85").error() == (
        "--threshold is an accuracy above 0 and below 1, not 85"
    )
    with pytest.raises(ValueError, match="`threshold`: 'high' is not a number"):
        xt.report(tmp_path / "runs", tmp_path / "report", threshold="high")
