"""Key tokens beside all other targets: what is counted, how it adds up, and when nothing can be shown."""

import math
from typing import Any

import pandas as pd
import pytest

from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.key_tokens import KEY_TOKENS, UNLIKE, KeyTokens, chosen
from extrapolate.statistics.documents import of_key_tokens, of_others

COLUMNS = {"key_context": 3.0, "key_within": 256, "seq_len": 64, "split": "test", "precision": "fp32", "step": 1}
# By document: targets, of these key tokens, the losses of all and of key tokens, then the control's.
DOCUMENTS = [(10 + i, i % 4, 3.0 + i / 10, 5.0 - i / 20, 3.2, 6.0 + i / 30) for i in range(40)]


def rows_of(key_gain: float, model: str = "RoPE", **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of losses and those of its documents, with key tokens better by so much."""
    shared = {
        "model": model, "run": model, "extension": "as-trained", "protocol": "fixed-target", "factor": 4.0,
        "targets_hash": "t", "seed": 0, "plan_hash": "p", **COLUMNS, **more,
    }  # fmt: skip
    documents = []
    for number, (count, n_key, loss, key_loss, control, key_control) in enumerate(DOCUMENTS):
        of_key = key_loss - key_gain if n_key else math.nan
        documents.append(
            shared | {
                "document": str(number), "block": 0, "n_targets": count, "n_key": n_key, "key_loss": of_key,
                "loss": loss - key_gain * n_key / count, "control_loss": control, "optimum_loss": None,
                "key_control_loss": key_control if n_key else math.nan, "key_optimum_loss": None,
            }
        )  # fmt: skip
    table = pd.DataFrame(documents)
    total = {
        name: (table[name] * table[n]).sum() / table[n].sum()
        for n, names in {"n_targets": ("loss", "control_loss"), "n_key": ("key_loss", "key_control_loss")}.items()
        for name in names
    }
    counts = {name: int(table[name].sum()) for name in ("n_targets", "n_key")}
    return shared | total | counts | {"optimum_loss": math.nan, "key_optimum_loss": math.nan}, documents


def material_of(*made: tuple[dict[str, Any], list[dict[str, Any]]]) -> ReportData:
    rows = pd.DataFrame([row for row, _ in made])
    documents = pd.DataFrame([row for _, mine in made for row in mine])
    losses = pd.DataFrame({"Model": list(dict.fromkeys(rows["model"]))})
    return ReportData(rows={"fixed-target": rows}, losses={"fixed-target": losses}, documents=documents)


def test_the_parts_add_up_to_the_whole() -> None:
    row, documents = rows_of(0.5)
    table = pd.DataFrame(documents)
    key, others = of_key_tokens(table), of_others(table)
    assert len(key) == 30
    assert key["n_targets"].sum() == row["n_key"]
    assert key["n_targets"].sum() + others["n_targets"].sum() == row["n_targets"]
    for name in ("loss", "control_loss"):
        whole = sum((part[name] * part["n_targets"]).sum() for part in (key, others))
        assert whole / row["n_targets"] == pytest.approx(row[name])
    assert (key["loss"] * key["n_targets"]).sum() / row["n_key"] == pytest.approx(row["key_loss"])
    all_key = table.head(1).assign(n_targets=3, n_key=3, key_loss=1.0, loss=1.0)
    assert of_others(all_key).empty


def test_the_tables_have_both_and_their_differences() -> None:
    data = material_of(rows_of(0.5), rows_of(0.0, "ALiBi"))
    assert KeyTokens.subjects(data) == ["fixed-target"]
    part = KeyTokens.part(data, "fixed-target")
    heading, share, _, losses, *_ = (block.markdown() for block in part.blocks)
    row, documents = rows_of(0.5)
    assert heading == "## Key tokens under fixed-target"
    assert f"{row['n_key']} of {row['n_targets']:,} targets (5.1%)" in share
    assert losses.splitlines()[2] == f"| RoPE | {row['key_loss']:.3f} | {row['key_control_loss']:.3f} | 1 |"
    (write,) = part.files.values()
    table = write.keywords["frame"]
    assert list(table) == KEY_TOKENS.names
    found = table.set_index(["model", "targets"])
    for model in ("RoPE", "ALiBi"):
        row, documents = rows_of(0.5 if model == "RoPE" else 0)
        for targets, part_of in (("key", of_key_tokens), ("other", of_others)):
            mine, one = part_of(pd.DataFrame(documents)), found.loc[(model, targets)]
            expected = ((mine["loss"] - mine["control_loss"]) * mine["n_targets"]).sum() / mine["n_targets"].sum()
            assert one["difference"] == pytest.approx(expected)
            assert one["loss"] - one["control_loss"] == pytest.approx(expected)
            assert one["low"] < expected < one["high"]
            assert one["n_targets"] == mine["n_targets"].sum()
            assert (one["clusters"], one["cluster"]) == (len(mine), "documents")
    others = found.xs("other", level="targets")["loss"]
    assert others["RoPE"] == pytest.approx(others["ALiBi"])  # better on key tokens alone


@pytest.mark.parametrize("other", [{"key_context": 2.0}, {"key_within": 512}], ids=["context", "length"])
def test_runs_with_different_key_tokens_are_not_shown(other: dict[str, Any]) -> None:
    part = KeyTokens.part(material_of(rows_of(0.5), rows_of(0.0, "ALiBi", **other)), "fixed-target")
    assert [block.markdown() for block in part.blocks][1:] == [UNLIKE.replace("\n", " ")]
    assert not part.files


def test_the_optimum_is_the_first_row_and_says_which_tokens() -> None:
    row, documents = rows_of(0.5, key_context=math.nan)
    known = {"optimum_loss": 1.0, "key_optimum_loss": 1.5}
    data = material_of((row | known, [one | known for one in documents]))
    blocks = [block.markdown() for block in KeyTokens.part(data, "fixed-target").blocks]
    assert "the optimum gains 0.69 nats or more on them" in blocks[1]
    assert blocks[3].splitlines()[2].startswith("| optimum | 1.500 | n/a |")
    assert "not only the last L = 64" in chosen(data.rows["fixed-target"])
