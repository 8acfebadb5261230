"""compare with earlier runs: which losses got worse, and which are gone."""

import math
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results

KEPT, ROOT = Path(__file__).parents[1] / "fixtures/rope", Path(__file__).parents[2]
TABLES = {"evals.parquet": results.EVALS, "eval_documents.parquet": results.EVAL_DOCUMENTS}
Row = dict[str, Any]
DOCUMENTS = xt.rows(KEPT, "documents")


def write(folder: Path, change: Callable[[Row], Row | None] = dict) -> Path:
    """The tables of RoPE, as trained and with PI, at 1x and 2x under two protocols, changed row by row."""
    folder.mkdir(parents=True)
    for name, table in TABLES.items():
        columns = [column.name for column in table.columns]
        changed = [change(row) for row in results.read(KEPT / name, table)]
        results.write(folder / name, [{c: row.get(c) for c in columns} for row in changed if row is not None], table)
    return folder


def adding(nats: float | Callable[[Row], float], **changes: Any) -> Callable[[Row], Row]:
    """What adds to the losses at 2x, and changes columns."""

    def change(row: Row) -> Row:
        more = nats(row) if callable(nats) else nats
        return row | changes | ({"loss": row["loss"] + more} if row["factor"] == 2 else {})

    return change


def of(folder: Path, name: str, seed: int = 0, more: float = 0.0, **changes: Any) -> None:
    """A run of its own, as trained."""
    own = {"run": f"{name}-{seed}", "seed": seed, "weights_sha256": f"{folder} {name} {seed}", "config_hash": name}
    change = adding(more, **own | {"model": name} | changes)
    write(folder / f"{name}-{seed}", lambda row: change(row) if row["extension"] == "as-trained" else None)


def verdicts(now: Path, before: Path, **named: Any) -> dict[tuple[str, float, str], str]:
    found = xt.compare(now, before, **named)
    assert (found["other"] == found["model"] + ", before").all()
    return {(row.protocol, row.factor, row.model): row.verdict for row in found.itertuples()}


def test_a_loss_that_got_worse_ends_the_command_with_1_after_the_tables(cli, tmp_path, monkeypatch) -> None:
    write(tmp_path / "before/rope")
    write(tmp_path / "now/rope", adding(0.05))
    monkeypatch.setenv("COLUMNS", "200")
    ended = cli("compare", "now", "before", "--fail-if", "worse")
    assert ended.error(1) == (
        "2 of 4 losses are worse than before, or gone: RoPE at 2x (windows) +0.050, RoPE at 2x (fixed-target) +0.050"
    )
    assert re.search(r"RoPE +RoPE, before +1 +\+0\.000 +\[.*\] +equivalent \(this run\)", ended.out)
    assert re.search(r"^ +2 +\+0\.050 +\[\+0\.050, \+0\.050\] +worse \(this run\)", ended.out, re.MULTILINE)
    said = cli("compare", "now", "before", "--fail-if", "worse", "--least-difference", 0.06).succeeded().err
    assert "none of 4 losses is worse than before" in said
    assert "RoPE + PI at 2x" in cli("compare", "now", "before", "--fail-if", "worse", "--extensions").error(1)
    assert len(cli("compare", "before", "now", "--fail-if", "worse", "--json").succeeded().out.splitlines()) == 4
    assert verdicts(tmp_path / "before", tmp_path / "now")["windows", 2.0, "RoPE"] == "better (this run)"


def test_an_earlier_report_will_do(without_pictures, tmp_path) -> None:
    xt.report(write(tmp_path / "before/rope"), tmp_path / "kept")
    now = write(tmp_path / "now/rope", adding(0.05))
    assert verdicts(now, tmp_path / "kept") == verdicts(now, tmp_path / "before")


def test_the_difference_is_that_of_the_same_documents(tmp_path) -> None:
    """Against a mean over documents by hand; one that varies between documents is not sure."""
    effect = pd.Series(np.random.default_rng(5).normal(0.03, 0.2, 99), range(99))
    number = {name: at for at, name in enumerate(sorted(set(DOCUMENTS["document"])))}
    mine = DOCUMENTS.query("protocol == 'windows' and factor == 2 and extension == 'as-trained'")
    weights = mine.groupby("document")["n_targets"].sum()
    mean = np.average(effect[weights.index.map(number)], weights=weights)

    def more(row: Row) -> float:
        if (row["protocol"], row["extension"]) != ("windows", "as-trained"):
            return 0.0
        return effect[number[row["document"]]] if "document" in row else mean

    found = xt.compare(write(tmp_path / "now/rope", adding(more)), write(tmp_path / "before/rope"))
    (row,) = found[(found["protocol"] == "windows") & (found["factor"] == 2)].to_dict("records")
    assert row["difference"] == pytest.approx(mean)
    assert row["low"] < 0 < row["high"]
    assert row["verdict"] == "undecided (this run)"


@pytest.mark.parametrize(
    ("now", "seeds", "verdict"),
    [
        ({0: 0.0, 1: 0.05}, [1], "better (this run)"),  # seed 1 alone is compared, with 0.10 before
        ({1: 0.11, 2: 0.59}, [1, 2], "undecided"),  # two seeds that differ are not sure
        ({1: 0.2}, [1], "worse (this run)"),
        ({1: 0.0}, [1], "worse (this run)"),  # it is better, but seed 2 is gone
    ],
)
def test_seeds_are_paired(tmp_path, now, seeds, verdict) -> None:
    before = {1: 0.1, 2: 0.5} if len(seeds) == 2 or now == {1: 0.0} else {1: 0.1}
    for side, losses in (("now", now), ("before", before)):
        for seed, more in losses.items():
            of(tmp_path / side, "RoPE", seed, more)
    found = xt.compare(tmp_path / "now", tmp_path / "before")
    at_2x = found[found["factor"] == 2]
    assert at_2x["seeds"].tolist() == [seeds] * 2
    assert set(at_2x["verdict"]) == {verdict}


def test_what_is_gone_is_worse_by_name(cli, tmp_path) -> None:
    for side in ("now", "before"):
        of(tmp_path / side, "RoPE")
        of(tmp_path / side, "NoPE", seed=int(side == "now"))
    of(tmp_path / "before", "ALiBi")
    of(tmp_path / "now", "new")
    said = cli("compare", "now", "before", "--fail-if", "worse").error(1)
    assert said.startswith("8 of 12 losses are worse than before, or gone: ")
    assert "ALiBi at 1x (windows) gone" in said
    assert "NoPE at 1x (windows) gone" in said, "it shares no seed"
    assert set(verdicts(tmp_path / "now", tmp_path / "before").values()) == {"worse", "equivalent (this run)"}
    of(tmp_path / "some", "RoPE", seed=1)
    of(tmp_path / "some", "RoPE")
    assert "(windows) +0.000 (a seed is gone)" in cli("compare", "now", "some", "--fail-if", "worse").error(1)


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_loss_that_is_gone_or_infinite_is_worse(tmp_path, loss) -> None:
    before = write(tmp_path / "before/rope")
    now = write(tmp_path / "now/rope", lambda row: row | ({"loss": loss} if row["factor"] == 2 else {}))
    with np.errstate(invalid="ignore"):
        found = verdicts(now, before)
        assert {place[1]: verdict.partition(" (")[0] for place, verdict in found.items()} == {
            1: "equivalent",
            2: "worse",
        }
        assert all(place[1] == 1 or "worse" not in verdict for place, verdict in verdicts(before, now).items())


def test_models_are_paired_on_the_same_targets_alone(cli, tmp_path) -> None:
    """Two sizes now, one of them before: its name before has no size in it. And other targets at one length."""
    for layers in (1, 2):
        size = {"layers": layers, "config_hash": f"{layers} layers", "model": "RoPE"}
        of(tmp_path / "now", f"{layers}", more=0.05 * layers, **size)
    of(tmp_path / "before", "2", layers=2, config_hash="2 layers", model="RoPE")
    found = xt.compare(tmp_path / "now", tmp_path / "before")
    assert set(found["model"]) == {"RoPE, 2 layers"}
    assert found[found["factor"] == 2]["difference"].to_numpy() == pytest.approx(0.1)

    def others(row: Row) -> Row:
        return row | {"targets_hash": "others"} if row["factor"] == 2 else row

    write(tmp_path / "usual/rope")
    write(tmp_path / "others/rope", others)
    found = verdicts(tmp_path / "usual", tmp_path / "others")
    assert {place[1]: verdict for place, verdict in found.items()} == {1: "equivalent (this run)", 2: "worse"}
    write(tmp_path / "again/rope", others)
    assert set(verdicts(tmp_path / "again", tmp_path / "others").values()) == {"equivalent (this run)"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"corpus_hash": "other"},
            "the runs differ in corpus_hash (e11bd6eb9efcd88d, other), and their results cannot",
        ),
        ({"precision": "bf16"}, "choose with --precision"),
        ({"targets_hash": "other"}, "no model has a loss on the same targets, and with the same seed, as before"),
        ({"model": "ALiBi"}, "no model has a loss on the same targets, and with the same seed, as before"),
    ],
)
def test_what_shares_nothing_is_refused(cli, tmp_path, changes, words) -> None:
    write(tmp_path / "now/rope")
    write(tmp_path / "before/rope", lambda row: row | changes)
    assert words in cli("compare", "now", "before", "--fail-if", "worse").error()


def test_two_folders_are_needed_and_documents(cli, tmp_path) -> None:
    for name in "abc":
        write(tmp_path / name / "rope")
    assert "name two folders, NOW and BEFORE" in cli("compare", "a", "b", "c", "--fail-if", "worse").error()
    (tmp_path / "b/rope/eval_documents.parquet").unlink()
    assert "eval_documents.parquet is missing" in cli("compare", "a", "b", "--fail-if", "worse").error()


def test_too_few_documents_are_no_pass(cli, tmp_path, monkeypatch) -> None:
    write(tmp_path / "now/rope")
    write(tmp_path / "before/rope")
    monkeypatch.setattr("extrapolate.statistics.intervals.FEWEST", 1000)
    assert "too few documents for a verdict" in cli("compare", "now", "before", "--fail-if", "worse").error()


def test_the_commands_of_the_page_run(cli, tmp_path) -> None:
    page = (ROOT / "docs/sharing.md").read_text(encoding="utf-8")
    made = subprocess.run(["make", "report", "QUICK=1", "-n"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"sweep \S*/(\S+)\.toml --scale (\w+)", made.stdout)
    assert found is not None
    report = f"sweeps/{found[1]}-{found[2]}/report"
    for name in ("ckpt/rope", report, "results/alice/rope"):
        write(tmp_path / name)
    write(tmp_path / "results/bob/rope", lambda row: row | {"seed": 1, "weights_sha256": "bob's"})
    (tmp_path / report / "report.md").touch()
    shell = re.findall(r"^((?:mkdir|cp) .*)$", page, re.MULTILINE)
    subprocess.run("\n".join(shell), shell=True, cwd=tmp_path, check=True)
    lines = re.findall(r"extrapolate ((?:report|compare) [^`]*?)(?:\n`|\n *- |\n(?=e))", page)
    assert len(lines) == 4
    for line in lines:
        cli(*shlex.split(line)).succeeded()
    (python,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(python, {})
