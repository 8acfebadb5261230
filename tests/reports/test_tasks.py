"""Which scores of benchmarks stand in one table, and which are averaged."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from extrapolate.errors import UserError
from extrapolate.reports.tasks import by_model, comparable, printed
from extrapolate.results.groups import SETTINGS

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def score(run: str, value: float, **changes: Any) -> dict[str, Any]:
    """A row of the table of benchmarks: a model's accuracy on one task."""
    return {
        "run": run, "model": "RoPE", "extension": "as-trained", "seed": 0, "step": 10,
        "precision": "fp32", "task": "arc_easy", "metric": "acc",
        "filter": "none", "shots": 0, "length": 32, "factor": 2.0, "value": value, "stderr": 0.1,
        "targets_hash": "questions", "config_hash": "c", "preset": "tiny", "layers": 2, "parameters": 1000,
        "setting_hash": "s", "tokens": 7, "origin": None, "origin_sha256": None, "training_corpus": "x",
        "trained_length": 16, "training_precision": "fp32", "training_machine": "a machine", "imported": None,
        "evaluated_at": WHEN, "weights_sha256": run, "members": None, "extension_sha256": None,
        **dict.fromkeys(one.name for one in SETTINGS.columns),
    } | changes  # fmt: skip


def scores_of(*rows: dict[str, Any]) -> dict[str, str]:
    table = by_model(comparable(pd.DataFrame(rows))[0])
    return dict(zip(table["Model"], table["arc_easy acc"], strict=True))


def test_seeds_are_averaged_and_the_last_checkpoint_counts() -> None:
    assert scores_of(score("a", 0.25), score("a", 0.9, step=5), score("b", 0.75, seed=1)) == {"RoPE": "0.500 ± 0.100"}


def test_a_mean_says_over_how_many_seeds_it_is() -> None:
    alibi = {"model": "ALiBi", "config_hash": "d"}
    both = [score("a", 0.2), score("b", 0.4, seed=1), score("c", 0.5, **alibi), score("d", 0.7, seed=1, **alibi)]
    assert by_model(comparable(pd.DataFrame(both))[0])["Seeds"].tolist() == [2, 2]
    shown, said = comparable(pd.DataFrame(both[:3]))
    assert by_model(shown)["Seeds"].tolist() == [2, 1]
    assert said == [
        "benchmarks: models have different seeds (RoPE: seeds 0, 1; ALiBi: seed 0); each is shown with its own, and "
        "two are compared on the seeds that both have"
    ]
    apart = [score("a", 0.2), score("b", 0.4, seed=1, length=64, factor=4.0)]
    shown, (said_of_none,) = comparable(pd.DataFrame(apart))
    assert len(shown) == 2
    assert said_of_none.startswith("benchmarks: no seed of RoPE was evaluated at every length")


def test_what_was_just_asked_is_printed_by_run() -> None:
    """A report refuses these two runs; a command prints what it found."""
    two = pd.DataFrame([score("a", 0.25, group=None), score("b", 0.75, config_hash="d", group=None)])
    ((_, table),) = printed(two)
    assert dict(zip(table["Model"], table["arc_easy acc"], strict=True)) == {
        "a, RoPE": "0.250 ± 0.100", "b, RoPE": "0.750 ± 0.100",
    }  # fmt: skip
    half = [score("a", value, extension=text, group=None) for value, text in ((0.1, "a.py:H"), (0.3, "b.py:H"))]
    assert list(next(printed(pd.DataFrame(half)))[1]["Model"]) == ["a, RoPE (a.py:H)", "a, RoPE (b.py:H)"]


def test_sizes_and_precisions_are_models_of_their_own() -> None:
    small = {"config_hash": "d", "layers": 1, "parameters": 500}
    assert scores_of(score("a", 0.25), score("b", 0.75, **small)) == {
        "RoPE, 2 layers": "0.250 ± 0.100", "RoPE, 1 layers": "0.750 ± 0.100"
    }  # fmt: skip
    assert scores_of(score("a", 0.25), score("a", 0.5, precision="int8")) == {
        "RoPE, fp32": "0.250 ± 0.100", "RoPE, int8": "0.500 ± 0.100"
    }  # fmt: skip


def test_runs_that_differ_in_more_than_their_seed_are_refused() -> None:
    with pytest.raises(UserError, match="a, b are all RoPE but differ in more than their seed"):
        comparable(pd.DataFrame([score("a", 0.25), score("b", 0.75, seed=1, config_hash="d")]))
    with pytest.raises(UserError, match="a, b are one model with one seed"):
        comparable(pd.DataFrame([score("a", 0.25), score("b", 0.75)]))


def test_a_group_with_a_task_that_was_asked_again_is_left_out() -> None:
    group = score("a", 0.3, task="both", members="arc_easy=questions piqa=others")
    assert len(comparable(pd.DataFrame([group, score("a", 0.2)]))[0]) == 2
    shown, said = comparable(pd.DataFrame([group, score("a", 0.2, targets_hash="edited")]))
    assert shown["task"].tolist() == ["arc_easy"]
    assert said == [
        "task both: left out the runs that were asked some of its tasks again, with other questions (a): ask them both "
        "again"
    ]
    other = score("a", 0.2, targets_hash="edited", shots=2)
    assert len(comparable(pd.DataFrame([group, other]))[0]) == 2
