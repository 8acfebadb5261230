"""What a report says of models that have no loss at some lengths."""

import pandas as pd

from extrapolate.statistics.comparable import not_measured


def test_why_a_loss_is_missing_is_said_once_for_each_model_and_reason() -> None:
    rows = pd.DataFrame(
        [
            ("RoPE", 1.0, None), ("RoPE", 16.0, "memory does not suffice"), ("RoPE", 16.0, "memory does not suffice"),
            ("Learned", 2.0, "the encoding is not defined at 128 tokens"),
            ("Learned", 16.0, "the encoding is not defined at 1024 tokens"),
        ],
        columns=["model", "factor", "reason"],
    )  # fmt: skip
    assert not_measured(rows) == [
        "RoPE is n/a at 16x: memory does not suffice", "Learned is n/a at 2x, 16x: the encoding is not defined",
    ]  # fmt: skip
