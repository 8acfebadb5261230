"""extrapolate inspect, from the command line: rows, tables, a report, and what is refused."""

import json
import shutil

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.inspection.measurements.base import measurements
from extrapolate.inspection.measurements.removal import Removal

FEW = ["--factors", "1,2", "--windows", "2"]


@pytest.fixture(scope="module")
def inspected(trained, tmp_path_factory):
    """A folder with the runs rope and learned, inspected."""
    folder = tmp_path_factory.mktemp("inspected") / "ckpt"
    for name in ("rope", "learned"):
        shutil.copytree(trained / name, folder / name)
    xt.inspect(folder, factors=(1, 2), windows=2, device="cpu")
    return folder


def rows_of(run) -> pd.DataFrame:
    return xt.rows(run, "inspections")


def test_every_quantity_has_rows_at_every_length(inspected):
    """The queries are the same at each: cut to L, they have the same context, and the same loss."""
    rows = rows_of(inspected / "rope")
    wanted = {(name, quantity) for name in measurements.names() for quantity in measurements[name].quantities}
    for _, mine in rows.groupby("factor"):
        assert set(zip(mine["measurement"], mine["quantity"], strict=True)) == wanted
        assert set(mine["n_windows"]) == {2}
    assert rows["reason"].isna().all()
    assert not rows.duplicated(list(results.INSPECTIONS.key)).any()
    masses = rows[rows["quantity"] == "mass"].groupby(["factor", "layer", "head"])["value"].sum()
    assert masses.tolist() == pytest.approx([1.0] * len(masses), abs=1e-5)
    cut = rows[(rows["measurement"] == "truncation") & (rows["quantity"] == "loss") & (rows["at"] == 8)]
    assert len(cut) == 2
    assert cut["value"].iloc[0] == pytest.approx(cut["value"].iloc[1], abs=1e-5)
    assert rows["targets_hash"].nunique() == 1


def test_what_cannot_be_measured_says_why(inspected):
    rows = rows_of(inspected / "learned")
    beyond = rows[rows["factor"] == 2]
    assert beyond["value"].isna().all()
    assert set(beyond["reason"]) == {"the encoding is not defined at 32 tokens"}
    near = rows[(rows["factor"] == 1) & (rows["measurement"] == "frequencies")]
    assert near["reason"].str.contains("pairs of channels").all()
    assert set(near["quantity"]) == set(measurements["frequencies"].quantities)


def test_again_replaces_the_rows_and_an_extension_adds_its_own(cli, inspected, tmp_path):
    run = shutil.copytree(inspected / "rope", tmp_path / "rope")
    before = rows_of(run)
    shown = cli("inspect", run, *FEW, "--measure", "attention", "--extend", "pi:factor=2").succeeded().out
    for words in ("RoPE (rope): by evaluation length", "Attention beyond L", "attention by distance"):
        assert words in shown
    after = rows_of(run)
    assert len(after) == len(before) + (before["measurement"] == "attention").sum()
    assert set(after["model"]) == {"RoPE", "RoPE + PI(2)"}
    key = [name for name in results.INSPECTIONS.key if name != "extension"]
    wide = after[after["measurement"] == "attention"].pivot(index=key, columns="extension", values="value")
    assert (wide["as-trained"] - wide["pi:factor=2"]).abs().max() > 1e-6
    lines = cli("inspect", run, *FEW, "--measure", "receptive-field", "--json").succeeded().out.splitlines()
    field = [row["value"] for row in map(json.loads, lines) if row["quantity"] == "receptive_field"]
    assert len(field) == 2
    assert all(1 <= tokens <= 32 for tokens in field)


@pytest.mark.usefixtures("without_pictures")
def test_a_report_shows_them_beside_other_results_or_alone(cli, evaluated, inspected, tmp_path):
    cli("report", inspected, "--out", "alone").succeeded()
    page = (tmp_path / "alone/report.md").read_text()
    for words in ("## How RoPE (rope) uses position", "(inspection-1.png)", "(inspection-frequencies-2.png)"):
        assert words in page
    assert "## How Learned (learned) uses position" in page
    assert "Not measured at 2x: attention, frequencies, heads" in page
    assert len(rows_of(tmp_path / "alone")) == sum(len(rows_of(inspected / name)) for name in ("rope", "learned"))
    shutil.copytree(evaluated / "rope", tmp_path / "both/rope")
    shutil.copytree(inspected / "rope/results", tmp_path / "both/rope/results", dirs_exist_ok=True)
    cli("report", tmp_path / "both", "--out", "alone").succeeded()
    page = (tmp_path / "alone/report.md").read_text()
    assert page.index("## Protocol") < page.index("## How RoPE (rope) uses position")


def test_bad_input_is_refused_before_any_work(cli, inspected, contents):
    before = contents(inspected)
    for words, *flags in (
        ("unknown measurement 'attentoin'; did you mean 'attention'?", "--measure", "attentoin"),
        ("--windows must be at least 1, not 0", "--windows", "0"),
        ("too short", "--factors", "0.0625"),
        ("no held-out document holds", "--factors", "1000"),
    ):
        assert words in cli("inspect", inspected / "rope", *flags).error()
    assert contents(inspected) == before


def test_a_stop_keeps_the_lengths_that_are_done(cli, ckpt, monkeypatch):
    measure = Removal.measure

    def stop(inspected):
        if inspected.length > 16:
            raise KeyboardInterrupt
        return measure(inspected)

    monkeypatch.setattr(Removal, "measure", staticmethod(stop))
    ended = cli("inspect", ckpt / "rope", *FEW, "--measure", "removal")
    assert ended.code == 130
    assert "the lengths before this one are kept" in ended.err
    assert set(rows_of(ckpt / "rope")["factor"]) == {1}


def test_a_model_of_another_library_has_what_needs_predictions_alone(cli, trained, tmp_path, store):
    (tmp_path / "mine.py").write_text(
        "import torch\nimport extrapolate as xt\n\n\ndef load():\n"
        "    torch.manual_seed(0)\n"
        "    table = torch.randn(400, 400)\n"
        f"    return xt.foreign(lambda tokens: table[tokens], 'Bigram', seq_len=16, tokenizer={str(store)!r})\n"
    )
    cli("inspect", "mine.py:load", "--data", store, *FEW).succeeded()
    rows = rows_of(tmp_path / "ckpt/foreign-Bigram")
    assert set(rows[rows["value"].notna()]["measurement"]) == {"removal", "truncation"}
    assert rows[rows["quantity"] == "tv"]["value"].max() == pytest.approx(0, abs=1e-6)
