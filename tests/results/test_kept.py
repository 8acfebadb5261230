"""Where the rows of a run lie: by weights, by what was asked, and by extension, so that nothing has to be repaired."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.results import kept

FIXTURE = Path(__file__).parents[1] / "fixtures/rope"
FEW: dict[str, Any] = {"factors": (1, 2), "max_targets": 64, "device": "cpu"}
Row = dict[str, Any]


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "rope", tmp_path / "ckpt/rope"))


@pytest.fixture(scope="module")
def losses() -> list[Row]:
    """Rows of RoPE as trained, at 1x and 2x."""
    rows = results.read(FIXTURE / "evals.parquet", results.EVALS)
    return [row for row in rows if (row["extension"], row["protocol"]) == ("as-trained", "windows")]


def names(run: Path) -> list[str]:
    return sorted(path.relative_to(run / "results").as_posix() for path in (run / "results").rglob("*.parquet"))


def test_every_setting_has_a_file_that_pandas_reads_with_its_folder(run: Path) -> None:
    how: Row = {"extend": "pi:factor=2", "precisions": ["fp32", "bf16"]}
    xt.evaluate(run, **FEW, **how)
    xt.evaluate_probes(run, "copy", factors=(1, 2), trials=2, device="cpu", **how)
    (weights,) = (run / "results").iterdir()
    of_text = [f"{name}{precision}.parquet" for name in ("as-trained", "pi:factor=2") for precision in ("", ".bf16")]
    folders = [f"{place}{one}" for place in ("", "documents/") for one in ("windows", "fixed-target")]
    assert names(run) == sorted(f"{weights.name}/{one}/{file}" for one in (*folders, "probes/copy") for file in of_text)
    read = pd.read_parquet(weights / "windows")
    assert {*zip(read["extension"], read["precision"], read["factor"], strict=True)} == {
        (extension, precision, factor)
        for extension in ("as-trained", "pi:factor=2")
        for precision in ("fp32", "bf16")
        for factor in (1, 2)
    }
    assert len(pd.read_parquet(weights / "documents/windows")) == len(
        xt.rows(run, "documents").query("protocol == 'windows'")
    )


def test_another_evaluation_writes_only_its_own_files(run: Path, contents: Callable[[Path], dict[str, bytes]]) -> None:
    xt.evaluate(run, **FEW, protocols="windows", extend="pi:factor=2")
    before = contents(run)
    xt.evaluate(run, **FEW | {"factors": (4,)}, protocols="windows", extend="pi:factor=4")
    changed = {name for name, content in contents(run).items() if before.get(name) != content}
    assert {Path(name).name for name in changed} == {"as-trained.parquet", "pi:factor=4.parquet"}
    rows = xt.rows(run).query("extension == 'as-trained'")
    assert sorted(rows["factor"]) == [1, 2, 4]


def test_rows_replace_those_of_the_same_key_and_of_other_versions_of_their_file(
    tmp_path: Path, losses: list[Row]
) -> None:
    at_1, at_2 = losses
    own = {"extension": "x.py:X", "extension_sha256": "a" * 64}
    for rows in ([at_1 | own], [at_2 | own, at_2 | own | {"precision": "bf16"}], [at_1 | own | {"loss": 7.0}]):
        kept.add(tmp_path, results.EVALS, rows)
    found = kept.read_kept(tmp_path, results.EVALS)
    assert found is not None
    assert {(row["factor"], row["precision"], row["loss"] == 7.0) for row in found.to_pylist()} == {
        (1, "fp32", True), (2, "fp32", False), (2, "bf16", False),
    }  # fmt: skip
    kept.add(tmp_path, results.EVALS, [at_1 | own | {"extension_sha256": "b" * 64}])
    assert [name.rpartition("/")[2] for name in names(tmp_path)] == [
        "x.py:X@aaaaaaaaaaaa.bf16.parquet", "x.py:X@bbbbbbbbbbbb.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize("extension", ["a/b.py:X(a='é')", "longrope(short=[" + "1.0, " * 60 + "1.0])"])
def test_any_extension_has_a_file_name(tmp_path: Path, losses: list[Row], extension: str) -> None:
    other = extension.replace("X", "Y").replace("1.0])", "2.0])")
    for text in (extension, other):
        kept.add(tmp_path, results.EVALS, [losses[0] | {"extension": text}])
    found = kept.read_kept(tmp_path, results.EVALS)
    assert found is not None
    assert sorted(found["extension"].to_pylist()) == sorted([extension, other])
    assert len(names(tmp_path)) == 2


def test_the_weights_of_a_run_begin_with_its_last(trained: Path, run: Path) -> None:
    last, *others = kept.weights_in(run) or []
    assert last == xt.load(run).checkpoints("last")[-1].sha256
    assert {last, *others} == {one.sha256 for one in xt.load(run).checkpoints("all")}
    (run / "model.safetensors").write_bytes(b"damaged")
    assert kept.weights_in(run) == []
    (run / "model.safetensors").unlink()
    assert kept.weights_in(run) is None
    (run / "state.safetensors").touch()
    assert kept.weights_in(run) == []
