"""The table of runs, from rows made by hand."""

import pandas as pd

from extrapolate.reports.sections import provenance


def test_counts_are_whole_numbers_and_what_is_not_known_says_so() -> None:
    trained = {
        "run": "rope-s0", "model": "RoPE", "extension": "as-trained", "seed": 0, "tokens": 1_500_000,
        "parameters": 1_377_408, "training_precision": "bf16", "training_commit": "ebc93d2bafc2",
        "training_machine": "AMD EPYC, 2 cores", "weights_sha256": "3e9a5b8a5812" + "0" * 52,
    }  # fmt: skip
    imported = dict.fromkeys(trained) | {"run": "a", "model": "Llama", "extension": "as-trained"}
    imported["weights_sha256"] = "f" * 64
    rows = pd.DataFrame([trained, trained | {"extension": "pi"}, imported])
    assert provenance._runs(rows).to_dict("records") == [
        {
            "Run": "a", "Model": "Llama", "Seed": "unknown", "Tokens": "unknown", "Parameters": "unknown",
            "Precision": "unknown", "Commit": "unknown", "Machine": "unknown", "Weights (SHA-256)": "ffffffffffff",
        },
        {
            "Run": "rope-s0", "Model": "RoPE", "Seed": "0", "Tokens": "1,500,000", "Parameters": "1,377,408",
            "Precision": "bf16", "Commit": "ebc93d2bafc2", "Machine": "AMD EPYC, 2 cores",
            "Weights (SHA-256)": "3e9a5b8a5812",
        },
    ]  # fmt: skip
