"""The section of a probe: margins beside accuracies, from rows by hand."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pandas as pd
import pytest

from extrapolate.names import AS_TRAINED
from extrapolate.reports import probes
from extrapolate.reports.page import markdown
from extrapolate.reports.sections.probes import Probes

SHARED = {
    "training_corpus": None,
    "probe": "needle", "run": "r", "step": 1, "split": "test", "precision": "fp32", "corpus_hash": "c", "seq_len": 64,
    "accuracy": 0.0, "low": 0.0, "high": 0.1, "loss": 5.0, "control_accuracy": 0.0, "control_loss": 5.0,
    "choice": 0.5, "choice_chance": 0.25, "chance": 1 / 16, "n_trials": 8, "imported": None, "preset": "tiny",
    "tokens": 5, "commit": "d", "machine": "e", "evaluated_at": datetime(2026, 1, 1, tzinfo=UTC),
}  # fmt: skip


def row(model: str, factor: float, depth: float, margin: float | None, seed: int = 0, **changes) -> dict[str, object]:
    extension = "pi" if "+" in model else AS_TRAINED
    error = None if margin is None else 0.125
    own = {"model": model, "extension": extension, "factor": factor, "depth": depth, "seed": seed, "margin": margin}
    return SHARED | own | {"margin_stderr": error, "control_margin": 0.25 if extension == AS_TRAINED else 9.0} | changes


ROWS = [
    *(row("A", 1.0, depth, 1.0 + depth + seed, seed) for depth in (0.0, 1.0) for seed in (0, 1)),
    *(row("A", 4.0, depth, -1.0 - depth - seed, seed) for depth in (0.0, 1.0) for seed in (0, 1)),
    *(row("A + PI", factor, depth, 0.5, seed) for factor in (1.0, 4.0) for depth in (0.0, 1.0) for seed in (0, 1)),
    *(row("ends", 1.0, depth, 3.0, seed) for depth in (0.0, 1.0) for seed in (0, 1)),
    *(row("ends", 4.0, depth, None, seed) for depth in (0.0, 1.0) for seed in (0, 1)),
]


def test_margins_are_means_over_depths_and_seeds_beside_the_controls() -> None:
    table = probes.by_length(pd.DataFrame(ROWS), "margin").set_index("Model").rename(columns=lambda name: name[:6])
    table.columns = ["1x", "4x", "seeds"]
    assert table.loc["A"].tolist() == [2.0, -2.0, 2]
    assert table.loc["A, cut back to L"].tolist() == [0.25, 0.25, 2]
    assert table.loc["A + PI"].tolist() == [0.5, 0.5, 2]
    assert table.loc["ends", "1x"] == 3
    assert pd.isna(table.loc["ends", "4x"])
    assert table.index.tolist() == ["A", "A, cut back to L", "A + PI", "ends", "ends, cut back to L"]
    deep = probes.by_depth(pd.DataFrame(ROWS), "margin").set_index(["Model", "Depth"])
    assert deep.loc[("A", "0"), "Margin (ev=4)"] == -1.5
    assert deep.loc[("A", "1"), "Margin (ev=4)"] == -2.5


def test_the_section_shows_margins_and_choices_and_what_they_are() -> None:
    part = Probes.part(SimpleNamespace(probes=probes.frame_of(ROWS)), "needle")
    said = " ".join(markdown(part.blocks).split())
    assert said.count("| Model | Accuracy (ev=1) | Accuracy (ev=4) | Seeds |") == 2  # the second is of the worst seed
    assert "| Model | Margin (ev=1) | Margin (ev=4) | Seeds | |---|---|---|---| | A | 2.000 | -2.000 | 2 |" in said
    assert "| Model | Choice (ev=1) | Choice (ev=4) | Seeds | |---|---|---|---| | A | 0.500 | 0.500 | 2 |" in said
    assert "chance is at most 0.25. The standard error of one cell by depth is at most 0.12 nats" in said
    assert "| A | 1 | 2.500 | -2.500 | 2 |" in said
    assert said.index("Margin (ev=1)") < said.index("By depth:")


def test_extensions_of_one_name_are_printed_apart() -> None:
    both = [row("A + Half", 1.0, 0.0, margin, extension=text) for margin, text in ((1.0, "a.py:H"), (3.0, "b.py:H"))]
    shown = next(table for table, title in probes.printed(both) if "margin" in title)
    assert shown["Model"].tolist() == [f"{both[0]['run']}, A + Half ({text})" for text in ("a.py:H", "b.py:H")]
    assert shown["Margin (ev=1)"].tolist() == ["1.000", "3.000"]


def test_rows_of_earlier_versions_have_no_margins() -> None:
    none = dict.fromkeys(("margin", "margin_stderr", "control_margin", "choice", "choice_chance"))
    old = probes.frame_of([one | none for one in ROWS])
    assert "Margin" not in markdown(Probes.part(SimpleNamespace(probes=old), "needle").blocks)
    assert len(list(probes.printed([one | none for one in ROWS]))) == 2
    titles = [title for _, title in probes.printed(ROWS)]
    assert titles[1] == "probe needle, margin in nats, mean over depths"
    assert len(titles) == 3
    # Half of the seeds: no mean over others than the accuracy's.
    half = probes.frame_of([one | (none if one["seed"] else {}) for one in ROWS])
    assert probes.by_length(half, "margin")["Margin (ev=1)"].isna().all()
    assert probes.has_margins(half)


def test_the_caption_names_models_that_learned_from_other_text() -> None:
    rows = probes.frame_of([row("A", 1.0, 0.0, 1.0, training_corpus="c"), row("B", 1.0, 0.0, 1.0, training_corpus="d")])
    assert probes.caption(rows).endswith(
        " B learned from other text (corpus d): nothing checks that no text is in both."
    )


@pytest.mark.parametrize("missing", [True, False])
def test_the_caption_gives_an_error_only_if_one_is_known(missing: bool) -> None:
    rows = pd.DataFrame([row("A", 1.0, 0.0, 1.0, **({"margin_stderr": None} if missing else {}))])
    assert ("standard error" in probes.margin_caption(probes.frame_of(rows.to_dict("records")))) != missing
