"""What the last doubling of the tokens changed, from rows made by hand."""

import numpy as np
import pandas as pd
import pytest

from extrapolate.statistics.comparison import CONTROL, comparisons
from extrapolate.statistics.doublings import changes, doubled

SETTING = {
    "extension": "as-trained", "precision": "fp32", "split": "test", "protocol": "fixed-target", "factor": 16.0,
    "targets_hash": "t",
}  # fmt: skip
Losses = dict[str, tuple[float, float, float, float]]  # loss and control at half the budget, and both at its end


def made(losses: Losses, documents: int = 40, seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of losses and of documents. All documents of a checkpoint have its losses, and a little noise."""
    rng = np.random.default_rng(0)
    rows, found = [], []
    for model, (*half, loss, control) in losses.items():
        for seed in range(seeds):
            shared = SETTING | {"run": f"{model}-{seed}", "model": model, "seed": seed}
            for step, both in ((50, half), (100, (loss, control))):
                here = shared | {"step": step}
                rows.append(here | {"tokens": 1000 * step, "annealed": True})
                found += [
                    here | {"document": str(document), "block": 0, "position": 0, "n_targets": 100 + document}
                    | {"loss": both[0] + rng.normal(0, 0.01), "control_loss": both[1], "optimum_loss": None}
                    for document in range(documents)
                ]  # fmt: skip
    return pd.DataFrame(rows), pd.DataFrame(found)


def test_changes_of_differences_are_differences_of_changes() -> None:
    """Against the arithmetic of each checkpoint by itself."""
    rows, documents = made({"RoPE": (4.9, 4.3, 5.0, 4.1), "ExPE": (4.6, 4.3, 4.4, 4.1)})
    changed = changes(doubled(rows), documents)

    def at(step: int, model: str, column: str) -> float:
        mine = documents[(documents["step"] == step) & (documents["model"] == model)]
        by_seed = [np.average(one[column], weights=one["n_targets"]) for _, one in mine.groupby("seed")]
        return float(np.mean(by_seed))

    def change(model: str, column: str = "loss") -> float:
        return at(100, model, column) - at(50, model, column)

    pair = next(comparisons(changed, controls=False, reference="RoPE"))
    assert (pair.model, pair.other) == ("ExPE", "RoPE")
    assert pair.difference.mean == pytest.approx(change("ExPE") - change("RoPE"))
    assert pair.difference.mean == pytest.approx(-0.3, abs=0.01)
    assert pair.difference.low < -0.3 < pair.difference.high < 0
    rises = {one.model: one.difference.mean for one in comparisons(changed, pairs=False) if one.other == CONTROL}
    assert rises == pytest.approx({model: change(model) - change(model, "control_loss") for model in ("ExPE", "RoPE")})


def test_only_halves_whose_rate_had_fallen_count() -> None:
    rows, documents = made({"RoPE": (4.9, 4.3, 5.0, 4.1)}, seeds=1)
    assert doubled(rows)[["half", "last", "half_tokens", "tokens"]].to_numpy().tolist() == [[50, 100, 50_000, 100_000]]
    half = rows["step"] == 50
    for other in (
        rows.assign(annealed=rows["annealed"] & ~half),
        rows.assign(annealed=None),  # evaluated by an earlier version
        rows.assign(tokens=rows["tokens"].where(~half, 40_000)),  # not half the budget
        rows.assign(tokens=pd.NA).astype({"tokens": "Int64"}),  # trained elsewhere
        rows[~half],
    ):
        assert doubled(other).empty
        assert changes(doubled(other), documents).empty
