"""Whether models have learned to use their context, from losses by position made by hand."""

import pandas as pd

from extrapolate.names import AS_TRAINED
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.positions import hardly_learned


def data(**halves: tuple[float, float]) -> ReportData:
    """Models whose losses in the halves of L = 64 are these; beyond L, and with extensions, they are others."""
    rows = [
        {
            "protocol": "windows", "model": model, "extension": extension, "factor": factor, "position": position,
            "bucket": 32, "loss": loss + (factor > 1) + (extension != AS_TRAINED), "n_targets": 32 * (1 + document),
            "seq_len": 64, "document": document,
        }
        for model, losses in halves.items()
        for extension in (AS_TRAINED, "pi")
        for factor in (1.0, 2.0)
        for position, loss in zip((0, 32), losses, strict=True)
        for document in (0, 1)
    ]  # fmt: skip
    return ReportData(rows={"windows": pd.DataFrame(rows)}, documents=pd.DataFrame(rows))


def test_models_whose_losses_hardly_fall_are_named_first() -> None:
    """At L = 64 the least fall is 0.05 nats."""
    assert hardly_learned(data(RoPE=(5.252, 5.201))) == ""
    assert hardly_learned(data(RoPE=(5.252, 5.201), NoPE=(5.252, 5.205))) == (
        "Train NoPE longer before you read its verdicts: from the first to the second half of the training length, the "
        "loss falls by only 0.047 nats, so it makes little use of context."
    )
    assert hardly_learned(data(RoPE=(5.2, 5.3), NoPE=(5.2, 5.21))).startswith(
        "Train RoPE, NoPE longer before you read their verdicts: from the first to the second half of the training "
        "length, losses fall by only 0.000 nats or less"
    )


def test_nothing_is_said_without_losses_by_position() -> None:
    whole = data(NoPE=(5.2, 5.2))
    whole.documents["bucket"] = 128  # as kept without positions
    assert hardly_learned(whole) == ""
    assert hardly_learned(ReportData()) == ""
