"""Effective lengths of known accuracies, by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.page import markdown
from extrapolate.reports.sections.effective_length import EffectiveLength
from extrapolate.statistics import effective
from extrapolate.statistics.effective import THRESHOLD, accuracies, effective_lengths
from extrapolate.statistics.intervals import wilson

L, DEPTHS, TRIALS = 64, (0.0, 1.0), 100
CHANCE = {"flip-flop": 0.5}
Accuracy = tuple[float, ...] | float


def rows_of(model: str, probe: str, by_factor: dict[int, Accuracy], seed: int = 0) -> list[dict[str, object]]:
    """A row for each factor and depth: one accuracy for all depths, or one for each."""
    return [
        {
            "model": model, "probe": probe, "factor": float(factor), "length": factor * L, "seed": seed,
            "depth": depth, "n_trials": TRIALS, "chance": CHANCE.get(probe, 1 / 16),
            "accuracy": float(np.broadcast_to(accuracy, len(DEPTHS))[at]),
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


def at(threshold: float, rows: pd.DataFrame) -> pd.DataFrame:
    """The effective lengths if another accuracy passed a probe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effective, "THRESHOLD", threshold)
        return effective_lengths(rows)


def test_the_interval_is_over_the_windows_of_all_depths() -> None:
    found = accuracies(ROWS).set_index(["model", "probe", "factor"])
    row = found.loc["A", "tracking", 2.0]
    assert row["accuracy"] == pytest.approx(0.95)
    assert (row["low"], row["high"]) == pytest.approx(wilson(0.95, 2 * TRIALS))
    assert found.loc[("ends", "needle", 2.0), ["accuracy", "low", "high"]].isna().all()


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
    assert at(0.8, ROWS).set_index("model")["length"]["A"] == 256
    assert at(0.8, ROWS).set_index("model")["fails"]["A"] == "tracking"


def test_a_length_at_which_a_probe_was_not_evaluated_does_not_count() -> None:
    both = [*rows_of("A", "needle", {1: 1.0, 2: 1.0, 4: 1.0}), *rows_of("A", "tracking", {1: 1.0, 2: 1.0})]
    found = effective_lengths(pd.DataFrame(both)).iloc[0]
    assert (found["length"], found["own_length"]) == (128, 128)
    assert pd.isna(found["ends_at"])


def own_by_hand(rows: pd.DataFrame, share: float) -> dict[str, int]:
    """The longest length up to which all probes keep the share, with the interval of a mean written out; 0 for none."""
    reached = {}
    for model, mine in rows.groupby("model"):
        reached[model] = 0
        for length in sorted(set(mine["length"])):
            passed = True
            for _, probe in mine.groupby("probe"):
                means = {at: probe[probe["length"] == at]["accuracy"].mean() for at in (L, length)}
                chance, windows = probe["chance"].iloc[0], TRIALS * len(DEPTHS)
                low, at_1x = wilson(means[length], windows)[0], wilson(means[L], windows)[0]
                passed &= at_1x > chance and (low - chance) / (means[L] - chance) >= share
            if not passed:
                break
            reached[model] = length
    return reached


OWN = pd.DataFrame(
    [
        # A third of it is learned, and all that is kept: far below the threshold, and no loss with the length.
        *rows_of("little", "needle", {1: 0.40, 2: 0.40, 4: 0.39, 8: 0.2}),
        # Above chance, half of what was learned is lost; as a plain share of 0.9, 0.7 would be most of it.
        *rows_of("bit", "flip-flop", {1: 0.9, 2: 0.9, 4: 0.7, 8: 0.7}),
        *rows_of("never", "needle", {1: 0.0625, 2: 0.0625}),
        *rows_of("one of two", "needle", {1: 1.0, 2: 1.0, 4: 0.9}),
        *rows_of("one of two", "flip-flop", {1: 0.5, 2: 1.0, 4: 1.0}),
        *rows_of("two", "needle", {1: 0.9, 2: 0.9, 4: 0.2}),
        *rows_of("two", "flip-flop", {1: 1.0, 2: 1.0, 4: 0.3}),
    ]
)


def test_the_own_length_is_how_far_a_share_of_what_is_learned_at_1x_is_kept() -> None:
    for share in (0.3, 0.75, 0.85):
        found = at(share, OWN).set_index("model")
        assert found["own_length"].fillna(0).to_dict() == own_by_hand(OWN, share)
    found = at(0.75, OWN).set_index("model")
    assert found["own_length"].fillna(0).to_dict() == {
        "little": 256, "bit": 128, "never": 0, "one of two": 0, "two": 128,
    }  # fmt: skip
    assert found["own_ends_at"].to_dict() == {"little": 512, "bit": 256, "never": 64, "one of two": 64, "two": 256}
    # Of "two", the needle has the lower accuracy at 4x, and the bit is further below its share.
    assert found["own_fails"].to_dict()["two"] == found["own_fails"]["one of two"] == "flip-flop"
    assert found["fails"]["two"] == "needle"
    assert found["own_factor"].fillna(0).tolist() == [4, 2, 0, 0, 2]
    # Too few windows: the accuracy of 1x is no sure share of itself.
    assert at(0.85, OWN.assign(n_trials=5))["own_length"].isna().all()


def test_the_section_says_which_probes_and_which_threshold(tmp_path) -> None:
    data = SimpleNamespace(probes=ROWS)
    assert EffectiveLength.subjects(data) == ["models"]
    assert EffectiveLength.subjects(SimpleNamespace(probes=pd.DataFrame())) == []
    part = EffectiveLength.part(data, "models")
    said = " ".join(markdown(part.blocks).split())
    low, high = wilson(0.87, 200)
    own = "128 tokens (2x), ended by needle"
    assert f"| A | 128 tokens (2x) | needle at 256: 0.870 [{low:.3f}, {high:.3f}] | {own} | 2 |" in said
    assert "| B | at least 512 tokens (8x) | nothing | at least 512 tokens (8x) | 2 |" in said
    assert "| C | below 64 | tracking at 64: 0.500" in said
    assert "| ends | 64 tokens (1x) | the encoding, before 128 | 64 tokens (1x), ended by needle | 1 |" in said
    assert "passes all of these probes: needle, tracking. A model" in said
    part.files["effective_lengths.parquet"](tmp_path / "effective_lengths.parquet")
    kept = pd.read_parquet(tmp_path / "effective_lengths.parquet")
    assert kept["length"].fillna(0).tolist() == [128, 512, 0, 64]
    assert set(kept["threshold"]) == {THRESHOLD}
    assert "over depths, is at least 0.85," in said
