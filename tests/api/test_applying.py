"""Several runs and extensions that do not apply to all of them: each is applied where it applies."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt

ROOT = Path(__file__).parents[2]
FEW = dict(factors=(1, 2), protocols=["windows"], max_targets=256)
FLAGS = ["--factors", "1,2", "--protocol", "windows", "--max-targets", "256"]
LINE = "yarn is left out for {}: yarn does not apply to ExPE: it changes frequencies, and ExPE has none that can be"


def asked(table: pd.DataFrame) -> dict[str, set[str]]:
    return {run: set(mine["extension"]) for run, mine in table.groupby("run")}


def test_each_is_applied_where_it_applies_and_the_rest_is_said(ckpt: Path) -> None:
    with pytest.warns(UserWarning, match=re.escape(LINE.format(ckpt / "expe"))) as warned:
        table = xt.evaluate([ckpt / "rope", ckpt / "expe"], extend=["pi", "yarn", "all"], **FEW)
    assert [Path(warning.filename) for warning in warned] == [Path(__file__)]
    assert table.attrs["left_out"] == [str(warning.message) for warning in warned]
    found = asked(table)
    assert {"as-trained", "pi", "yarn"} < found["rope"]
    assert {"as-trained", "pi", "expe-scale"} < found["expe"]
    assert "yarn" not in found["expe"]
    for name in ("rope", "expe"):
        assert set(xt.rows(ckpt / name)["extension"]) == found[name]


@pytest.mark.parametrize(
    ("runs", "extend", "message"),
    [
        (["rope", "none"], "expe-scale", "^expe-scale applies to none of these runs: expe-scale does not apply to"),
        (["expe"], "yarn", "^yarn does not apply to ExPE: .* what applies: .*expe-scale"),
        (["rope", "expe"], "yarm", "did you mean 'yarn'"),
    ],
)
def test_what_applies_to_none_or_is_malformed_is_refused(
    ckpt: Path, runs: list[str], extend: str, message: str
) -> None:
    with pytest.raises(xt.UserError, match=message):
        xt.evaluate([ckpt / name for name in runs], extend=extend, **FEW)
    assert not list(ckpt.rglob("results"))


@pytest.mark.parametrize("call", [xt.evaluate, xt.inspect])
def test_no_run_at_all_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(xt.UserError, match="name at least one run"):
        call([])


def test_the_command_says_it_on_stderr_and_succeeds(cli: Callable[..., Any], ckpt: Path) -> None:
    ended = cli("eval-lengths", "ckpt/rope", "ckpt/expe", "--extend", "yarn", *FLAGS, "--json").succeeded()
    assert LINE.format("ckpt/expe") in ended.err
    assert "Warning" not in ended.err
    rows = map(json.loads, ended.out.splitlines())
    assert {(row["run"], row["extension"]) for row in rows} == {
        ("rope", "as-trained"), ("rope", "yarn"), ("expe", "as-trained")
    }  # fmt: skip


def test_a_file_of_ones_own_is_kept_with_the_runs_that_it_is_applied_to(ckpt: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "my_extension.py", tmp_path / "mine.py")
    with pytest.warns(UserWarning, match="RootScale is left out for .*none: mine.py:RootScale does not apply to NoPE"):
        xt.evaluate([ckpt / "rope", ckpt / "none"], extend=f"{tmp_path / 'mine.py'}:RootScale", **FEW)
    assert list((ckpt / "rope" / "extensions").iterdir())
    assert not (ckpt / "none" / "extensions").exists()


def test_a_model_of_another_library_is_evaluated_without_any(
    ckpt: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ckpt.parent)
    other = xt.foreign(xt.load(ckpt / "rope").model, "Other", seq_len=16, tokenizer=store)
    with pytest.warns(UserWarning, match="pi is left out for .*foreign-Other: pi does not apply to Other"):
        table = xt.evaluate([ckpt / "rope", other], extend="pi", data=store, **FEW)
    assert asked(table) == {"rope": {"as-trained", "pi"}, "foreign-Other": {"as-trained"}}


def test_inspections_and_probes_leave_out_the_same(ckpt: Path) -> None:
    runs = [ckpt / "rope", ckpt / "expe"]
    with pytest.warns(UserWarning, match="yarn is left out for "):
        seen = xt.inspect(runs, measures="attention", factors=(1,), extend="yarn", windows=1)
    with pytest.warns(UserWarning, match="yarn is left out for "):
        probed = xt.evaluate_probes(runs, "copy", trials=1, factors=(1,), extend="yarn")
    assert asked(seen) == asked(probed) == {"rope": {"as-trained", "yarn"}, "expe": {"as-trained"}}
    assert seen.attrs == probed.attrs
