"""A published table beside constructed runs: which orders agree, and what a study of real runs shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results
from extrapolate.reports.load_tables import LoadedTables
from extrapolate.reports.page import Details, Text, markdown
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
    return ReportData(LoadedTables(folders, ()), {"windows": shown}, documents=by_document)


def texts(made: Part) -> list[str]:
    return [block.text for block in made.blocks if isinstance(block, Text)]


def saved(made: Part, name: str, tmp_path: Path) -> pd.DataFrame:
    made.files[name](tmp_path / name)
    return results.read_frame(tmp_path / name)


def said_of(made: Part) -> str:
    """What the page says first: how many orders agree."""
    return texts(made)[0]


def rule(made: Part) -> str:
    """How the orders are found."""
    (details,) = [block for block in made.blocks if isinstance(block, Details)]
    return " ".join(details.markdown().split())


def test_where_all_agree(tmp_path: Path) -> None:
    made = part(tmp_path, EXPE, seeds=3)
    assert said_of(made) == (
        "The paper orders 9 pairs of rows. In ours: 9 the same way. The paper orders 3 rows by length. In ours: 3 the "
        "same way."
    )
    assert "another seed may give another" not in rule(made)


def test_a_pair_the_other_way_round(tmp_path: Path) -> None:
    made = part(tmp_path, EXPE | {"RoPE": [3.995, 4.37, 5.05]})
    counts = "7 the same way, 1 the other way round, 1 undecided"
    assert said_of(made).startswith(f"The paper orders 9 pairs of rows. In ours: {counts}.")
    assert "another seed may give another" in rule(made)


@pytest.mark.parametrize(
    ("losses", "given", "rows", "lengths"),
    [
        ([3.88, 3.87, 3.879], {"seeds": 3}, "8 the same way, 1 equivalent", "2 the same way, 1 equivalent"),
        # One model gets worse where the paper's gets better.
        ([3.93, 3.87, 4.26], {}, "9 the same way", "2 the same way, 1 the other way round"),
        (
            [3.88, 3.87, 3.879],
            {"seeds": 3, "deviation": 0.2},
            "8 the same way, 1 undecided",
            "2 the same way, 1 undecided",
        ),
    ],
)
def test_what_is_no_order_is_equivalent_reversed_or_undecided(
    tmp_path: Path, losses: list[float], given: dict[str, Any], rows: str, lengths: str
) -> None:
    said = said_of(part(tmp_path, EXPE | {"ExPE": losses}, **given))
    assert f"9 pairs of rows. In ours: {rows}." in said
    assert f"3 rows by length. In ours: {lengths}." in said


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


def test_rows_that_we_do_not_have_are_missing(tmp_path: Path) -> None:
    made = part(tmp_path, {"RoPE": EXPE["RoPE"], "ExPE": EXPE["ExPE"]}, seeds=3)
    assert said_of(made).startswith("The paper orders 9 pairs of rows. In ours: 3 the same way, 6 missing.")
    assert "|  | ours | n/a | n/a | n/a |" in markdown(made.blocks)


def test_two_models_that_fit_one_row_are_none(tmp_path: Path) -> None:
    """Their mean would be neither."""
    encodings = ENCODINGS | {"RoPE, 2 layers": "rope"}
    made = part(tmp_path, {"RoPE": EXPE["RoPE"], "RoPE, 2 layers": [4.1, 4.6, 5.2]}, encodings=encodings)
    numbers = saved(made, "published.parquet", tmp_path)
    assert numbers["ours"].isna().all()
    assert "Several of our models fit one row, so none of them stands beside it: RoPE." in texts(made)


def test_perplexities_are_compared_by_their_losses(tmp_path: Path) -> None:
    encodings = {"NoPE": "none", "RoPE": "rope"}
    losses = {"NoPE": [4.3], "RoPE": [4.1]}
    made = part(tmp_path, losses, seeds=3, table="p-rope-table-2", encodings=encodings, factors=(1,))
    numbers = saved(made, "published.parquet", tmp_path).set_index(["row", "column"])
    assert numbers.loc[("NoPE", "Wiki"), "ours"] == pytest.approx(np.exp(4.3))
    assert "the same way" in said_of(made)


@pytest.mark.parametrize(
    ("seconds", "order"),
    [([10.0, 10.4], "undecided"), ([10.0, 13.0], "the same way"), ([10.0, 8.0], "the other way round")],
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
    of_times = said_of(made).partition("pairs of times. In ours: ")[2]
    assert of_times.startswith(f"1 {order}, ")
    unmeasured = part(tmp_path, losses, **cells, training_seconds=np.nan)
    assert any("A sweep with --jobs 1 measures them" in said for said in texts(unmeasured))


def test_a_scale_without_the_papers_sizes_stands_beside_all_of_them(tmp_path: Path) -> None:
    encodings = {"RoPE": "rope", "ExPE": "expe", "ExQPE": "exqpe"}
    losses = {"RoPE": [2.89, 3.80, 4.95], "ExPE": [2.87, 2.83, 3.25], "ExQPE": [2.86, 2.83, 3.35]}
    made = part(tmp_path, losses, table="expe-table-1", encodings=encodings)
    counted = said_of(made)
    assert counted.startswith("The paper orders 12 pairs of rows.")  # of one size, and without those of times
    assert "The paper orders 6 rows by length." in counted
    assert "The paper orders 4 pairs of times. In ours: " in counted


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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"windows"', '"sliding"', "toml, line 24: the published table depth .* add 'windows' to protocols"),
        ('"depth"', '["depth", "expe-table-22"]', "toml, line 2: unknown published table 'expe-table-22'; did you mea"),
    ],
)
def test_a_study_that_cannot_repeat_a_table_is_refused_with_its_line(
    store: Path, tmp_path: Path, old: str, new: str, words: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY.format(published='"depth"', store=store).replace(old, new))
    with pytest.raises(xt.UserError, match=words):
        xt.sweep(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_a_damaged_table_of_cells_is_one_message(tmp_path: Path, content: bytes) -> None:
    made = data(tmp_path, EXPE)
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(xt.UserError, match=r"published_cells.parquet is damaged"):
        Published.subjects(made)
