"""Commands on several runs of which some fail: the others are evaluated, and nothing of theirs is lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.api import evaluate as calls
from extrapolate.api.run_loop import RunsFailed
from extrapolate.errors import UserError, reason_of
from extrapolate.results import kept

FEW = ["--factors", "1", "--protocol", "windows", "--max-targets", "512"]


@pytest.fixture
def damaged(ckpt: Path) -> Path:
    """Four runs: the configuration of one is cut in half, and a byte of the weights of another is wrong."""
    config, weights = ckpt / "expe/config.json", ckpt / "none/model.safetensors"
    config.write_bytes(config.read_bytes()[:100])
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    return ckpt


def test_the_others_are_evaluated(cli: Callable[..., Any], damaged: Path) -> None:
    ended = cli("eval-lengths", damaged, *FEW)
    message = ended.error(1)
    assert message.startswith("2 runs failed, and what the others gave is kept: ")
    for name, what in (("expe", "config.json is damaged"), ("none", "model.safetensors is damaged")):
        assert f"{damaged / name} failed: {damaged / name}/{what}" in ended.err
        assert f"{damaged / name}/{what}" in message
        assert not (damaged / name / "evals.parquet").exists()
    for name in ("rope", "learned"):
        assert len(xt.rows(damaged / name)) == 1
    assert "RoPE" in ended.out
    assert "Learned" in ended.out


def test_the_error_of_the_call_has_the_rows_of_the_others(damaged: Path) -> None:
    runs = [damaged / "rope", damaged / "none"]
    with pytest.raises(RunsFailed, match="1 run failed") as raised:
        xt.evaluate(runs, factors=[1], protocols=["windows"], max_targets=512)
    assert [row["run"] for row in raised.value.evaluated.rows] == ["rope"]
    assert list(raised.value.failed) == [damaged / "none"]


def test_benchmarks_of_the_others_are_shown(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: Any, **settings: Any) -> None:
        raise RunsFailed(pd.DataFrame([{"run": "rope", "value": 0.25}]), {Path("none"): "it is damaged"})

    monkeypatch.setattr(calls, "evaluate_tasks", ask)
    ended = cli("eval-tasks", "rope", "none", "--tasks", "arc_easy", "--json")
    assert ended.error(1).endswith("none: it is damaged")
    assert json.loads(ended.out) == {"run": "rope", "value": 0.25}


def test_runs_that_fail_between_two_protocols_are_shown_as_far_as_they_came(
    cli: Callable[..., Any], ckpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = kept.merge

    def full(path: Path, rows: list[dict[str, Any]], *rest: Any) -> None:
        if rows[0]["protocol"] == "fixed-target":
            raise OSError(28, "No space left on device", str(path))
        merge(path, rows, *rest)

    monkeypatch.setattr(kept, "merge", full)
    few = [*FEW[:2], "--protocol", "windows,fixed-target", *FEW[4:]]
    ended = cli("eval-lengths", ckpt / "rope", ckpt / "none", *few)
    assert ended.error(1).startswith("2 runs failed, and what the others gave is kept: ")
    assert "windows, loss in nats per token" in ended.out


def test_where_no_run_can_be_evaluated_nothing_is_done(cli: Callable[..., Any], damaged: Path) -> None:
    (damaged / "rope/model.safetensors").write_bytes(b"short")
    message = cli("eval-lengths", damaged / "expe", damaged / "rope", *FEW).error(2)
    assert message.startswith(f"{damaged}/expe/config.json is damaged")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UserError("give another"), "give another"),
        (MemoryError(), "there was not enough memory"),
        (OSError(28, "No space left on device", "a/b"), "No space left on device (a/b)"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_reasons_are_in_words(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
