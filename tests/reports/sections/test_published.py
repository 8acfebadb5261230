"""A published table beside constructed runs: which orders agree, and what a study of real runs shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.reports.load_tables import Evaluated
from extrapolate.reports.page import Table, Text, markdown
from extrapolate.reports.published import FILE, Repeating, write_cells
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part
from extrapolate.reports.sections.published import Published

EXPE = {"Sinusoidal": [4.0, 4.75, 5.64], "RoPE": [3.88, 4.37, 5.05], "ExPE": [3.93, 3.87, 3.88]}
ENCODINGS = {"Sinusoidal": "sinusoidal", "RoPE": "rope", "ExPE": "expe"}
DOCUMENTS, TARGETS = 40, 100


def part(tmp_path: Path, losses: dict[str, list[float]], **given: Any) -> Part:
    """The section on models, see `data`."""
    made = data(tmp_path, losses, **given)
    assert Published.subjects(made) == ["tables"]
    return Published.part(made, "tables")


def data(
    tmp_path: Path, losses: dict[str, list[float]], seeds: int = 1, table: str = "expe-table-2",
    encodings: dict[str, str] = ENCODINGS, factors: tuple[float, ...] = (1, 2, 4), deviation: float = 0.02,
    **columns: object,
) -> ReportData:  # fmt: skip
    """Models with these mean losses at the factors, each document's a little off, in a study."""
    rows, documents, folders, cells = [], [], {}, []
    for at, (model, mine) in enumerate(losses.items()):
        for seed in range(seeds):
            run = f"{encodings[model].replace(':', '-')}-s{seed}"
            folders[tmp_path / "runs" / run] = run
            cells.append(Repeating(run, encodings[model], "tiny", 4, "stdlib"))
            shared = {
                "run": run, "model": model, "extension": "as-trained", "protocol": "windows", "seed": seed,
                "targets_hash": "t", "step": 10,
            }  # fmt: skip
            for factor, loss in zip(factors, mine, strict=True):
                rows.append(
                    shared | {"factor": float(factor), "loss": loss, "parameters": 1_100_000, "tokens": 600_000}
                    | {"seq_len": 64, "training_seconds": 10.0 * loss, "training_machine": "m"} | columns
                )  # fmt: skip
                noise = np.random.default_rng([at, seed, int(factor)]).normal(0, deviation, DOCUMENTS)
                documents += [
                    shared | {"factor": float(factor), "document": str(number), "block": 0, "n_targets": TARGETS}
                    | {"loss": loss + off, "control_loss": 5.0, "optimum_loss": None}
                    for number, off in enumerate(noise - noise.mean())
                ]  # fmt: skip
    write_cells(tmp_path, [table], cells)
    shown, by_document = (pd.DataFrame(made).astype({"seed": "Int64"}) for made in (rows, documents))
    return ReportData(Evaluated(folders, ()), {"windows": shown}, documents=by_document)


def texts(made: Part) -> list[str]:
    return [block.text for block in made.blocks if isinstance(block, Text)]


def saved(made: Part, name: str, tmp_path: Path) -> pd.DataFrame:
    made.files[name](tmp_path / name)
    return results.read_frame(tmp_path / name)


def orders(made: Part, where: str) -> dict[str, str]:
    """What the page says that ours say, by what the paper orders, at one place."""
    (table,) = [block.frame for block in made.blocks if isinstance(block, Table) and "Ours say" in block.frame]
    return table[table["Where"] == where].set_index("The paper orders")["Ours say"].to_dict()


def test_where_all_agree(tmp_path: Path) -> None:
    made = part(tmp_path, EXPE, seeds=3)
    said = texts(made)
    assert said[0] == (
        "The paper orders 9 pairs of rows. In ours: 9 the same way (9 *). The paper orders 3 rows by length. In ours: "
        "3 the same way (3 *)."
    )
    below = ["RoPE below Sinusoidal", "ExPE below Sinusoidal"]
    assert orders(made, "ev=1") == dict.fromkeys([*below, "RoPE below ExPE"], "same *")
    for where in ("ev=2", "ev=4"):
        assert orders(made, where) == dict.fromkeys([*below, "ExPE below RoPE"], "same *")
    by_length = ["Sinusoidal worse", "RoPE worse", "ExPE better"]
    assert orders(made, "ev=1 to ev=4") == dict.fromkeys(by_length, "same *")
    assert "and 3 seeds." in said[-1]
    assert "another seed may give another" not in said[-1]


def test_a_pair_the_other_way_round(tmp_path: Path) -> None:
    made = part(tmp_path, EXPE | {"RoPE": [3.995, 4.37, 5.05]})
    said = texts(made)
    counts = "7 the same way (7 *), 1 the other way round (1 *), 1 undecided"
    assert said[0].startswith(f"The paper orders 9 pairs of rows. In ours: {counts}.")
    assert orders(made, "ev=1") == {
        "ExPE below Sinusoidal": "same (this run) *", "RoPE below ExPE": "reversed (this run) *",
        "RoPE below Sinusoidal": "undecided (this run)",
    }  # fmt: skip
    pairs = saved(made, "published_pairs.parquet", tmp_path).set_index(["where", "lower", "higher"])
    turned = pairs.loc[("ev=1", "RoPE", "ExPE")]
    assert turned["order"] == "reversed"
    assert turned["published"] == pytest.approx(-0.05)
    assert turned["ours"] == pytest.approx(0.065)
    assert 0 < turned["low"] < 0.065 < turned["high"]
    assert "another seed may give another" in said[-1]


def test_the_table_has_the_papers_shape(tmp_path: Path) -> None:
    made = part(tmp_path, EXPE | {"ExPE": [3.9, 3.8, 3.75]})
    lines = markdown(made.blocks).splitlines()
    start = lines.index("| Row |  | ev=1 | ev=2 | ev=4 |")
    assert lines[start + 6 : start + 8] == [
        "| ExPE | paper | 3.93 | 3.87 | 3.88 |",
        "|  | ours | 3.900 | 3.800 | 3.750 |",
    ]
    page = " ".join(lines)
    assert "# ExPE, Table 2 (arXiv 2509.19569)" in page
    assert "700 million tokens of FineWeb" in page
    assert "Ours: 1.1 million parameters, 0.6 million tokens (text: stdlib), training length 64, seed 0." in page
    assert "ours are our reading" in page
    numbers = saved(made, "published.parquet", tmp_path)
    assert list(numbers.columns) == [column.name for column in Published.tables[1].columns]
    assert numbers[numbers["row"] == "ExPE"][["published", "ours"]].to_numpy().tolist() == [
        [3.93, 3.9], [3.87, 3.8], [3.88, 3.75],
    ]  # fmt: skip


def test_perplexities_are_compared_by_their_losses(tmp_path: Path) -> None:
    encodings = {"NoPE": "none", "RoPE": "rope"}
    losses = {"NoPE": [4.3], "RoPE": [4.1]}
    made = part(tmp_path, losses, seeds=3, table="p-rope-table-2", encodings=encodings, factors=(1,))
    numbers = saved(made, "published.parquet", tmp_path).set_index(["row", "column"])
    assert numbers.loc[("NoPE", "Wiki"), "ours"] == pytest.approx(np.exp(4.3))
    pairs = saved(made, "published_pairs.parquet", tmp_path).set_index(["where", "lower", "higher"])
    found = pairs.loc[("FlanV2", "RoPE theta 10k", "NoPE")]
    assert found["order"] == "same"
    assert found["ours"] == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("seconds", "order"), [([10.0, 10.4], "undecided"), ([10.0, 13.0], "same"), ([10.0, 8.0], "reversed")]
)
def test_times_are_ratios(tmp_path: Path, seconds: list[float], order: str) -> None:
    """Of 12 layers, where RoPE took 1.078 of the time. Times are good to about a tenth."""
    encodings = {"Learned": "learned", "RoPE": "rope"}
    losses = dict(zip(encodings, [[second / 10] for second in seconds], strict=True))
    cells = dict(encodings=encodings, factors=(1,), table="depth")
    made = part(tmp_path, losses, **cells)
    # The constructed cells have 4 layers.
    numbers = saved(made, "published.parquet", tmp_path).set_index("row")
    assert numbers.loc["RoPE (4 layers)", "ours"] == pytest.approx(seconds[1] / seconds[0])
    assert pd.isna(numbers.loc["RoPE (12 layers)", "ours"])
    pairs = saved(made, "published_pairs.parquet", tmp_path).set_index(["lower", "higher"])
    assert pairs.loc[("Absolute (4 layers)", "RoPE (4 layers)"), "order"] == order
    assert "Absolute (2 layers)" not in {lower for lower, _ in pairs.index}  # 0.981 is too near to 1
    unmeasured = part(tmp_path, losses, **cells, training_seconds=np.nan)
    assert any("A sweep with --jobs 1 measures them" in said for said in texts(unmeasured))


STUDY = """
published = {published}

[base]
data = "{store}"
seq_len = 16
tokens = 1024
batch_tokens = 512
precision = "fp32"
compile = false
width = 32
keep_every = 512

[axes]
encoding = ["learned", "rope"]
layers = [4]

[[cell]]
encoding = "rope"
layers = 2

[evaluate]
factors = [1, 2]
protocols = ["windows"]
max_targets = 512
checkpoint = "all"
"""


@pytest.mark.usefixtures("cells_here", "without_pictures")
def test_a_study_of_sizes_that_repeats_a_table(store: Path, tmp_path: Path) -> None:
    """Also its checkpoints along the way are evaluated, and each size is a model of its own."""
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(STUDY.format(published='"depth"', store=store))
    swept = xt.sweep(file, out, jobs=1)
    assert not swept.failed
    page = (out / "report/report.md").read_text()
    assert "# Published tables\n\n## RoPE against learned absolute positions, by depth (a course project)" in page
    numbers = results.read_frame(out / "report/published.parquet").set_index("row")
    assert numbers.loc["RoPE (4 layers)", "model"] == "RoPE, 4 layers"
    seconds = {run.name: run.training_seconds() for run in swept.runs}
    ratio = seconds["rope-layers4-s0"] / seconds["learned-layers4-s0"]
    assert numbers.loc["RoPE (4 layers)", "ours"] == pytest.approx(ratio)
    assert "| RoPE (8 layers) | paper | 1.012 |" in page
    along = results.read_frame(out / "report/checkpoints.parquet")
    assert along.groupby("Model")["Tokens"].apply(list).to_dict() == {
        model: [512, 1024] for model in ("RoPE, 4 layers", "RoPE, 2 layers", "Learned, 4 layers")
    }
    assert (out / FILE).is_file()


def test_an_unknown_table_is_refused_with_its_line(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(published='["depth", "expe-table-22"]', store=store))
    with pytest.raises(xt.UserError, match="toml, line 2: unknown published table 'expe-table-22'; did you mean"):
        xt.sweep(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
