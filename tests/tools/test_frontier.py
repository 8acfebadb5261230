"""tools/frontier.py makes a page from kept rows."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.reports.page import Table
from extrapolate.results import kept

DOCS = Path(__file__).parents[2] / "docs"
FIXTURE = Path(__file__).parents[1] / "fixtures/rope"


@pytest.fixture
def frontier(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("frontier")


def losses_of(model: str, seed: int, at_16: float | None, key: float) -> list[dict]:
    row = {
        "model": model, "encoding": model.lower(), "seed": seed, "protocol": "fixed-target", "key_control_loss": 2.0,
        "n_documents": 52, "n_key": 7, "tokens": 4_000_000, "seq_len": 64, "parameters": 1_400_000,
        "training_machine": "a machine", "training_commit": "abc", "evaluated_at": pd.Timestamp("2026-01-02"),
        "weights_sha256": f"{model} {seed}",
    }  # fmt: skip
    near = row | {"factor": 1.0, "loss": 3.0 + seed, "key_loss": 2.0}
    return [near, row | {"factor": 16.0, "loss": at_16, "key_loss": key}, near | {"protocol": "windows", "loss": 9.0}]


def probes_of(model: str, accuracy: float) -> list[dict]:
    row = {"model": model, "n_answers": 32}
    return [
        row | {"run": f"{model}{seed}", "seed": seed, "factor": factor, "depth": depth, "accuracy": found}
        for seed in (0, 1)
        for factor in (1.0, 4.0, 16.0)
        for depth, found in ((0.0, accuracy + seed / 10), (0.5, accuracy + seed / 5), (1.0, 1.0))
    ]


@pytest.fixture
def rows(frontier: ModuleType) -> NamedTuple:
    losses = [
        *losses_of("RoPE", 0, 4.0, 2.5), *losses_of("RoPE", 1, 4.5, 2.7), *losses_of("NoPE", 0, 4.1, 1.75),
        *losses_of("Learned", 0, None, float("nan")),
    ]  # fmt: skip
    probes = [*probes_of("RoPE", 0.5), *probes_of("NoPE", 0.8), *probes_of("Learned", float("nan"))]
    return frontier.Rows(pd.DataFrame(losses), pd.DataFrame(probes), pd.DataFrame())


def test_the_table_has_means_and_the_needles_of_every_seed(frontier, rows) -> None:
    table = frontier.table(rows).set_index("Model")
    assert list(table.index) == ["NoPE", "RoPE", "Learned"], "the lowest at 16x first, and last what has none"
    assert dict(table.loc["RoPE", ["1x", "16x", "Needle 1x", "Needle 16x"]]) == {
        "1x": "3.500", "16x": "4.250", "Needle 1x": "0.72", "Needle 16x": "0.57 (0.50 to 0.65)",
    }  # fmt: skip
    assert set(table.loc["Learned", ["16x", "Needle 16x"]]) == {"n/a"}


def test_the_page_says_what_its_rows_are(frontier, rows) -> None:
    page = " ".join(frontier.page(rows, "NoPE wins.", "By hand.").split())
    assert "3 models of about 1.4 million parameters, 4 runs in all, each trained on 4,000,000 tokens of" in page
    assert "Trained on a machine, 2026-01-02, with commits abc. " in page
    assert "**NoPE wins.** By hand. ## Loss by length" in page
    assert "more than L tokens before the question, 64 per model and seed. Guessing finds 0.06." in page
    assert "| [Learned](../encodings.md#learned) | 3.000 | n/a |" in page


def test_runs_whose_weights_have_rows_are_not_added_again(frontier, tmp_path) -> None:
    (row, *_) = results.read(FIXTURE / "evals.parquet", results.EVALS)
    for name, weights, extension in (
        ("kept", "a", "x"),
        ("runs/old", "a", "x"),
        ("runs/new", "b", "x"),
        ("runs/y", "a", "y"),
    ):
        run = tmp_path / name
        kept.add(run, results.EVALS, [row | {"weights_sha256": weights, "extension": extension}])
        (run / "config.json").touch()
    found = frontier.unknown(tmp_path / "kept", [tmp_path / "runs"])
    assert found == [tmp_path / "runs/new", tmp_path / "runs/y"]


def test_rows_are_kept_without_positions_and_say_the_same(frontier, evaluated, tmp_path) -> None:
    kept = tmp_path / "kept"
    frontier.keep(kept, [evaluated])
    after = xt.rows(kept, "documents")
    before = pd.concat(xt.rows(run, "documents") for run in evaluated.iterdir())
    assert len(after) < len(before) / 2
    assert after["n_bytes"].sum() == before["n_bytes"].sum()
    place = ["run", "extension", "protocol", "factor", "document"]
    for name, weight in (("loss", "n_targets"), ("control_loss", "n_targets"), ("key_loss", "n_key")):
        sums = [rows.assign(total=rows[name] * rows[weight]).groupby(place)["total"].sum() for rows in (before, after)]
        pd.testing.assert_series_equal(*sums)
    pd.testing.assert_frame_equal(xt.compare(kept, extensions=True), xt.compare(evaluated, extensions=True))
    frontier.keep(kept, [evaluated / "rope"])
    pd.testing.assert_frame_equal(xt.rows(kept, "documents"), after)


def test_the_page_in_docs_is_made_from_the_kept_rows(frontier) -> None:
    page = (DOCS / "results" / "frontier.md").read_text(encoding="utf-8")
    answer = re.search(r"^\*\*(Stick-breaking is better .*)\*\*$", page, re.MULTILINE)
    assert answer is not None
    assert frontier.page(frontier.rows(frontier.KEPT), answer[1], frontier.NOTES.read_text(encoding="utf-8")) == page


def test_other_conditions_give_the_orders_that_the_page_says(frontier) -> None:
    """Spearman's correlation of the losses at 16x, of the same models and seeds."""

    def far(kind: str, seeds: set[int]) -> "pd.Series[float]":
        found = frontier.rows(frontier.KINDS[kind]).losses.query("protocol == 'fixed-target' and factor == 16")
        found = found[found["seed"].isin(seeds)]
        return found.groupby(found["model"].str.removesuffix(" by AdamW"))["loss"].mean()

    page = " ".join((DOCS / "results" / "frontier.md").read_text(encoding="utf-8").split())
    for kind, seeds, models in (
        ("novels", {0, 1, 2}, 49), ("adamw", {0, 1, 2}, 8), ("twice-as-long", {0, 1, 2}, 7), ("twice-as-wide", {0}, 7),
    ):  # fmt: skip
        both = pd.concat([far(kind, seeds), far("models", seeds)], axis=1, join="inner").dropna()
        said = page.partition(f"(`frontier-{kind}`)")[2].partition(" - **")[0]
        (number,) = re.findall(r"0\.9\d+", said.partition("RNoPE")[0].partition("Stick-breaking")[0])
        assert len(far(kind, seeds)) == models
        assert f"{both.rank().corr().iloc[0, 1]:.{len(number) - 2}f}" == number, kind


def test_on_markov_chains_models_gain_what_the_page_says(frontier) -> None:
    losses = frontier.rows(frontier.KINDS["optimum"]).losses.query("protocol == 'fixed-target'")
    mean = losses.groupby(["model", "factor"])[["loss", "optimum_loss"]].mean().unstack()
    gained = mean.xs(1, axis=1, level="factor") - mean.xs(16, axis=1, level="factor")
    assert gained["optimum_loss"].map("{:.3f}".format).unique() == ["0.156"]
    captured = (gained["loss"] / gained["optimum_loss"]).map("{:.2f}".format)
    said = {"KDA": "0.77", "RNoPE": "0.77", "PoSE(RoPE)": "0.76", "Stick-breaking": "0.61"}
    assert captured[list(said)].to_dict() == said
    assert gained["loss"][["RoPE", "ExPE"]].map("{:.2f}".format).tolist() == ["-0.20", "-0.77"]


def test_the_readme_has_rows_of_the_page(frontier) -> None:
    kept = frontier.rows(frontier.KEPT)
    few = frontier.in_readme(frontier.table(kept))
    assert set(few["Model"]) == set(frontier.IN_README)
    readme = frontier.README.read_text(encoding="utf-8")
    assert Table(few).markdown().strip() in readme
    assert f"Ten of the {kept.losses['model'].nunique()} models in [a study]" in readme
    shown = kept.losses[kept.losses["model"].isin(frontier.IN_README)]
    for fact in ("training_commit", "training_machine"):
        assert all(value in readme for value in set(shown[fact])), fact
