"""tools/frontier.py makes a page from kept rows."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from extrapolate.reports.page import Table

KEPT = Path(__file__).parents[2] / "docs" / "results" / "frontier"


@pytest.fixture
def frontier(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("frontier")


def losses_of(model: str, seed: int, at_16: float | None, key: float) -> list[dict]:
    row = {
        "model": model, "seed": seed, "protocol": "fixed-target", "key_control_loss": 2.0, "n_documents": 52,
        "tokens": 4_000_000, "seq_len": 64, "parameters": 1_400_000, "training_machine": "a machine",
        "training_commit": "abc", "evaluated_at": pd.Timestamp("2026-01-02"), "weights_sha256": f"{model} {seed}",
    }  # fmt: skip
    near = row | {"factor": 1.0, "loss": 3.0 + seed, "key_loss": 2.0}
    return [near, row | {"factor": 16.0, "loss": at_16, "key_loss": key}, near | {"protocol": "windows", "loss": 9.0}]


def probes_of(model: str, accuracy: float) -> list[dict]:
    return [
        {"model": model, "factor": factor, "depth": depth, "accuracy": accuracy + depth / 10}
        for factor in (1.0, 4.0, 16.0)
        for depth in (0.0, 1.0)
    ]


@pytest.fixture
def rows() -> tuple[pd.DataFrame, pd.DataFrame]:
    losses = [
        *losses_of("RoPE", 0, 4.0, 2.5), *losses_of("RoPE", 1, 4.5, 2.7), *losses_of("NoPE", 0, 4.1, 1.75),
        *losses_of("Learned", 0, None, float("nan")),
    ]  # fmt: skip
    probes = [*probes_of("RoPE", 0.5), *probes_of("NoPE", 0.8), *probes_of("Learned", float("nan"))]
    return pd.DataFrame(losses), pd.DataFrame(probes)


def test_the_table_has_means_the_worst_seed_and_what_key_tokens_gain(frontier, rows) -> None:
    table = frontier.table(*rows).set_index("Model")
    assert list(table.index) == ["NoPE", "RoPE", "Learned"], "the lowest at 16x first, and last what has none"
    assert dict(table.loc["RoPE", ["1x", "16x", "Worst", "Key tokens", "Needle 4x", "Seeds"]]) == {
        "1x": "3.500", "16x": "4.250", "Worst": "4.500", "Key tokens": "+0.600", "Needle 4x": "0.55", "Seeds": 2,
    }  # fmt: skip
    assert table.loc["NoPE", "Key tokens"] == "-0.250"
    assert set(table.loc["Learned", ["16x", "Worst", "Key tokens", "Needle 16x"]]) == {"n/a"}


def test_the_page_says_what_its_rows_are(frontier, rows) -> None:
    page = " ".join(frontier.page(*rows, "NoPE wins.", "By hand.", "## Protocol windows\n\nranks\n").split())
    assert "so far 3 models and 4 runs of about 1.4 million parameters, each trained on 4,000,000 tokens at" in page
    assert "Trained on a machine, 2026-01-02, with commits abc. " in page
    assert "**NoPE wins.** By hand. ## The table" in page
    assert page.endswith("## Ranks ### Protocol windows ranks")


def test_runs_whose_weights_have_rows_are_not_added_again(frontier, tmp_path, monkeypatch) -> None:
    for name, weights in (("kept", "a"), ("runs/old", "a"), ("runs/new", "b")):
        (tmp_path / name).mkdir(parents=True)
        pd.DataFrame({"weights_sha256": [weights]}).to_parquet(tmp_path / name / "evals.parquet")
    monkeypatch.setattr(frontier, "KEPT", tmp_path / "kept")
    assert frontier.unknown([tmp_path / "runs"]) == [tmp_path / "runs/new"]


def test_the_page_in_docs_is_made_from_the_kept_rows(frontier) -> None:
    losses, probes = (pd.read_parquet(KEPT / name) for name in ("evals.parquet", "eval_probes.parquet"))
    page = (KEPT.parent / "frontier.md").read_text(encoding="utf-8")
    assert Table(frontier.table(losses, probes)).markdown() in page
    assert frontier.beginning(losses).strip() in page
    assert frontier.NOTES.read_text(encoding="utf-8").strip() in page


def test_the_readme_has_rows_of_the_page(frontier) -> None:
    losses, probes = (pd.read_parquet(KEPT / name) for name in ("evals.parquet", "eval_probes.parquet"))
    few = frontier.in_readme(frontier.table(losses, probes))
    assert set(few["Model"]) == set(frontier.IN_README)
    readme = frontier.README.read_text(encoding="utf-8")
    assert Table(few).markdown().strip() in readme
    for fact in ("training_commit", "training_machine"):
        assert all(value in readme for value in set(losses[fact])), fact
