"""Which seeds are compared, from rows made by hand."""

import math

import pandas as pd
import pytest

from extrapolate.statistics.seeds import (
    bands,
    counts,
    in_words,
    incomplete_checkpoints,
    on_own_seeds,
    seeds_of,
    shared,
)


def frame(*rows: tuple[str, float, int | None]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["model", "factor", "seed"]).astype({"seed": "Int64"})


def of_models(**seeds: list[int | None]) -> pd.DataFrame:
    return frame(*((model, 1.0, seed) for model, mine in seeds.items() for seed in mine))


def test_models_share_the_seeds_that_both_have() -> None:
    assert shared((0, 1, 2), (1, 2, 5)) == (1, 2)
    assert shared((0,), (1,)) == ()


def test_an_unknown_seed_goes_with_every_seed() -> None:
    assert shared((), (0, 1)) == (0, 1)
    assert shared((3,), ()) == (3,)
    rows = of_models(RoPE=[0, 1], Imported=[None])
    assert seeds_of(rows[rows["model"] == "Imported"]) == ()
    assert counts(rows).to_dict() == {"RoPE": 2, "Imported": 1}
    kept, warnings = on_own_seeds(rows, "windows")
    assert len(kept) == 3
    assert warnings == []


def test_equal_seeds_stay_without_a_word() -> None:
    rows = of_models(RoPE=[0, 1], ExPE=[1, 0])
    kept, warnings = on_own_seeds(rows, "windows")
    assert kept.equals(rows)
    assert warnings == []


def test_models_keep_their_own_seeds_and_it_is_said() -> None:
    rows = of_models(RoPE=[0, 1], **{"RoPE + YaRN": [0]})
    kept, [warning] = on_own_seeds(rows, "windows")
    assert kept.equals(rows)
    assert warning.startswith("windows: models have different seeds (RoPE: seeds 0, 1; RoPE + YaRN: seed 0); each is")


def test_a_seed_that_one_length_lacks_is_left_out_at_all() -> None:
    """Else a curve would be a mean over two seeds at one end and over one at the other."""
    whole = [("ExPE", factor, seed) for factor in (1.0, 16.0) for seed in (0, 1)]
    rows = frame(("RoPE", 1.0, 0), ("RoPE", 1.0, 1), ("RoPE", 16.0, 1), *whole)
    kept, [fewer, different] = on_own_seeds(rows, "windows")
    assert kept["seed"].tolist() == [1, 1, 0, 1, 0, 1]
    assert "RoPE: shown is seed 1" in fewer
    assert "(RoPE: seed 1; ExPE: seeds 0, 1)" in different


def test_a_model_without_a_seed_at_every_length_keeps_all_and_it_is_said() -> None:
    rows = frame(("RoPE", 1.0, 0), ("RoPE", 16.0, 1))
    kept, [warning] = on_own_seeds(rows, "windows")
    assert kept.equals(rows)
    assert "no seed of RoPE was evaluated at every length" in warning


def test_checkpoints_that_a_seed_lacks_are_said() -> None:
    along = [(run, step) for run in "ab" for step in (1, 2, 3) if (run, step) not in (("b", 1), ("b", 2))]
    rows = pd.DataFrame([{"model": "RoPE", "run": run, "step": step, "tokens": 10_000 * step} for run, step in along])
    rows["factor"] = 1.0
    (said,) = incomplete_checkpoints(rows, "windows")
    assert (
        "windows: left out checkpoints at which not all seeds of a model were evaluated (RoPE at 10,000, 20,000 t"
        in said
    )
    assert incomplete_checkpoints(rows[rows["run"] == "a"], "windows") == []
    assert incomplete_checkpoints(rows.assign(tokens=None), "windows") == []
    at_fewer_lengths = pd.concat([rows, rows[(rows["step"] == 3) & (rows["run"] == "a")].assign(factor=2.0)])
    assert "(RoPE at 10,000, 20,000, 30,000 t" in incomplete_checkpoints(at_fewer_lengths, "windows")[0]


def test_words() -> None:
    assert [in_words(seeds) for seeds in ((), (3,), (0, 2))] == ["seed unknown", "seed 3", "seeds 0, 2"]


def test_the_band_is_students_t_over_the_seeds() -> None:
    """With 2 degrees of freedom t is 4.3027, from any table."""
    rows = pd.DataFrame(
        [("a", 1.0, loss) for loss in (1.0, 2.0, 3.0)]
        + [("a", 2.0, loss) for loss in (1.0, math.inf, 3.0)]
        + [("b", 1.0, 4.0)]
        + [("c", 1.0, loss) for loss in (4.0, math.nan)],
        columns=["model", "factor", "loss"],
    )
    (band,) = bands(rows).to_dict("records")
    assert (band["model"], band["factor"]) == ("a", 1.0)
    assert [band["low"], band["high"]] == pytest.approx([2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5], abs=1e-4)
