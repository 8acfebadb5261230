"""The section of a probe whose problems fill the window: no depths, and a chance that depends on the length."""

from datetime import UTC, datetime
from types import SimpleNamespace

from extrapolate.names import AS_TRAINED
from extrapolate.reports import probes
from extrapolate.reports.page import markdown
from extrapolate.reports.sections.probes import Probes

SHARED = {
    "run": "r", "step": 1, "split": "test", "precision": "fp32", "corpus_hash": "c", "seq_len": 16, "loss": 5.0,
    "training_corpus": "c", "low": 0.5, "high": 1.0,
    "control_accuracy": 0.25, "control_loss": 5.0, "n_trials": 8, "imported": None, "preset": "tiny",
    "tokens": 5, "commit": "d", "machine": "e", "evaluated_at": datetime(2026, 1, 1, tzinfo=UTC), "seed": 0,
    "model": "A", "extension": AS_TRAINED,
    **dict.fromkeys(("margin", "margin_stderr", "control_margin", "choice", "choice_chance")),
}  # fmt: skip
ONE_DEPTH = [
    SHARED | {"probe": "reverse", "factor": factor, "depth": 1.0, "accuracy": 0.75 / factor, "chance": 16.0**-answers}
    for factor, answers in ((2.0, 15), (0.5, 3), (1.0, 7))
]
DEPTHS = [
    SHARED | {"probe": "needle", "factor": factor, "depth": depth, "accuracy": 1.0, "chance": 1 / 16}
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
    assert files == {"probes.parquet", "probes.needle.png"}


def test_what_was_just_evaluated_is_printed_in_the_same_way() -> None:
    (title,) = [title for _, title in probes.printed(ONE_DEPTH)]
    assert title == "probe reverse, accuracy (chance 0.00024 at ev=0.5, 3.7e-09 at ev=1, 8.7e-19 at ev=2)"
    titles = [title for _, title in probes.printed(DEPTHS)]
    assert [title.partition("), ")[2][:8] for title in titles] == ["mean ove", "by depth"]
