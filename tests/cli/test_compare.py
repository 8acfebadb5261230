"""Comparing evaluated runs."""

import json
import re
import shutil
import warnings
from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.statistics.intervals import holm, interval

FEW = ["--factors", "1,4", "--max-targets", "2048", "--protocol", "windows"]


@pytest.fixture(scope="module")
def _evaluated(quietly, trained, tiny, tmp_path_factory) -> Path:
    """In ckpt, RoPE, ExPE and NoPE; in more, RoPE of another seed and at another rate, and ALiBi. All evaluated."""
    folder = tmp_path_factory.mktemp("compared")
    for name in ("rope", "expe", "none"):
        shutil.copytree(trained / name, folder / "ckpt" / name)
    more = {"rope-s1": ["rope", "--seed", 1], "alibi": ["alibi", "--seed", 1], "other": ["rope", "--lr", 0.001]}
    commands = [["train", "--pe", *flags, *tiny, "--out", folder / "more" / name] for name, flags in more.items()]
    for command in (*commands, ["eval-lengths", folder, *FEW]):
        quietly(*command)
    return folder


@pytest.fixture
def evaluated(_evaluated, tmp_path):
    """Those runs in the test's own folder; the path of ckpt."""
    return shutil.copytree(_evaluated, tmp_path, dirs_exist_ok=True) / "ckpt"


def lines_of(ended) -> pd.DataFrame:
    return pd.DataFrame(json.loads(line) for line in ended.succeeded().out.splitlines())


def test_every_pair_and_every_control_at_every_factor(cli, evaluated):
    rows = lines_of(cli("compare", "ckpt", "--json"))
    pairs = set(zip(rows["model"], rows["other"], strict=True))
    controls = {(model, "its control") for model in ("RoPE", "ExPE", "NoPE")}
    assert controls < pairs
    assert {frozenset(pair) for pair in pairs - controls} == {
        frozenset(pair) for pair in (("RoPE", "ExPE"), ("RoPE", "NoPE"), ("ExPE", "NoPE"))
    }
    assert sorted(rows["factor"].unique()) == [1, 4]
    assert len(rows) == 2 * 6
    evals = pd.concat(xt.rows(evaluated / name) for name in ("rope", "expe", "none"))
    loss = evals.set_index(["model", "factor"])
    for row in rows.itertuples():
        mine = loss.loc[row.model, row.factor]
        other = mine["control_loss"] if row.other == "its control" else loss.loc[(row.other, row.factor), "loss"]
        assert row.difference == pytest.approx(mine["loss"] - other, abs=1e-9)


def test_few_documents_are_replaced_by_stretches_of_them(cli, evaluated):
    ended = cli("compare", "ckpt/rope", "--json")
    row = lines_of(ended).iloc[0]
    documents = xt.rows(evaluated / "rope", "documents").query("factor == 1")
    documents["sum"] = (documents["loss"] - documents["control_loss"]) * documents["n_targets"]
    stretches = documents.groupby(["document", "block"])[["sum", "n_targets"]].sum()
    assert (row["cluster"], row["clusters"]) == ("stretches", len(stretches))
    assert documents["document"].nunique() < 30
    expected = interval(stretches["sum"].to_numpy(), stretches["n_targets"].to_numpy(float))
    if row["verdict"] != "too few":
        assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert "fewer than 30 documents" in cli("compare", "ckpt/rope").succeeded().err


def test_seeds_are_replicates_of_one_model(cli, evaluated):
    rows = lines_of(cli("compare", "ckpt/rope", "more/rope-s1", "--json"))
    assert set(rows["model"]) == {"RoPE"}
    assert set(rows["other"]) == {"its control"}
    assert set(rows["n_seeds"]) == {2}
    assert rows["seeds"].to_list() == [[0, 1]] * len(rows)
    evals = pd.concat(xt.rows(evaluated / name) for name in ("rope", "../more/rope-s1"))
    by_seed = evals[evals["factor"] == 4].eval("loss - control_loss")
    row = rows[rows["factor"] == 4].iloc[0]
    assert row["difference"] == pytest.approx(by_seed.mean(), abs=1e-9)
    assert row["by_seed"] == pytest.approx(by_seed.to_list(), abs=1e-9)
    out = cli("compare", "ckpt/rope", "more/rope-s1").succeeded().out
    assert ", ".join(f"{one:+.3f}" for one in by_seed) in out
    assert "this run" not in out


def test_one_model_is_compared_with_all_others(cli, evaluated, tmp_path, without_pictures):
    """As in the table of differences of a report with this baseline."""
    rows = lines_of(cli("compare", "ckpt", "--against", "ExPE", "--json"))
    assert set(zip(rows["model"], rows["other"], strict=True)) == {("RoPE", "ExPE"), ("NoPE", "ExPE")}
    loss = {name: xt.rows(evaluated / name).set_index("factor")["loss"] for name in ("rope", "expe")}
    of_rope = rows[rows["model"] == "RoPE"].set_index("factor")["difference"]
    assert of_rope.to_dict() == pytest.approx((loss["rope"] - loss["expe"]).to_dict(), abs=1e-9)
    xt.report("ckpt", tmp_path / "report", baseline="expe")
    table = (tmp_path / "report/report.md").read_text().partition("Difference from ExPE")[2]
    assert re.search(
        rf"\| RoPE \| {re.escape(f'{of_rope[1]:+.3f}')} \[.*\| {re.escape(f'{of_rope[4]:+.3f}')} \[", table
    )
    assert "no model is called 'expe' here; known: ExPE, NoPE, RoPE" in cli(
        "compare", "ckpt", "--against", "expe"
    ).error(2)


def test_only_shared_seeds_are_compared(cli, evaluated):
    """Two seeds of RoPE, and an extension evaluated on one of them: the difference is that seed's own, at every length.

    A factor of 1 changes nothing, so that every difference is exactly zero.
    """
    cli("eval-lengths", "ckpt/rope", "--extend", "pi:factor=1", *FEW).succeeded()
    assert set(lines_of(cli("compare", "ckpt/rope", "--json"))["model"]) == {"RoPE"}
    rows = lines_of(cli("compare", "ckpt/rope", "more/rope-s1", "--extensions", "--json")).set_index(["model", "other"])
    pair = rows.loc[("RoPE", "RoPE + PI(1)")]
    assert pair["difference"].to_list() == [0.0, 0.0]
    assert pair["verdict"].isin(["undecided (this run)", "equivalent (this run)", "too few"]).all()
    assert pair["seeds"].to_list() == [[0], [0]]
    assert rows.loc[("RoPE", "its control")]["seeds"].to_list() == [[0, 1], [0, 1]]


def test_models_without_a_shared_seed_get_no_verdict(cli, evaluated):
    rows = lines_of(cli("compare", "ckpt/rope", "more/alibi", "--json")).set_index(["model", "other"])
    pair = rows.loc[("RoPE", "ALiBi")]
    assert set(pair["verdict"]) == {"no shared seed"}
    assert pair[["difference", "low", "high"]].isna().all(axis=None)
    said = cli("compare", "ckpt/rope", "more/alibi").succeeded().err
    assert "cannot be compared: train and evaluate them with the same --seed" in said


def test_one_set_of_targets_is_compared_and_the_rest_is_said(cli, evaluated):
    """Two evaluations of other sizes must not be shown one over the other; a call warns of it, and prints nothing."""
    runs = [evaluated / "rope", evaluated / "none"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xt.compare(runs)
    cli("eval-lengths", "ckpt/rope", "--factors", "1,4", "--max-targets", 1024, "--protocol", "windows").succeeded()
    ended = cli("compare", *runs, "--json")
    rows = lines_of(ended)
    assert not rows.duplicated(["protocol", "factor", "model", "other"]).any()
    assert ("RoPE", "NoPE") in set(zip(rows["model"], rows["other"], strict=True))
    assert "left out rows on other targets" in ended.err
    with pytest.warns(UserWarning, match="^windows: left out rows on other targets") as warned:
        xt.compare(runs)
    assert {Path(one.filename) for one in warned} == {Path(__file__)}


def test_a_model_without_a_loss_at_any_of_the_lengths_is_named(cli, evaluated, trained):
    shutil.copytree(trained / "learned", "more/learned")
    few = ["--factors", "2,4", "--max-targets", 256, "--protocol", "windows"]
    cli("eval-lengths", "ckpt/rope", "ckpt/none", "more/learned", *few).succeeded()
    said = cli("compare", "ckpt/rope", "ckpt/none", "more/learned").succeeded().err
    assert "warning: not compared at 2x, 4x, where the loss is n/a: Learned" in said


def test_the_table_says_what_it_shows(cli, evaluated):
    out = cli("compare", "ckpt/rope", "ckpt/none", "--confidence", 0.9).succeeded().out
    assert "90% interval" in out
    assert any(f"{word} (this run)" in out for word in ("better", "worse", "equivalent", "undecided"))
    assert "by seed" not in out  # it would say the same as the mean
    assert "(Holm)" not in out


def test_a_correction_for_many_comparisons(cli, evaluated):
    plain = lines_of(cli("compare", "ckpt", "--json"))
    rows = lines_of(cli("compare", "ckpt", "--json", "--correct", "holm"))
    assert plain["p_corrected"].isna().all()
    assert rows["p"].equals(plain["p"])
    counting = rows.dropna(subset="p")
    assert counting["p_corrected"].to_list() == pytest.approx(holm(counting["p"].to_list()))
    assert not (counting["verdict"].str.startswith(("better", "worse")) & (counting["p_corrected"] >= 0.05)).any()
    out = " ".join(cli("compare", "ckpt", "--correct", "holm").succeeded().out.split())
    assert f"corrected for the number of comparisons, {len(counting)} (Holm)" in out
    assert "unknown correction 'holms'; did you mean 'holm'?" in cli("compare", "ckpt", "--correct", "holms").error()


def test_what_cannot_be_compared_is_refused(evaluated, trained, refused):
    refused(["compare", "nowhere"], "no such folder")
    refused(["compare", trained / "learned"], "holds no evaluated run")


def test_models_of_one_encoding_are_told_apart_by_what_differs(evaluated, cli):
    ended = cli("compare", "ckpt/rope", "more/other", "--json")
    assert set(lines_of(ended)["model"]) == {"RoPE, lr 0.02", "RoPE, lr 0.001"}
    assert "the models were not trained alike (lr 0.001, 0.02)" in ended.err


def test_a_model_below_the_optimum_is_told(cli, evaluated, edit_rows):
    for table in (results.EVALS, results.EVAL_DOCUMENTS):
        edit_rows(evaluated / "rope", table, lambda row: row | {"optimum_loss": row["loss"] + 0.5})
    ended = cli("compare", "ckpt/rope", "--json")
    rows = lines_of(ended).query("other == 'the optimum'")
    assert rows["difference"].to_list() == pytest.approx([-0.5] * 2)
    assert "RoPE is below the optimum at 4x" in ended.err


def test_one_precision_of_several(cli, evaluated):
    cli("eval-lengths", "ckpt/rope", *FEW, "--precision", "bf16").succeeded()
    assert "choose with --precision" in cli("compare", "ckpt/rope").error()
    rows = lines_of(cli("compare", "ckpt/rope", "--precision", "bf16", "--json"))
    assert rows["other"].to_list() == ["its control"] * 2
