"""`extrapolate check` of an extension."""

from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.extensions.base import extensions

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_extension.py"
HEAD = """
import random
from extrapolate.extensions.base import Extension
from extrapolate.encodings.plan import Plan
class Mine(Extension):
    display, slot, needs = "Mine", "positions", "positions"
    def __init__(self, *, factor: float = 2.0): self.factor = factor
    def plan(self, encoding, seq_len, length): return """


@pytest.mark.parametrize("spec", [*extensions.names(), f"{EXAMPLE}:RootScale", f"{EXAMPLE}:RootScale:factor=4"])
def test_what_is_right_passes(spec: str) -> None:
    table = xt.check(spec, seq_len=16)
    assert {*table["wrong"]} == {""}, table["wrong"].tolist()
    assert len(table) >= 2


@pytest.mark.parametrize(
    ("plan", "part", "message"),
    [
        ("Plan(frequency_scale=[self.factor])", "frozen plans", "plan is not frozen"),
        ("Plan(position_scale=random.random())", "frozen plans", "expected an equal one"),
        ("Plan(position_scale=0.5)", "a factor of 1", "changes something at L"),
        ("Plan(logit_scale=float('inf'))", "1x to 16x L", "at 16 tokens by a number that float32 does not have"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, plan: str, part: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(HEAD + plan)
    table = xt.check(f"{tmp_path / 'mine.py'}:Mine", seq_len=16).set_index("part")
    assert message in table.loc[part, "wrong"], table["wrong"].tolist()


def test_one_that_no_encoding_accepts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEAD.replace('"positions", "positions"', '"positions", "places"') + "Plan()")
    with pytest.raises(xt.UserError, match="no encoding accepts 'places'"):
        xt.check(f"{tmp_path / 'mine.py'}:Mine", seq_len=16)
