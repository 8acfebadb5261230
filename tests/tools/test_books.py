"""tools/books.py puts a study's losses on a page."""

from collections.abc import Callable
from types import ModuleType

import pandas as pd
import pytest


@pytest.fixture
def books(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("books")


def test_the_beginning_says_what_the_rows_say(books) -> None:
    row = {
        "encoding": "rope", "seq_len": 64, "seed": 0, "tokens": 4_000_000, "parameters": 1_310_720, "n_documents": 50,
        "training_machine": "a machine", "evaluated_at": pd.Timestamp("2026-01-02"), "training_commit": "abc",
    }  # fmt: skip
    rows = pd.DataFrame([row, row | {"encoding": "none", "seed": 1, "parameters": 1_400_000, "n_documents": 52}])
    said = " ".join(books.beginning(rows).split())
    assert "Encodings: 2. Training lengths: 64. Seeds: 0, 1. Training tokens: 4,000,000 each." in said
    assert "about 1.4 million parameters" in said
    assert "at most 52 were tested. Trained on a machine, 2026-01-02, commit abc." in said


def test_a_length_has_its_answer_its_pictures_and_the_tables_of_its_report(books) -> None:
    report = (
        "# The answer\n\n**RoPE.**\n\n# Loss by evaluation length\n\n"
        "## Protocol windows\n\n| a |\n|---|\n\n# More\n\nx\n"
    )
    assert books.section(64, "ALiBi holds.", report) == (
        "## Training length 64\n\n**ALiBi holds.**\n\n"
        "![Loss against length, L = 64](studies/books-L64-loss_by_ev.png)\n\n"
        "![Loss against length, L = 64](studies/books-L64-loss_by_ev.fixed-target.png)\n\n"
        "### Protocol windows\n\n| a |\n|---|\n"
    )
