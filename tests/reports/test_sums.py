"""Rows of documents, summed by what is resampled."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.reports.load_tables import load_tables
from extrapolate.reports.report_data import collect
from extrapolate.statistics import sums
from extrapolate.statistics.documents import as_frame, check_sums, of_documents


def two_seeds(write_run: Callable[..., Path], folder: Path) -> Path:
    for seed in (0, 1):
        write_run(folder / f"rope-s{seed}", lambda row, seed=seed: row | {"seed": seed, "run": f"rope-s{seed}"})
    return folder


def test_sums_are_those_of_a_loop_over_rows(write_run: Callable[..., Path], tmp_path: Path) -> None:
    evaluated = load_tables([two_seeds(write_run, tmp_path / "ckpt")])
    data = collect(evaluated, evaluated.evals(), evaluated.documents(), None, {})
    (setting,) = [one for one in data.sums if (one.protocol, one.factor) == ("windows", 2.0)]
    assert (setting.clusters, list(setting.models)) == ("stretches", ["RoPE", "RoPE + PI"])
    expected: dict[tuple[str, int], float] = {}
    for row in results.read(tmp_path / "ckpt/rope-s1/eval_documents.parquet", results.EVAL_DOCUMENTS):
        if (row["protocol"], row["factor"], row["model"]) == ("windows", 2.0, "RoPE + PI"):
            key = row["document"], row["block"]
            expected[key] = expected.get(key, 0.0) + row["loss"] * row["n_targets"]
    assert setting.count == len(expected)
    found = setting.models["RoPE + PI"].of((0, 1), "loss")
    np.testing.assert_allclose(found, [[expected[key] for key in sorted(expected)]] * 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("documents", "name", "clusters"), [(sums.ENOUGH_DOCUMENTS, "documents", 30), (29, "stretches", 29 * 3)]
)
def test_documents_are_resampled_whole_and_stretches_where_documents_are_few(
    documents: int, name: str, clusters: int
) -> None:
    """Each document has three stretches that are alike: taken for documents, they would make intervals narrow."""
    effect = np.random.default_rng(0).normal(size=documents)
    frame = pd.DataFrame(
        {
            "protocol": "windows", "factor": 2.0, "targets_hash": "t", "model": "RoPE", "seed": 0,
            "document": str(document), "block": block, "n_targets": 10, "loss": 4.0 + effect[document],
            "control_loss": 4.0, "optimum_loss": None,
        }
        for document in range(documents)
        for block in range(3)
    )  # fmt: skip
    (setting,) = sums.settings(frame)
    assert (setting.clusters, setting.count) == (name, clusters)
    model = setting.models["RoPE"]
    found = sums.difference(model, "loss", model, "control_loss", (0,))
    assert found is not None
    assert found.clusters == clusters
    alike = np.repeat(effect, clusters // documents)
    assert found.error == pytest.approx(alike.std(ddof=1) / clusters**0.5)


def test_documents_take_the_names_of_their_rows_and_those_without_a_loss_go(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    evaluated = load_tables([write_run(tmp_path / "rope")])
    documents, evals = as_frame(evaluated.documents()), pd.DataFrame(evaluated.evals())
    chosen = evals[(evals["extension"] == "pi") & (evals["factor"] == 2)].assign(model="PI", seed=7)
    documents.loc[documents.index[-1], "loss"] = np.nan
    found = of_documents(chosen, documents)
    same = documents[(documents["extension"] == "pi") & (documents["factor"] == 2)].dropna(subset="loss")
    assert found.index.equals(same.index)
    assert (set(found["model"]), set(found["seed"])) == ({"PI"}, {7})
    assert of_documents(chosen.assign(step=-1), documents).empty


def test_losses_of_key_tokens_add_up_too() -> None:
    """An evaluation with other key tokens that is killed between its two tables leaves rows of both."""
    setting = {
        "run": "rope", "extension": "as-trained", "step": 1, "precision": "fp32", "split": "test",
        "protocol": "windows", "factor": 2.0, "targets_hash": "t",
    }  # fmt: skip
    of_documents = pd.DataFrame([setting | {"n_targets": 10, "loss": 4.0, "n_key": 2, "key_loss": 3.0}] * 2)
    row = setting | {"model": "RoPE", "n_targets": 20, "loss": 4.0, "n_key": 4, "key_loss": 3.0}
    check_sums(pd.DataFrame([row]), of_documents)
    for changed in ({"n_key": 5}, {"key_loss": 3.1}):
        with pytest.raises(UserError, match=r"contradict each other .*key tokens, by documents 3\.0000 of 4"):
            check_sums(pd.DataFrame([row | changed]), of_documents)
