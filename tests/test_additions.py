"""What CONTRIBUTING.md shows is true: each example is one file, and with it in its folder it works everywhere.

So does a setting that is one more field.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import extrapolate
import extrapolate as xt
from extrapolate.data.probes.base import probes

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```python\n# (extrapolate/\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))

# A setting, declared in one place: its line goes before another's.
SETTING = """    boost: Annotated[float, _flag("how much to boost")] = Field(0.5, gt=0, le=3)
"""
STUDY = """
[base]
seq_len = 16
boost = {boost}
{sizes}
[axes]
encoding = ["decay"]
[evaluate]
factors = [1]
protocols = ["windows"]
max_targets = 512
"""
SIZES = dict(layers=1, tokens=1024, batch_tokens=512, precision="fp32", device="cpu", compile=False)

# It runs where the examples lie in a copy of the package, and nothing else has changed.
PROGRAM = """
import inspect, json, sys
from pathlib import Path

import typer.testing

import extrapolate as xt
from extrapolate.cli.commands import app
from extrapolate.data.mixture import Mixture
from extrapolate.data.probes.base import Vocabulary, parse_probes
from extrapolate.data.sources import open_source
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.evaluation.optimum import process_of
from extrapolate.reports import plots

plots.save = lambda figure, path: path.touch()  # pictures are drawn, but not encoded: it takes most of a report's time

def refusal(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except xt.UserError as error:
        return str(error)

def store_of(spec):
    settings = StoreSettings(source=spec, vocab_size=260, min_heldout_tokens=20, dedup=False)
    return build_store(open_source(spec), settings, Path("stores") / str(len(spec)))

def said_by(*arguments):
    return typer.testing.CliRunner().invoke(app, arguments).output

docs, data = sys.argv[1:3]
sys.path.append(docs)
import generate

Path("docs").mkdir()
generate.main(Path("docs"))

sizes = json.loads(sys.argv[3])
run = xt.train("decay", seq_len=16, boost=1.5, data=data, out="ckpt/decay", **sizes)
xt.sweep("study.toml", out="study")
few = dict(factors=(1, 2), device="cpu")
rows = xt.evaluate(run, extend="root", protocols=["windows", "last-token"], max_targets=512, **few)
xt.evaluate_probes(run, "twice", trials=2, **few)
inspected = xt.inspect(run, measures="surest", factors=(1,), windows=2, device="cpu")
xt.report("ckpt", out="report")

numbers, coin, table = map(store_of, ("numbers:30", "synthetic:coin:states=40,documents=30,length=50", "table.csv"))
vocabulary, train = Vocabulary.of(numbers), numbers.split("train")
tokens, answers = parse_probes("twice")[0].sequences(32, 0.5, 3, train, vocabulary)
json.dump({
    "wrong": [*xt.check("decay")["wrong"], *xt.check("root")["wrong"]],
    "losses": rows.query("extension == 'root'")[["protocol", "factor", "model"]].values.tolist(),
    "said": {name: said_by(*name.split()) for name in (
        "encodings", "extensions", "columns sizes", "columns evals", "eval-lengths --help",
        "inspect --help", "train --help",
    )},
    "boosts": [
        json.loads((Path(folder) / "config.json").read_text())["config"]["model"]["boost"]
        for folder in ("ckpt/decay", *Path("study").glob("**/decay-*"))
        if (Path(folder) / "config.json").exists()
    ],
    "signature": str(inspect.signature(xt.train).parameters["boost"]),
    "bounds": [
        refusal(xt.train, "decay", seq_len=16, data=data, boost=4.0), refusal(xt.sweep, "wrong.toml", out="wrong"),
    ],
    "refused": [
        refusal(xt.evaluate, run, protocols=["last-tokens"]), refusal(xt.train, "decai", seq_len=16, data=data),
        refusal(open_source, "nowhere"), refusal(open_source, "synthetic"),
    ],
    "numbers": sum(len(numbers.split(name).ids) for name in ("train", "validation", "test")),
    "rows": sorted(id for name in ("train", "validation", "test") for id in table.split(name).ids),
    "optimum": process_of(coin).optimum(coin.split("test").slice(0, 5)[None]).tolist(),
    "inspected": inspected[["quantity", "layer", "value"]].values.tolist(),
    "probes": [probe.text for probe in parse_probes("all")],
    "mixture": Mixture.parse("twice=0.5").text,
    "tokens": list(tokens.shape), "answers": answers.tolist(),
}, open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def folder(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program has run: it has found.json, docs, ckpt and report."""
    folder = tmp_path_factory.mktemp("additions")
    package = Path(extrapolate.__file__).parent
    shutil.copytree(package, folder / "extrapolate", ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in EXAMPLES.items():
        assert not (folder / name).exists()
        (folder / name).write_text(code, encoding="utf-8")
    config = folder / "extrapolate/model/config.py"
    before, field, after = config.read_text(encoding="utf-8").partition("    ssmax: Annotated")
    config.write_text(before + SETTING + field + after, encoding="utf-8")
    values = SIZES | {"data": str(store)}
    sizes = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    for name, boost in (("study", 2.5), ("wrong", 4.0)):
        (folder / f"{name}.toml").write_text(STUDY.format(boost=boost, sizes=sizes), encoding="utf-8")
    (folder / "stores").mkdir()
    rows = [f'{n},"row {n}: {"some text, " * (10 + n)}"' for n in range(6)]
    (folder / "table.csv").write_text("\n".join(["number,text", *rows]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ROOT / "docs", store, json.dumps(SIZES)],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, object]:
    return json.loads((folder / "found.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report(folder: Path) -> str:
    return (folder / "report/report.md").read_text(encoding="utf-8")


def page(folder: Path, name: str) -> str:
    return (folder / "docs" / name).read_text(encoding="utf-8")


def test_the_table_counts_one_file_for_each_example() -> None:
    table = re.findall(r"^\| an? .* \| (\d+) \| `(extrapolate/.*/)` \| `(tests/.*/)` \|$", PAGE, re.MULTILINE)
    assert sorted(folder for _, folder, _ in table) == sorted(name.rpartition("/")[0] + "/" for name in EXAMPLES)
    for count, folder, tests in table:
        assert count == "1"
        assert (ROOT / folder / "__init__.py").exists()
        assert (ROOT / tests).is_dir()


def test_an_encoding(folder, found, report) -> None:
    assert "| Decay | " in report
    assert " decay " in found["said"]["encodings"]
    assert "\n## decay\n" in page(folder, "encodings.md")
    assert "did you mean 'decay'" in found["refused"][1]


def test_an_extension(folder, found, report) -> None:
    assert sorted(map(tuple, found["losses"])) == [
        (protocol, factor, "Decay + Root") for protocol in ("last-token", "windows") for factor in (1, 2)
    ]
    assert "| Decay + Root | " in report
    assert " root " in found["said"]["extensions"]
    assert "\n## root\n" in page(folder, "extensions.md")
    assert "root" in page(folder, "encodings.md").partition("\n## rope\n")[2].partition("\n## ")[0]


def test_an_encoding_and_an_extension_pass_their_check(found) -> None:
    assert len(found["wrong"]) >= 8
    assert not any(found["wrong"])


def test_a_protocol(folder, found, report) -> None:
    rows = xt.rows(folder / "ckpt/decay").query("protocol == 'last-token'")
    assert sorted(set(rows["factor"])) == [1, 2]
    assert 0 < rows["n_targets"].max() <= 512
    plain = rows[rows["model"] == "Decay"].set_index("factor")
    assert plain.loc[1, "loss"] == plain.loc[1, "control_loss"]
    made = {path.name for path in (folder / "report").iterdir()}
    assert {"loss_by_ev.last-token.parquet", "loss_by_position.last-token.parquet"} <= made
    assert "## Protocol last-token" in report
    assert "(loss_by_position.last-token.png)" in report
    assert "fixed-target, growing, last-token, sliding, windows" in " ".join(
        found["said"]["eval-lengths --help"].split()
    )
    assert "did you mean 'last-token'" in found["refused"][0]
    assert (folder / "docs/protocol-last-token.svg").exists()
    row = "| [`last-token`](protocol-last-token.svg) | One token is scored at the end of each span. |"
    assert row in page(folder, "protocols.md")


def test_a_measurement(folder, found, report) -> None:
    ((quantity, layer, value),) = found["inspected"]
    assert (quantity, layer) == ("weight", 0)
    assert 0 < value <= 1
    assert "removal, scale, sinks, surest, truncation" in " ".join(found["said"]["inspect --help"].split())
    assert "\n### surest\n" in page(folder, "inspection.md")
    assert "# How the models use position" in report


def test_a_probe(folder, found, report) -> None:
    assert found["probes"] == sorted([*probes.names(), "twice"])
    assert found["mixture"] == "twice=0.5"
    assert found["tokens"] == [3, 33]
    assert found["answers"] == [31, 32]
    assert "\n### twice\n" in page(folder, "probes.md")
    assert re.search(r"^## .*twice$", report, re.MULTILINE)


def test_a_source(folder, found) -> None:
    assert found["numbers"] == 30
    assert "not hf:NAME, numbers:COUNT, stdlib, synthetic:NAME, a file" in found["refused"][2]
    assert "**`numbers:COUNT`**" in page(folder, "data.md")


def test_a_kind_of_file(folder, found) -> None:
    assert found["rows"] == [f"table.csv:{n}" for n in range(6)]
    assert "| `.csv` | Every row is a document. |" in page(folder, "data.md")


def test_a_process(folder, found) -> None:
    assert found["optimum"] == [[pytest.approx(3.68888, abs=1e-5)] * 4]
    assert "expected one of synthetic:coin, synthetic:echo, synthetic:markov" in found["refused"][3]
    assert "**`synthetic:coin`**" in page(folder, "synthetic.md")


def test_a_section_of_the_report(folder, found, report) -> None:
    assert report.index("\n# Size\n\n## Sizes\n") > report.index("\n# Probes\n")
    table = pd.read_parquet(folder / "report/sizes.parquet").set_index("Model")["Parameters"]
    assert set(table.index) == {"Decay", "Decay + Root"}
    assert f"| Decay | {table['Decay']} |" in report
    assert "How many parameters it has." in found["said"]["columns sizes"]
    assert "\n## sizes\n" in page(folder, "results.md")


def test_a_metric(folder, found) -> None:
    (weights,) = (folder / "ckpt/decay/results").iterdir()
    rows = pd.read_parquet(weights / "windows")
    assert (rows["worst_loss"] > rows["loss"]).all()
    assert "\n- `worst_loss` (number, nats). The largest loss of a single target." in page(folder, "results.md")
    assert "The largest loss of a single target." in found["said"]["columns evals"]


def test_a_setting(folder, found) -> None:
    assert re.search(r"--boost <float>\s+how much to boost\n", found["said"]["train --help"])
    assert found["signature"] == "boost: float | None = None"
    assert found["boosts"] == [1.5, 2.5]
    called, swept = found["bounds"]
    assert "boost" in called
    assert "less than or equal to 3" in called
    assert re.match(r"wrong\.toml, line 4: .*boost", swept)
    assert "| `boost` | `--boost` | `model` | 0.5 | how much to boost |" in page(folder, "setting-up.md")
