"""An estimate counts what the evaluation then reads, and what it advises ends within an hour."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.api import estimating
from extrapolate.api.estimating import Speed
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.resolve import token_operations

ASKED: dict[str, Any] = dict(
    factors=(1, 2, 4), max_targets=256, extend=("pi", "self-extend", "pi:factor=2"), precisions=("fp32", "bf16"),
    device="cpu",
)  # fmt: skip


class Told(xt.Terminal):
    """Counts what was done."""

    done = 0.0

    def display(self, unit: str, stopped: str = "") -> Any:
        return nullcontext(self)

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        self.done = done


@pytest.fixture
def a_second_a_token(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time that each token takes."""

    def of(seconds: float) -> None:
        class Fixed(Speed):
            def seconds(self, inputs: Counter) -> float:
                return seconds * inputs.total()

        monkeypatch.setattr(estimating, "_timed", lambda model, *_: Fixed(model, {}, 0.0, None))

    return of


def test_tokens_targets_and_documents_are_those_of_the_evaluation(ckpt: Path) -> None:
    asked = ASKED | {"precisions": ("fp32",)}
    found = xt.estimate_evaluation(ckpt / "rope", probes=("copy",), trials=2, **asked)
    rows = found.rows
    assert rows["seconds"].sum() == pytest.approx(found.seconds)
    assert (rows["peak_mib"] > 10).all()
    settings = ["reads", "extension", "precision"]
    assert len(rows) == rows[settings].drop_duplicates().shape[0] == 3 * 4
    tokens = rows.set_index(settings)["tokens"]
    of = tokens["windows"].xs("fp32", level="precision")
    assert of["pi:factor=2"] < of["pi"] + of["as-trained"]  # it has the plan of pi at 2x: what is new is at 1x and 4x
    done = Told()
    table = xt.evaluate(ckpt / "rope", progress=done, **asked)
    assert done.done == rows.loc[rows["reads"] != "copy", "tokens"].sum()
    probes = {name: value for name, value in asked.items() if name != "max_targets"}
    xt.evaluate_probes(ckpt / "rope", "copy", trials=2, progress=done, **probes)
    assert done.done == rows.loc[rows["reads"] == "copy", "tokens"].sum()
    for (protocol, count), part in rows[rows["reads"] != "copy"].groupby(["reads", "targets"]):
        evaluated = table[table["protocol"] == protocol]
        assert set(evaluated["n_targets"]) == {count}
        assert set(evaluated["n_documents"]) == set(part["documents"])


def test_speed_is_linear_between_lengths_and_by_operations_beyond(ckpt: Path) -> None:
    sizes = ModelConfig(vocab_size=300, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=64)
    model = Model(sizes, "rope", {}, 16)
    cost = {n: token_operations(sizes, n) for n in (16, 64, 128)}
    speed = Speed(model, {16: 2.0 * cost[16], 64: 4.0 * cost[64]}, 7.0, None)
    assert speed.seconds(Counter({(16, 16): 10})) == pytest.approx(20 * cost[16])
    assert speed.seconds(Counter({(40, 40): 1})) == pytest.approx(3.0 * token_operations(sizes, 40))
    assert speed.seconds(Counter({(128, 128): 1})) == pytest.approx(4.0 * cost[128])
    assert speed.seconds(Counter({(64, 8): 1})) == pytest.approx(4.0 * token_operations(sizes, 64, 8))
    assert speed.seconds(Counter({(1, 1): 3})) == 21.0


@pytest.mark.parametrize(
    ("hours", "lowered"),
    [
        (0.9, set()),
        (60, {"max_targets", "factors"}),
        (1e9, {"extend", "factors", "max_targets"}),
    ],
)
def test_what_is_to_be_lowered_ends_within_an_hour(
    ckpt: Path, a_second_a_token, hours: float, lowered: set[str]
) -> None:
    asked = {name: value for name, value in ASKED.items() if name != "max_targets"}
    a_second_a_token(1.0)
    a_second_a_token(3600 * hours / xt.estimate_evaluation(ckpt / "rope", **asked).seconds)
    found = xt.estimate_evaluation(ckpt / "rope", **asked)
    assert found.seconds == pytest.approx(3600 * hours)
    assert found.lower.keys() == lowered
    again = xt.estimate_evaluation(ckpt / "rope", **asked | found.lower)
    assert again.seconds == found.lower_s
    assert (again.seconds <= 3600) == (hours < 1e9)  # the smallest may still be too large
    if "max_targets" in lowered:  # it still gives intervals
        pieces = {"windows": 16 * max((asked | found.lower)["factors"]), "fixed-target": 8}
        assert all(found.lower["max_targets"][name] >= 10 * targets for name, targets in pieces.items())


def test_the_command_shows_what_it_reads_and_what_to_lower(cli, ckpt: Path, a_second_a_token, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    a_second_a_token(0.1)
    before = {path.name for path in (ckpt / "rope").iterdir()}
    flags = ["eval-lengths", ckpt / "rope", "--factors", "1,2", "--device", "cpu", "--dry-run"]
    shown = cli(*flags).succeeded().out
    assert {path.name for path in (ckpt / "rope").iterdir()} == before
    command = next(line for line in shown.splitlines() if line.startswith("with --")).removeprefix("with ")
    lower, _, takes = command.partition(": about ")
    assert takes.endswith(("min", "s"))
    assert "with --" not in cli(*flags, *lower.split()).succeeded().out
