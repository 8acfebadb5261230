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


def documents_of(run: str, key: float) -> list[dict]:
    """Of twelve documents, the first has no key token."""
    row = {
        "run": run,
        "model": run[:4],
        "protocol": "fixed-target",
        "factor": 16.0,
        "loss": 4.0,
        "key_control_loss": 2.0,
    }
    held = [row | {"document": at, "n_key": at, "key_loss": key + (at - 23 / 3) / 100} for at in range(1, 12)]
    return [row | {"document": 0, "n_key": 0, "key_loss": float("nan")}, *held]


@pytest.fixture
def rows(frontier: ModuleType) -> NamedTuple:
    losses = [
        *losses_of("RoPE", 0, 4.0, 2.5), *losses_of("RoPE", 1, 4.5, 2.7), *losses_of("NoPE", 0, 4.1, 1.75),
        *losses_of("Learned", 0, None, float("nan")),
    ]  # fmt: skip
    probes = [*probes_of("RoPE", 0.5), *probes_of("NoPE", 0.8), *probes_of("Learned", float("nan"))]
    documents = [*documents_of("RoPE-0", 2.5), *documents_of("RoPE-1", 2.7), *documents_of("NoPE-0", 1.75)]
    documents += [row | {"model": "Learned", "loss": None} for row in documents_of("Learned-0", float("nan"))]
    return frontier.Rows(*map(pd.DataFrame, (losses, probes, documents)))


def test_the_table_has_means_the_worst_seed_and_what_key_tokens_gain(frontier, rows) -> None:
    table = frontier.table(rows).set_index("Model")
    assert list(table.index) == ["NoPE", "RoPE", "Learned"], "the lowest at 16x first, and last what has none"
    assert dict(table.loc["RoPE", ["1x", "16x", "Worst", "Needle 1x", "Needle 4x", "Seeds"]]) == {
        "1x": "3.500", "16x": "4.250", "Worst": "4.500", "Needle 1x": "0.72 (0.67 to 0.77)",
        "Needle 4x": "0.57 (0.50 to 0.65)", "Seeds": 2,
    }  # fmt: skip
    assert re.fullmatch(r"\+0\.600 \[\+0\.5[78]\d, \+0\.6[12]\d\]", table.loc["RoPE", "Key tokens"]), "documents alone"
    assert re.fullmatch(r"-0\.250 \[-0\.2[67]\d, -0\.2[23]\d\]", table.loc["NoPE", "Key tokens"])
    assert set(table.loc["Learned", ["16x", "Worst", "Key tokens", "Needle 16x"]]) == {"n/a"}


def test_the_page_says_what_its_rows_are(frontier, rows) -> None:
    page = " ".join(frontier.page(rows, "NoPE wins.", "By hand.", ["## More"]).split())
    assert "3 models of about 1.4 million parameters, 4 runs in all, each trained on 4,000,000 tokens at" in page
    assert "Trained on a machine, 2026-01-02, with commits abc. " in page
    assert "**NoPE wins.** By hand. ## The table" in page
    assert "the loss of 7 such tokens at 16x" in page
    assert "more than L tokens before the question, 64 per model and seed. Guessing finds 0.06." in page
    assert "| [Learned](../encodings.md#learned) | 3.000 | n/a |" in page
    assert page.endswith("## More")


def test_the_worst_seed_is_shown_where_there_are_several(frontier, rows) -> None:
    first = rows._replace(losses=rows.losses[rows.losses["seed"] == 0])
    assert not {"Worst", "Seeds"} & set(frontier.table(first))


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


def test_other_books_stand_beside_the_test_books(frontier) -> None:
    def losses_of(order: str) -> pd.DataFrame:
        rows = [
            {"model": model, "protocol": "fixed-target", "factor": float(factor), "loss": 4.0 + at * factor,
             "control_loss": 4.0, "weights_sha256": model, "n_documents": 9, "n_targets": 8192}
            for at, model in enumerate(order)
            for factor in (1, 16)
        ]  # fmt: skip
        return pd.DataFrame(rows)

    title, text, table = frontier.other_books(losses_of("abcde"), losses_of("bcdae"))
    assert title == "## Other books"
    words = " ".join(text.split())
    assert "5 of these runs on 9 English novels" in words
    assert "8,192 tokens are scored" in words
    assert "is 0.400 at 1x and 0.400 at 16x" in words, "1 - 6 * (9 + 1 + 1 + 1) / (5 * 24)"
    assert "differs by 3 or more: a (1 to 4)." in words
    assert "| b | 5.000 | 20.000 | 16.000 | 4.000 | 4.000 | 0.000 |" in table


def test_models_that_were_trained_otherwise_stand_beside_themselves(frontier, rows) -> None:
    """Matched by encoding: their names say what is other, and the plain model is that with the shortest name."""
    extra = rows.losses[rows.losses["model"] == "RoPE"].assign(model="RoPE+sinks", loss=9.0)
    kept = rows._replace(losses=pd.concat([rows.losses, extra]))
    both = rows.losses[rows.losses["model"] != "Learned"]
    far = both["factor"] == 16.0
    losses = both.assign(model=both["model"] + " by AdamW", loss=both["loss"] + far * both["model"].eq("NoPE"))
    other = frontier.Rows(losses, rows.probes.assign(model=rows.probes["model"] + " by AdamW"), rows.documents)
    title, _, heading, table, commands = frontier.trained_otherwise(kept, {"adamw": other})
    assert (title, heading) == ("## Trained otherwise", "### AdamW: rank correlation -1.00, 2 seeds")
    assert "--scale adamw --pe nope --pe rope --out sweeps/adamw" in commands
    lines = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [line[:3] + line[5:7] for line in lines] == [
        ["| NoPE", "3.000", "4.100", "3.000", "5.100"], ["| RoPE", "3.500", "4.250", "3.500", "4.250"],
    ]  # fmt: skip
    first = other._replace(losses=losses[losses["seed"] == 0])
    _, _, heading, table, _ = frontier.trained_otherwise(kept, {"adamw": first})
    assert heading.endswith("1 seed")
    assert "| RoPE | 3.000 |" in table, "the model's losses are of the same seed"


def test_the_page_in_docs_is_made_from_the_kept_rows(frontier) -> None:
    kept = frontier.rows(frontier.KEPT)
    page = (DOCS / "results" / "frontier.md").read_text(encoding="utf-8")
    assert frontier.linked(kept) in page
    assert all(part.strip() in page for part in frontier.beside(kept.losses))
    assert len(re.findall(r"^\| \[.*\]\(../encodings.md#", page, re.MULTILINE)) == kept.losses["model"].nunique()
    assert frontier.beginning(kept.losses).strip() in page
    assert frontier.NOTES.read_text(encoding="utf-8").strip() in page


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


def test_a_gain_is_captured_by_its_share_of_what_is_possible(frontier) -> None:
    losses = pd.DataFrame(
        [
            {"model": model, "encoding": model.lower(), "seed": 0, "protocol": "fixed-target", "factor": factor}
            | {"loss": loss, "optimum_loss": 1.2 if factor == 1 else 1.0}
            for model, by_factor in {"RoPE": {1.0: 1.3, 16.0: 1.4}, "ALiBi": {1.0: 1.3, 16.0: 1.15}}.items()
            for factor, loss in by_factor.items()
        ]
    )
    _, text, table = frontier.known_optimum(losses)
    assert "--pe alibi --pe rope" in text
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [[cell.strip(" |") for cell in row] for row in rows] == [
        ["ALiBi", "1.300", "1.150", "0.75"], ["RoPE", "1.300", "1.400", "-0.50"], ["optimum", "1.200", "1.000", ""],
    ]  # fmt: skip
