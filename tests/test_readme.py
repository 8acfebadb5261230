"""Every command of the README runs, with fewer tokens, and local folders in place of Hub names."""

import json
import re
import shlex
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from extrapolate.data.sources.stdlib import StandardLibrary

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Later flags win over the README's own.
FEWER = {
    "tokenize": ["--vocab-size", "600", "--min-heldout-tokens", "1100", "--max-tokens", "300000"],
    "train": ["--tokens", "2048", "--batch-tokens", "1024", "--no-compile"],
    "eval-lengths": ["--factors", "1,4", "--max-targets", "256", "--probe-trials", "2"],
    "bench": ["--seconds", "0.1", "--seq-len", "8", "--no-compile"],
}


# By who they belong to: a dataset, and a checkpoint.
LOCAL = {"hf:HuggingFaceFW": "hf:hub", "hf:HuggingFaceTB": "hf:SmolLM-135M"}


def commands() -> list[list[str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.fixture
def small_stdlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded corpus has twelve of its files, long ones."""
    whole = StandardLibrary.__init__

    def few(self: StandardLibrary) -> None:
        whole(self)
        self.files = [path for path in self.files if path.stat().st_size > 50_000][:12]

    monkeypatch.setattr(StandardLibrary, "__init__", few)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bpe: Tokenizer) -> Path:
    """An empty folder with what the README assumes: the examples, some novels, a dataset and a model for the Hub's."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    rng = np.random.default_rng(0)
    syllables = ["ca", "me", "sto", "wha", "ri", "who", "sin", "fal", "slo", "gai", "an", "the"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(2000)]
    (folder / "novels").mkdir()
    (folder / "hub").mkdir()
    texts = [" ".join(rng.choice(words, 3000)) for _ in range(8)]
    for i, text in enumerate(texts):
        (folder / "novels" / f"{i}.txt").write_text(text, encoding="utf-8")
    rows = [json.dumps({"text": text}) for text in texts]
    (folder / "hub" / "train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=300, max_position_embeddings=64, **sizes))
    model.save_pretrained(folder / "SmolLM-135M")
    bpe.save(str(folder / "SmolLM-135M" / "tokenizer.json"))
    return folder


def shortened(command: list[str]) -> list[str]:
    name = command[1]
    parts = [LOCAL[part.split("/")[0]] if part.startswith("hf:") else part for part in command]
    more = list(FEWER.get(name, []))
    if name == "tokenize" and "--tokenizer" in parts:
        more = more[2:]
    if name == "tokenize" and parts[2].startswith("synthetic:"):
        parts[2] += ",documents=80"
    if name == "train" and "--from" not in parts:
        more += ["--layers", "1"]
    if "--preset" in parts:
        more += ["--seq-len", "16", "--tokens", "256", "--batch-tokens", "128"]
    if name == "bench" and "--encodings" in parts:
        more += ["--pe", "none"]
    if "--seq-len" in parts and LOCAL["hf:HuggingFaceTB"] in parts:
        more += ["--seq-len", "32"]
    if name == "eval-lengths" and "--factors" in parts:  # of a run trained at 512
        more = ["--max-targets", "8192", "--protocol", "windows"]
    return [*parts, *more]


def test_the_two_commands_come_first_and_are_in_the_makefile() -> None:
    first, second = commands()[:2]
    assert [first, second] == [["make", "report"], ["make", "test"]]
    for command in (first, second):
        done = subprocess.run([*command, "-n"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout


def test_the_report_is_where_the_readme_says() -> None:
    done = subprocess.run(["make", "report", "-n"], cwd=ROOT, capture_output=True, text=True, check=True)
    study = re.search(r"sweep (\S+)", done.stdout)
    assert study is not None
    assert (ROOT / study[1]).is_file()
    assert f"`sweeps/{Path(study[1]).stem}/report/`" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("quick_measurements", "small_stdlib", "without_pictures")
def test_every_command_runs(folder: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the README's order, in one folder: later commands use what earlier ones made."""
    ours = [command for command in commands() if command[0] == "extrapolate"]
    assert len(ours) >= 15
    assert {command[0] for command in commands()} == {"make", "extrapolate"}
    monkeypatch.chdir(folder)
    for command in ours:
        began = time.monotonic()
        done = cli(*shortened(command)[1:])
        assert done.code == 0, f"{' '.join(command)}\n{done.err}"
        print(f"{time.monotonic() - began:.1f} s: {' '.join(command)}")
    assert (folder / "report" / "loss_by_ev.parquet").exists()
    assert (folder / "report-study" / "report.md").exists()


def test_figures_say_where_they_come_from() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    words = " ".join(text.split())
    assert re.search(
        r"1 core, commits (?:[0-9a-f]{12}, )*[0-9a-f]{12} and [0-9a-f]{12}, 20\d\d-\d\d-\d\d\.", words
    )  # the losses
    speeds = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert re.search(r"cores, on 20\d\d-\d\d-\d\d, commit [0-9a-f]{12}\.", speeds)


def test_it_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
