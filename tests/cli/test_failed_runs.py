"""Commands on several runs of which some fail: the others are evaluated, and nothing of theirs is lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.api.run_loop import RunsFailed
from extrapolate.errors import reason_of

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
        assert not (damaged / name / "results").exists()
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


def test_where_no_run_can_be_evaluated_nothing_is_done(cli: Callable[..., Any], damaged: Path) -> None:
    (damaged / "rope/model.safetensors").write_bytes(b"short")
    message = cli("eval-lengths", damaged / "expe", damaged / "rope", *FEW).error(2)
    assert message.startswith(f"{damaged}/expe/config.json is damaged")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "there was not enough memory"),
        (OSError(28, "No space left on device", "a/b"), "No space left on device (a/b)"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_reasons_are_in_words(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
