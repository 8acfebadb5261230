"""What a study asks, answered from rows made by hand in which the truth is known."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.load_tables import LoadedTables
from extrapolate.reports.questions import FILE, answers, write_questions
from extrapolate.reports.report_data import ReportData
from extrapolate.statistics.sums import settings

LOSSES = {"RoPE": 5.0, "ALiBi": 4.6, "FoX": 4.601, "RoPE + YaRN": 4.62}


def answered(
    folder: Path, *asked: tuple[str, str], seeds: int = 3, spread: float = 0.003, documents: int = 40,
    losses: Mapping[str, float] = LOSSES, at: float = 8,
) -> list[str]:  # fmt: skip
    """The answers, where sides are models' names."""
    rows, found, folders, questions = [], [], {}, []
    rng = np.random.default_rng(0)
    for model, loss in losses.items():
        plain, _, extension = model.partition(" + ")
        for seed in range(seeds):
            run = f"{plain}-{seed}"
            folders[folder / "runs" / run] = run
            shared = {
                "protocol": "fixed-target", "factor": 8.0, "targets_hash": "t", "model": model, "seed": seed,
                "run": run, "extension": extension or "as-trained",
            }  # fmt: skip
            rows.append(shared | {"loss": loss})
            off_C = rng.normal(0, spread) + rng.normal(0, 0.002, documents)
            found += [
                shared | {"document": str(number), "block": 0, "n_targets": 100, "loss": loss + off}
                | {"control_loss": 4.5, "optimum_loss": None}
                for number, off in enumerate(off_C)
            ]  # fmt: skip
    for number, sides in enumerate(asked):
        for side, model in zip("ab", sides, strict=True):
            plain, _, extension = model.partition(" + ")
            questions += [
                {"question": number, "a": sides[0], "b": sides[1], "factor": at, "side": side}
                | {"run": f"{plain}-{seed}", "extension": extension or "as-trained"}
                for seed in range(seeds)
            ]  # fmt: skip
    write_questions(folder, questions)
    evaluated, of_protocol = LoadedTables(folders, ()), {"fixed-target": pd.DataFrame(rows)}
    return answers(ReportData(evaluated, of_protocol, sums=settings(pd.DataFrame(found))), "fixed-target")


def test_each_verdict_in_words(tmp_path: Path) -> None:
    asked = (("ALiBi", "RoPE"), ("RoPE", "RoPE + YaRN"), ("FoX", "ALiBi"))
    better, worse, same = answered(tmp_path, *asked, seeds=5, spread=0.0005)
    assert better.startswith("ALiBi is better than RoPE at 8x: -0.40")
    assert better.endswith(" nats over 5 seeds and 40 documents.")
    assert worse.startswith("RoPE is worse than RoPE + YaRN at 8x: +0.38")
    assert same.startswith("FoX and ALiBi are equivalent at 8x: +0.00")


def test_what_is_undecided_says_what_would_decide_it(tmp_path: Path) -> None:
    (said,) = answered(tmp_path, ("FoX", "ALiBi"), spread=0.03)
    assert said.startswith("Whether FoX is better or worse than ALiBi at 8x is undecided: ")
    assert "nats over 3 seeds and 40 documents. Deciding a difference of this size would take " in said


def test_one_seed_says_that_three_are_needed(tmp_path: Path) -> None:
    (said,) = answered(tmp_path, ("ALiBi", "RoPE"), seeds=1)
    assert said.startswith("ALiBi is better than RoPE at 8x: ")
    assert said.endswith(
        "over 1 seed and 40 documents. This is about one run: for a statement about the models, train at least 3 seeds."
    )


def test_several_questions_are_corrected_for_each_other(tmp_path: Path) -> None:
    def width(said: str) -> float:
        low, high = said.partition("[")[2].partition("]")[0].split(", ")
        return float(high) - float(low)

    (alone,) = answered(tmp_path, ("ALiBi", "RoPE"), spread=0.02)
    first, *_ = answered(tmp_path, ("ALiBi", "RoPE"), ("FoX", "RoPE"), ("FoX", "ALiBi"), spread=0.02)
    assert width(first) / width(alone) == pytest.approx(7.65 / 4.30, rel=0.05)  # Student's t at 5 % / 3, and at 5 %


def test_nothing_asked_and_nothing_found(tmp_path: Path) -> None:
    assert answered(tmp_path) == []
    assert not (tmp_path / FILE).exists()
    (said,) = answered(tmp_path, ("ALiBi", "RoPE"), at=16)
    nothing = "Nothing can be said about ALiBi and RoPE at {}x from losses under fixed-target: "
    assert said == nothing.format(16) + "they have none with the same seed."
    assert answered(tmp_path, ("ALiBi", "RoPE"), documents=5)[0].startswith("Whether ALiBi is better or worse than ")
    losses = {"RoPE": 5.0, "FoX": 4.6}
    assert answered(tmp_path, ("ALiBi", "RoPE"), losses=losses) == [nothing.format(8) + "ALiBi has none."]
    assert answered(tmp_path, ("ALiBi", "T5"), losses=losses) == []  # the question of another report
