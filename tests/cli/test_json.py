"""`--json` prints exactly the documented keys, with values of the documented types."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import printed
import pyarrow as pa
import pytest
import typer

from extrapolate import benchmark, results
from extrapolate.cli.commands import app
from extrapolate.cli.render import print_json
from extrapolate.studies import sweep as sweeping
from extrapolate.studies.estimate import Estimate


@pytest.fixture
def speeds(monkeypatch):
    """Nothing is measured: `learned` does not reach the second length of `bench --encodings`."""
    beside = benchmark.BesideRoPE(*2 * (benchmark.Speed([1.0], 100, 50.0, 0.0),))
    modes = ("1x fp32", "16x fp32", "eager")
    found = {"rope": dict.fromkeys(modes, beside), "learned": dict.fromkeys(("1x fp32", "eager"), beside)}
    monkeypatch.setattr(benchmark, "measure_encodings", lambda *_: iter(found.items()))
    each = {"rope-s0": 1.5}
    monkeypatch.setattr(sweeping, "estimate", lambda ready, jobs, tell: Estimate(jobs, each, each))


@pytest.fixture
def study(tmp_path, small_study):
    (tmp_path / "begun").mkdir()
    for name in ("study.toml", "begun/study.toml"):
        (tmp_path / name).write_text(small_study)


def lines_of(ended):
    found = [json.loads(line, parse_constant=pytest.fail) for line in ended.succeeded().out.splitlines()]
    assert found
    return found


def check_value(value, type, where):
    if pa.types.is_list(type):
        assert isinstance(value, list), where
        for one in value:
            check_value(one, type.value_type, where)
    elif pa.types.is_struct(type):
        assert list(value) == [field.name for field in type], where
        assert all(isinstance(one, str) for one in value.values()), where
    elif pa.types.is_boolean(type) or pa.types.is_integer(type):
        assert isinstance(value, bool) == pa.types.is_boolean(type), where
        assert isinstance(value, int), where
    else:
        kinds = (int, float) if pa.types.is_floating(type) else str
        assert isinstance(value, kinds), where
        assert not isinstance(value, bool), where


def check_rows(found, columns):
    for row in found:
        assert row.keys() == {column.name for column in columns}
        for column in columns:
            if row[column.name] is None:
                assert not column.required, column.name
            else:
                check_value(row[column.name], column.type, column.name)


COMMANDS = [
    ("compare", ["{evaluated}", "--extensions", "--correct", "holm"], printed.COMPARE),
    ("status", ["begun"], printed.STATUS),
    ("sweep", ["study.toml", "--dry-run", "--jobs", "1"], printed.DRY_RUN),
    ("eval-lengths", ["{evaluated}", "--max-targets", "256", "--probes", "copy", "--dry-run"], printed.ESTIMATE),
    ("export", ["{evaluated}/rope", "--out", "exported"], printed.EXPORT),
    ("check", ["alibi", "--seq-len", "8"], printed.CHECK),
    ("bench", ["--encodings"], printed.BENCH),
    ("bench", ["--seq-len", "8", "--no-compile", "--seconds", "0.1"], printed.BENCH),
    ("encodings", ["t5", "rope"], printed.ENCODINGS),
    ("extensions", [], printed.EXTENSIONS),
    ("columns", [], printed.COLUMNS),
]


@pytest.mark.usefixtures("speeds", "study", "quick_measurements")
@pytest.mark.parametrize(
    ("command", "arguments", "described"), COMMANDS, ids=lambda value: getattr(value, "name", None)
)
def test_keys_and_types_are_the_documented_ones(cli, evaluated, command, arguments, described):
    arguments = [argument.format(evaluated=evaluated) for argument in arguments]
    check_rows(lines_of(cli(command, *arguments, "--json")), described.columns)


@pytest.mark.usefixtures("without_pictures")
def test_rows_of_a_report_are_those_of_its_table(cli, evaluated, tmp_path):
    found = lines_of(cli("report", evaluated, "--json"))
    check_rows(found, printed.REPORT.columns)
    table = results.read_frame(tmp_path / "report/loss_by_ev.parquet").set_index("Model")
    rows = [row for row in found if row["protocol"] == "windows"]
    assert len(rows) == table.filter(like="Loss").size
    assert all(row["loss"] == table.loc[row["model"], f"Loss (ev={row['factor']:g})"] for row in rows if row["loss"])
    assert all(row["low"] <= row["difference"] <= row["high"] for row in rows if row["low"] is not None)


def test_rows_of_an_evaluation_are_those_of_its_tables(cli, ckpt):
    few = ["--factors", "1,2", "--max-targets", "256", "--protocol", "windows", "--protocol", "sliding"]
    few += ["--probes", "copy:symbols=2", "--probes", "needle", "--probe-trials", "2"]  # named again, it is one more
    found = lines_of(cli("eval-lengths", ckpt / "learned", *few, "--json"))
    check_rows([row for row in found if "protocol" in row], results.EVALS.columns)
    check_rows([row for row in found if "probe" in row], results.PROBES.columns)
    assert {row.get("protocol") or row["probe"] for row in found} == {"windows", "sliding", "copy:symbols=2", "needle"}


def test_a_sweep_ends_with_its_cells(cli, study, monkeypatch):
    done = SimpleNamespace(folder=Path("begun"), runs=["rope-s0"], reports={}, failed={}, diverged={})
    monkeypatch.setattr(sweeping, "sweep", lambda *_, **__: done)
    found = lines_of(cli("sweep", "study.toml", "--json"))
    assert [(row["cell"], row["status"], row["tokens"]) for row in found] == [("rope-s0", "left", 0)]
    assert lines_of(cli("status", "begun", "--json")) == found


def test_every_option_is_documented_and_every_table_belongs_to_one():
    group = typer.main.get_group(app)
    having = {name for name, command in group.commands.items() if any("--json" in o.opts for o in command.params)}
    assert {"eval-lengths", *(command for command, _, _ in COMMANDS)} <= having
    said = (Path(__file__).parents[2] / "docs/results.md").read_text(encoding="utf-8")
    assert all(f"`extrapolate {name}" in said for name in having)
    assert {described.name for _, _, described in COMMANDS} | {printed.REPORT.name} == {
        one.name for one in printed.PRINTED
    }


def test_numbers_that_json_does_not_have_are_text(capsys):
    print_json([{"loss": math.nan, "each": [math.inf, -math.inf, 1.5], "none": None}])
    assert json.loads(capsys.readouterr().out) == {"loss": "nan", "each": ["inf", "-inf", 1.5], "none": None}
