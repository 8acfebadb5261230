"""The section of a probe, from rows by hand: margins beside accuracies, chance, and a probe without depths."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports import probes
from extrapolate.reports.page import markdown
from extrapolate.reports.sections.probes import Probes
from extrapolate.results.groups import SETTINGS

SHARED = {
    "training_corpus": None, "extension_sha256": None, **dict.fromkeys(one.name for one in SETTINGS.columns),
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


def test_the_caption_names_models_that_learned_from_other_text() -> None:
    rows = probes.frame_of([row("A", 1.0, 0.0, 1.0, training_corpus="c"), row("B", 1.0, 0.0, 1.0, training_corpus="d")])
    assert probes.caption(rows).endswith(
        " B learned from other text (corpus d): nothing checks that no text is in both."
    )


WITHOUT = dict.fromkeys(("margin", "margin_stderr", "control_margin", "choice", "choice_chance"))
KNOWN = {"model": "A", "extension": AS_TRAINED, "seed": 0, "low": 0.5, "high": 1.0, **WITHOUT}
ONE_DEPTH = [  # problems fill the window, so that chance depends on the length
    SHARED | KNOWN | {"probe": "reverse", "factor": factor, "depth": 1.0, "accuracy": 0.75 / factor}
    | {"control_accuracy": 0.25, "chance": 16.0**-answers}
    for factor, answers in ((2.0, 15), (0.5, 3), (1.0, 7))
]  # fmt: skip
DEPTHS = [
    SHARED | KNOWN | {"factor": factor, "depth": depth, "accuracy": 1.0}
    for factor in (1.0, 2.0)
    for depth in (0.0, 1.0)
]


def said_of(rows: list[dict[str, object]]) -> tuple[str, set[str]]:
    """The section of a probe, and the names of its files."""
    part = Probes.part(SimpleNamespace(probes=probes.frame_of(rows)), str(rows[0]["probe"]))
    return " ".join(markdown(part.blocks).split()), set(part.files)


def test_chance_is_given_by_length_if_it_changes() -> None:
    at_each = "0.00024 at ev=0.5, 3.7e-09 at ev=1, 8.7e-19 at ev=2"
    said, _ = said_of(ONE_DEPTH)
    assert said.count(f"Chance is {at_each}.") == 1
    assert f"chance is {at_each}, and Wilson's interval of one cell at most 0.25" in said
    said, _ = said_of(DEPTHS)
    assert "Chance is 0.062." in said


def test_only_a_probe_with_several_depths_is_shown_by_depth() -> None:
    said, files = said_of(ONE_DEPTH)
    assert "depth" not in said.lower()
    assert "| A | 1.500 | 0.750 | 0.375 | 1 |" in said
    assert files == {"probes.parquet"}
    said, files = said_of(DEPTHS)
    assert "By depth:" in said
    assert "at each length and depth" in said
    assert files == {"probes.parquet", "probes.needle.png", "probes.needle.pdf"}
