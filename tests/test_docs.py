"""The pages in docs/ say what the code says, and their commands run."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import extrapolate as xt
from extrapolate import specs
from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.extensions import stack
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings
from extrapolate.runs.run import Run
from extrapolate.studies.cells import cells_of
from extrapolate.studies.study import read_study

ROOT = Path(__file__).parent.parent
DIMS = Dims(width=128, heads=4, head_dim=32, seq_len=64, layers=4)
FRONTIER = read_study(ROOT / "examples" / "studies" / "frontier.toml", "tiny")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_pages_and_pictures_made_from_code_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", tmp_path], check=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    made = {path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in files}
    pages = {"data.md", "encodings.md", "extensions.md", "probes.md", "protocols.md", "results.md", "synthetic.md"}
    assert made.keys() >= {*pages, "inspection.md", "python-api.md", "scaling.md"}
    for name, text in made.items():
        assert page(name) == text, f"docs/{name} is not what the code says: run `make docs`"


def test_the_types_of_settings_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    settings = importlib.import_module("settings")
    assert settings.FILE.read_text(encoding="utf-8") == settings.typed(), "run `make docs`"


def test_every_protocol_has_its_picture() -> None:
    names = {f"protocol-{name}.svg" for name in protocols.names()}
    assert names == {path.name for path in (ROOT / "docs").glob("protocol-*.svg")}
    assert names == set(re.findall(r"^\| \[`.*?`\]\((protocol-.*?\.svg)\)", page("protocols.md"), re.MULTILINE))
    sections = re.findall(r"^## `(.*)`\n\n!\[.*\]\((.*)\)$", page("protocols.md"), re.MULTILINE)
    assert [f"protocol-{name}.svg" for name, _ in sections] == [picture for _, picture in sections]
    explained = {name for name, _ in sections}
    assert {"windows", "fixed-target", "sliding", "yarn"} <= explained <= set(protocols.names())


def test_every_encoding_has_its_picture_and_no_other_is_there() -> None:
    pictures = {path.name: path.stat().st_size for path in (ROOT / "docs" / "encodings").glob("*.png")}
    assert pictures.keys() == {f"{name}.png" for name in encodings.names()} | {"rope-shift.png", "sinusoidal-shift.png"}
    assert max(pictures.values()) < 60_000
    shown = re.findall(r"\]\(encodings/(.*?\.png)\)", page("encodings.md"))
    assert sorted(shown) == sorted(pictures)


@pytest.mark.parametrize("name", ["sinusoidal", "rope"])
def test_the_page_of_encodings_shows_that_a_shift_is_a_rotation(name: str) -> None:
    """`make docs` runs the code of docs/notes/, and puts below it what it prints."""
    section = page("encodings.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "a rotation: True" in section
    assert ": False" not in section
    assert f"](encodings/{name}-shift.png)" in section


def test_links_between_pages_lead_somewhere() -> None:
    for source in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        if source.parent.name == "notes":
            continue  # parts of pages elsewhere
        for link in re.findall(r"\]\(([^)#\s]+)\)", source.read_text(encoding="utf-8")):
            assert "://" in link or (source.parent / link).exists(), f"{source.name}: {link}"


def test_an_encoding_of_ones_own_takes_under_thirty_lines() -> None:
    code = re.findall(r"^```python\n(.*?)^```", page("writing-an-encoding.md"), re.MULTILINE | re.DOTALL)
    names = ("encoding", "rotary", "gate", "extension")
    assert code == [(ROOT / f"examples/my_{name}.py").read_text(encoding="utf-8") for name in names]
    lines = [len(text.splitlines()) for text in code]
    assert max(lines[:1] + lines[2:]) < 30


@pytest.mark.parametrize("extension", ["none", "yarn", "ntk", "pi", "self-extend"])
def test_the_rotary_encoding_of_ones_own_is_rope_until_it_is_trained(extension: str) -> None:
    """With frequency extensions too: they reach it."""
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=4, kv_heads=2, head_dim=16, ff_width=48)
    file = ROOT / "examples" / "my_rotary.py"
    logits = {}
    for name in ("rope", f"{file}:PhaseRoPE"):
        torch.manual_seed(0)
        model = Model(sizes, name, {}, 16).eval()
        plan = PLAIN if extension == "none" else stack.parse(extension).plan(model.encoding, 16, 64)
        with torch.no_grad():
            logits[name] = model(torch.arange(61)[None], plan)
        assert extension == "none" or not torch.allclose(logits[name], model(torch.arange(61)[None]), atol=1e-4)
    torch.testing.assert_close(*logits.values(), rtol=1e-5, atol=1e-6)


def test_the_forgetful_encoding_of_ones_own_is_fox_with_its_gate_turned_round() -> None:
    """ln sigmoid(-z) = -softplus(z): an identity that the page's code has with the package's."""
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=4, kv_heads=2, head_dim=16, ff_width=48)
    mine, fox = (Model(sizes, name, {}, 16).eval() for name in (f"{ROOT / 'examples' / 'my_gate.py'}:Forgetful", "fox"))
    turned = {name: -value if ".gate." in name else value for name, value in mine.state_dict().items()}
    fox.load_state_dict(turned)
    with torch.no_grad():
        logits = [model(torch.arange(61)[None]) for model in (mine, fox)]
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-6)


def test_the_gate_on_keys_of_the_page_multiplies_each_key_heads_keys(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```", page("writing-an-encoding.md"), re.MULTILINE | re.DOTALL)
    head = "from torch import nn\nfrom extrapolate.encodings.base import LOGITS, Encoding\n"
    (tmp_path / "keys.py").write_text(head + code)
    assert not any(xt.check(f"{tmp_path / 'keys.py'}:OpenKeys", seq_len=16)["wrong"])
    (tmp_path / "keys.py").write_text(head + code.replace("dims.kv_heads", "dims.heads"))
    found = xt.check(f"{tmp_path / 'keys.py'}:OpenKeys", seq_len=16)
    assert "keys.py: rotate failed: RuntimeError: The size of tensor a (2) must match" in found["wrong"][0]


def test_the_message_on_the_page_of_own_encodings_is_what_the_code_says(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom extrapolate.encodings.base import Encoding\nclass Mine(Encoding):\n    display = 'Mine'\n"
        "    def bias(self, pos_T, pos_S): return torch.zeros(2, len(pos_T), len(pos_S))\n"
    )
    said = re.search(r"^Error: mine\.py: (.*)$", page("writing-an-encoding.md"), re.MULTILINE)
    assert said is not None
    with pytest.raises(ValueError, match=re.escape(said[1])):
        layer_encodings(f"{tmp_path / 'mine.py'}:Mine", {}, DIMS)


@pytest.fixture
def run_commands(cli):
    """Runs a page's commands with flags that make each quick, and checks that it has at least this many."""

    def call(text: str, least: int, **fewer: list[str]) -> dict[str, str]:
        lines = re.findall(r"^extrapolate (.*)$", text, re.MULTILINE)
        assert len(lines) >= least
        shown = {}
        for line in lines:
            command, *rest = shlex.split(line)
            if command == "tokenize":
                rest[0] += f"{',' if rest[0].count(':') == 2 else ':'}documents=60"
            # What continues a run has its sizes.
            more = ["--tokens", "512"] if "--from" in rest else fewer.get(command.replace("-", "_"), [])
            shown[command] = cli(command, *rest, *more).succeeded().out
        return shown

    return call


@pytest.mark.usefixtures("without_pictures")
def test_the_commands_for_an_encoding_and_an_extension_of_ones_own_run(run_commands, tiny, tmp_path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    few = ["--factors", "1,4", "--max-targets", "256"]
    run_commands(page("writing-an-encoding.md"), 8, train=tiny, eval_lengths=few)
    assert (tmp_path / "report-mine" / "report.md").exists()


def test_the_commands_of_the_page_of_extensions_run(run_commands, tiny, tmp_path) -> None:
    few = ["--factors", "1,2", "--max-targets", "256"]
    run_commands(page("extensions.md"), 8, train=[*tiny, "--layers", "2"], eval_lengths=few)
    rope, drope = (Run.open(tmp_path / "ckpt/drope" / name).model for name in ("rope", "drope"))
    assert (rope.encoding.display, drope.encoding.display) == ("RoPE", "NoPE")
    assert rope.state_dict().keys() == drope.state_dict().keys()
    found = xt.rows(tmp_path / "ckpt/mixed/rnope")
    extended = {f"RNoPE + {extension}" for extension in ("log-n(unrotated layers)", "Llama 4")}
    assert {*found["model"]} == {"RNoPE", *extended}


def test_the_frontier_study_names_encodings_and_arguments_that_there_are() -> None:
    """An encoding that is new joins it when it is measured."""
    parsed = [specs.parse(encoding) for encoding in FRONTIER.axes["encoding"]]
    assert {spec.name for spec in parsed} <= set(encodings.names())
    assert len({spec.name for spec in parsed}) >= 45
    for spec in parsed:
        layer_encodings(spec.name, spec.arguments, DIMS)


def test_the_commands_of_the_page_of_probes_run(run_commands, tiny, tmp_path) -> None:
    few = ["--factors", "1,2", "--probe-trials", "2"]
    before, _, rest = page("probes.md").partition("## Recall of K pairs")
    pairs, _, after = rest.partition("## The probes")
    run_commands(before + after + page("results/probes.md"), 3, train=[*tiny, "--seq-len", "32"], eval_lengths=few)
    few = ["--probe-trials", "1"]  # of lengths that hold the pairs, and in a vocabulary of 300
    run_commands(pairs.replace("=256", "=96"), 3, train=[*tiny, "--seq-len", "64"], eval_lengths=few)
    assert len(xt.rows(tmp_path / "ckpt/probes/alibi", "probes"))
    rows = xt.rows(tmp_path / "ckpt/pairs/rope", "probes")
    assert set(rows[rows["probe"] == "mqar:symbols=96,pairs=96,queries=1"]["length"]) == {1024}


@pytest.mark.usefixtures("without_pictures")
def test_the_commands_of_the_page_of_inspection_run(run_commands, tiny, tmp_path) -> None:
    run_commands(page("inspection.md"), 5, train=tiny, inspect=["--factors", "1,2", "--windows", "2"])
    assert "How RoPE (rope) uses position" in (tmp_path / "report-inspection/report.md").read_text()


@pytest.mark.usefixtures("without_pictures")
def test_the_commands_of_the_page_of_synthetic_text_run(run_commands, tmp_path) -> None:
    few = ["--tokens", "2048", "--batch-tokens", "1024", "--layers", "1", "--no-compile"]
    shown = run_commands(page("synthetic.md"), 10, train=few, eval_lengths=["--factors", "1,4", "--max-targets", "512"])
    assert "the optimum" in shown["compare"]
    text = (tmp_path / "report-markov/report.md").read_text()
    assert "| optimum | " in text
    assert "Gain captured (ev=4)" in text
    assert "sees what it predicts" not in text
    assert (tmp_path / "report-markov/optimum_by_ev.fixed-target.parquet").exists()


def test_the_file_of_the_page_of_studies_is_one(tmp_path: Path) -> None:
    """Every section, and the names of its cells."""
    study, store, scale = re.findall(r"^```toml\n(.*?)^```", page("studies.md"), re.MULTILINE | re.DOTALL)
    (tmp_path / "study.toml").write_text(study + store + scale)
    read = read_study(tmp_path / "study.toml")
    names = [cell.name for cell in cells_of(read)]
    assert len(names) == 27 - 2 * 3 + 3 + 9
    assert "rope-lr0.02-s1" in names
    assert "rope-lr0.02-s1+pi" in names
    assert read.stores["data/books"].vocab_size == 4096
    assert read.extensions == (("pi", {}), ("yarn", {"encoding": "rope"}))


@pytest.mark.parametrize("file", sorted((ROOT / "examples" / "studies").glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_of_the_examples_are_sound(file: Path) -> None:
    assert cells_of(read_study(file))
    scale = {"quick-start": "quick", "audit": "start"}.get(file.stem, "tiny")
    small = cells_of(read_study(file, scale))
    assert {cell.settings.get("data", "data/stdlib") for cell in small} == {"data/stdlib"}
    assert file.name in page("studies.md")
