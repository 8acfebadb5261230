"""Tables from rows made by hand."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from extrapolate.reports import tables
from extrapolate.results.groups import SETTINGS
from extrapolate.statistics.comparable import (
    comparable,
    frame_of,
    same_targets,
    unequal_training,
)  # fmt: skip


def row(run: str, model: str, factor: float, loss: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "encoding": {"RoPE": "rope", "ExPE": "expe", "ALiBi": "alibi"}.get(model.split(" + ")[0], "other"),
        "run": run, "model": model, "display": model.split(" + ")[0], "extension": "pi" if " + " in model else
        "as-trained", "protocol": "windows", "factor": factor, "loss": loss, "control_loss": 4.0, "seq_len": 64,
        "trained_length": 64, "origin": None, "imported": None, "split": "test", "step": 10, "precision": "fp32",
        "seed": 0, "targets_hash": "t", "corpus_hash": "c", "config_hash": run, "setting_hash": "s",
        "weights_sha256": run, "origin_sha256": None, "extension_sha256": None,
        **dict.fromkeys(one.name for one in SETTINGS.columns),
        "training_machine": "m", "training_corpus": "c",
        "preset": "tiny", "layers": 4, "tokens": 1000, "parameters": 10,
        "training_precision": "fp32", "training_seconds": 10.0, "evaluated_at": datetime(2026, 1, 1, tzinfo=UTC),
    } | changes  # fmt: skip


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def test_the_papers_shape() -> None:
    rows = frame(
        row("e", "ExPE", 16, 4.2, training_seconds=8.0),
        row("e", "ExPE", 1, 4.1, training_seconds=8.0),
        row("r", "RoPE + PI", 1, 4.0),
        row("r", "RoPE + PI", 16, 4.6),
        row("r", "RoPE", 1, 4.0),
        row("r", "RoPE", 16, 5.0),
    )
    table = tables.loss_by_ev(rows, None)
    assert list(table.columns) == ["Model", "Loss (ev=1)", "Loss (ev=16)", "Training time", "Seeds"]
    assert table.to_numpy().tolist() == [
        ["RoPE", 4.0, 5.0, 1.0, 1],
        ["RoPE + PI", 4.0, 4.6, 1.0, 1],
        ["ExPE", 4.1, 4.2, 0.8, 1],
    ]


def times(*rows: dict[str, Any], baseline: str | None = None) -> dict[str, float | None]:
    """The training times of models, in the order of the table; None where they are missing."""
    table = tables.loss_by_ev(comparable(frame_of(list(rows)), {}), baseline)
    return {
        model: None if pd.isna(time) else time
        for model, time in zip(table["Model"], table["Training time"], strict=True)
    }


def test_training_times_are_relative_to_a_baseline_that_comes_first() -> None:
    fast, rope = row("e", "ExPE", 1, 4.1, training_seconds=8.0), row("r", "RoPE", 1, 4.0)
    assert list(times(fast, rope, baseline="expe").items()) == [("ExPE", 1.0), ("RoPE", 1.25)]
    assert times(fast) == {"ExPE": None}  # without RoPE, there is no baseline
    assert times(fast | {"training_machine": "other"}, rope) == {"ExPE": None, "RoPE": 1.0}
    unknown = imported("Small", 1, 4.0)  # no run is measured by a training time that is not known
    assert times(unknown, rope | {"model": "RoPE(theta=500)"}) == {"RoPE(theta=500)": 1.0, "Small": None}
    with pytest.raises(ValueError, match="did you mean 'expe'"):
        times(fast, rope, baseline="exqpe")
    # The baseline has no arguments, also where names have sizes.
    assert times(
        row("a", "RoPE(theta=1)", 1, 4.0, display="RoPE", encoding="rope"),
        row("b", "RoPE", 1, 4.0, training_seconds=20.0),
        row("c", "RoPE", 1, 3.9, layers=8, training_seconds=40.0),
    ) == {"RoPE, 4 layers": 1.0, "RoPE(theta=1), 4 layers": 0.5, "RoPE, 8 layers": 2.0}


def test_a_training_time_is_of_all_seeds_or_not_known() -> None:
    """One seed was trained beside other programs, so that its time says nothing."""
    two = [row("r0", "RoPE", 1, 4.0), row("r1", "RoPE", 1, 4.0, config_hash="r0", seed=1, training_seconds=None)]
    found = times(*two, row("e", "ExPE", 1, 4.0, training_seconds=5.0), row("a", "ALiBi", 1, 4.0))
    assert found == {"RoPE": None, "ExPE": None, "ALiBi": None}
    assert times(two[0], row("e", "ExPE", 1, 4.0, training_seconds=5.0)) == {"RoPE": 1.0, "ExPE": 0.5}


def test_seeds_are_averaged_and_a_missing_loss_is_not_averaged_away() -> None:
    rows = frame(
        row("r0", "RoPE", 1, 4.0, config_hash="r"),
        row("r1", "RoPE", 1, 4.4, config_hash="r", seed=1, training_seconds=20.0),
        row("r0", "RoPE", 2, None, config_hash="r"),
        row("r1", "RoPE", 2, 4.4, config_hash="r", seed=1),
    )
    table = tables.loss_by_ev(rows, None)
    assert table["Loss (ev=1)"].item() == pytest.approx(4.2)
    assert table["Loss (ev=2)"].isna().item()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"seed": 1}, "r0, r1 are all RoPE but differ in more than their seed"),
        ({"config_hash": "r0"}, "one model with one seed"),  # the same seed twice is not a replicate
    ],
)
def test_runs_that_are_no_seeds_of_one_model_are_not_averaged(other: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tables.loss_by_ev(frame(row("r0", "RoPE", 1, 4.0), row("r1", "RoPE", 1, 4.4, **other)), None)


def test_sizes_are_in_the_names_of_models_that_differ_in_them() -> None:
    rows = frame(
        row("a", "RoPE", 1, 4.0),
        row("b", "RoPE", 1, 3.9, layers=8, parameters=20),
        row("b", "RoPE + PI", 1, 3.9, layers=8, parameters=20),
        row("c", "ALiBi", 1, 4.1),
    )
    named = comparable(rows, {})
    assert named["model"].tolist() == ["RoPE, 4 layers", "RoPE, 8 layers", "RoPE + PI, 8 layers", "ALiBi, 4 layers"]
    assert len(tables.loss_by_ev(named, None)) == 4
    by_width = comparable(rows.assign(layers=None), {})
    assert by_width["model"].tolist()[:2] == ["RoPE, 10 parameters", "RoPE, 20 parameters"]
    seeds = comparable(rows.assign(layers=4, parameters=10, config_hash="r", seed=[0, 1, 1, 0]), {})
    assert set(seeds["model"]) == {"RoPE", "RoPE + PI", "ALiBi"}  # seeds of one size keep their name
    by_preset = comparable(rows.assign(preset=["s", "m", "m", None], imported=[None, None, None, "x"]), {})
    assert by_preset["model"].tolist() == ["RoPE, s", "RoPE, m", "RoPE + PI, m", "ALiBi"]


def test_extensions_of_one_name_are_models_of_their_own() -> None:
    """Classes of two files may have one `display`: on one run, and on the seeds of one model."""
    one, other = (row("a", "RoPE + Half", 1, loss, extension=text) for loss, text in ((4.0, "a.py:H"), (6.0, "b.py:H")))
    for second in (other, other | {"run": "b", "seed": 1, "config_hash": "a"}):
        named = comparable(frame(one, second, row("a", "RoPE", 1, 4.1)), {})
        assert named["model"].tolist() == ["RoPE + Half (a.py:H)", "RoPE + Half (b.py:H)", "RoPE"]
        assert tables.loss_by_ev(named, None)["Loss (ev=1)"].tolist() == [4.1, 4.0, 6.0]
    printed = tables.quick_table([one, other], "windows")
    assert printed["model"].tolist() == ["RoPE + Half (a.py:H)", "RoPE + Half (b.py:H)"]
    assert printed["ev=1"].tolist() == [4.0, 6.0]


@pytest.mark.parametrize(
    ("column", "value"), [("corpus_hash", "d"), ("seq_len", 128), ("precision", "bf16"), ("split", "validation")]
)
def test_rows_that_cannot_be_compared_are_refused(column: str, value: Any) -> None:
    rows = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.1, **{column: value}))
    with pytest.raises(ValueError, match=f"differ in {column}"):
        comparable(rows, {})
    assert comparable(rows, {column: value})["run"].tolist() == ["e"]
    with pytest.raises(ValueError, match=f"no row has {column} other"):
        comparable(rows, {column: "other"})


def test_models_that_were_not_trained_alike_are_said() -> None:
    alike = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.1))
    assert unequal_training(alike) == []
    unlike = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.1, setting_hash="u", tokens=7000))
    (warning,) = unequal_training(unlike)
    assert "tokens 1000, 7000)" in warning
    further = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.1, tokens=7000))  # evaluated after other steps
    (warning,) = unequal_training(further)
    assert "(tokens 1000, 7000)" in warning
    many = frame(*(row(str(at), "RoPE", 1, 4.0, setting_hash=str(at), tokens=1000 + at) for at in range(9)))
    (warning,) = unequal_training(many)
    assert "tokens 1000, ..., 1008)" in warning
    continued = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.1, setting_hash="u", origin="r"))
    (warning,) = unequal_training(continued)
    assert "(some continue another run)" in warning


def test_models_that_learned_from_other_text_are_named() -> None:
    rows = frame(row("r", "RoPE", 1, 4.0), row("e", "ExPE", 1, 4.0, training_corpus="d", setting_hash="t"))
    rows = rows.assign(caption="", version="", commit="", machine="m", n_targets=8, n_documents=2, training_version="",
                       training_commit="", training_taken=0.0)  # fmt: skip
    found = tables.caption(rows)
    assert "ExPE learned from other text (corpus d): nothing checks that no text is in both." in found
    assert "not trained alike (training_corpus c, d)" in found
    assert "other text" not in tables.caption(rows.assign(training_corpus="c"))
    alike = rows.assign(training_corpus="c", lr=[0.02, 0.007])
    assert "not trained alike (lr 0.007, 0.02)" in tables.caption(alike)


def test_other_targets_are_left_out_and_said() -> None:
    rows = frame(
        row("r", "RoPE", 1, 4.0),
        row("e", "ExPE", 1, 4.1),
        row("a", "ALiBi", 1, 4.2, targets_hash="u", evaluated_at=datetime(2026, 2, 1, tzinfo=UTC)),
    )
    kept, warnings = same_targets(rows)
    assert kept["run"].tolist() == ["r", "e"]
    assert len(warnings) == 1
    assert "ALiBi at 1x" in warnings[0]
    assert same_targets(kept)[1] == []


def test_the_newest_of_as_many_targets_is_shown() -> None:
    """Even if an earlier evaluation had more lengths."""
    later = {"targets_hash": "u", "evaluated_at": datetime(2026, 2, 1, tzinfo=UTC)}
    rows = frame(row("r", "RoPE", 1, 4.0), row("r", "RoPE", 4, 4.5), row("r", "RoPE", 1, 4.1, **later))
    assert same_targets(rows)[0]["loss"].tolist() == [4.1]


def test_the_worst_seed_is_that_of_each_length() -> None:
    rows = frame(
        *(row(f"r{seed}", "RoPE", factor, 4.0 + seed * side / 10, seed=seed) for seed in (0, 1, 2)
          for factor, side in ((1, 1), (2, -1))),
        row("e", "ExPE", 1, 4.2),
    )  # fmt: skip
    table = tables.worst_seed(rows).set_index("Model")
    assert table.loc["RoPE", ["ev=1", "ev=2", "Seeds"]].tolist() == pytest.approx([4.2, 4.0, 3])
    assert table.loc["ExPE", "ev=1"] == 4.2
    assert pd.isna(table.loc["ExPE", "ev=2"])
    diverged = rows.assign(loss=rows["loss"].where(rows["run"] != "r1"))
    assert pd.isna(tables.worst_seed(diverged).set_index("Model").loc["RoPE", "ev=1"])  # none is worse
    assert tables.worst_seed(rows[rows["seed"] == 0]) is None


def imported(model: str, factor: float, loss: float) -> dict[str, Any]:
    """A row of a checkpoint of which it is not known how it was trained."""
    unknown = dict.fromkeys(("seed", "preset", "tokens", "training_machine", "training_precision", "training_seconds"))
    return row(f"a-{model}", model, factor, loss, imported="a/b", encoding="rope", display="RoPE", **unknown)


def test_the_best_extension_is_compared_with_the_run_as_it_was_trained() -> None:
    """What a run was tuned with belongs to it: to take it off is not "without" and must not be compared with that."""
    tuned = "RoPE + PI(4), tuned at 256"
    taken_off = row("r", "RoPE, tuned at 256 with PI(4), taken off", 1, 5.538, extension="without-own")
    [line] = tables.verdicts([row("r", tuned, 1, 5.542, extension="as-trained"), taken_off], "windows")
    assert "taken off 5.538, -0.004 against the run as it was trained" in line
    assert "without" not in line
    [line] = tables.verdicts([row("r", tuned, 1, 5.5, extension="as-trained"), taken_off], "windows")
    assert line == f"r, 1x: {tuned} 5.500: no extension is lower"
