"""A source, a kind of file, a process and a probe are one file each: dropped into its folder it works everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import extrapolate

FILES = {
    "sources/numbers.py": '''
from extrapolate.data.documents import Document
from extrapolate.data.sources.base import NamedSource, sources


@sources.register("numbers")
class Numbers(NamedSource):
    """So many documents that count."""

    argument = "COUNT"

    def __init__(self, count):
        self.count = count

    @classmethod
    def open(cls, argument, text_field):
        return cls(int(argument))

    def __iter__(self):
        for n in range(self.count):
            yield Document(str(n), " ".join(map(str, range(n, n + 100))))
''',
    "sources/local/csv.py": '''
import csv

from extrapolate.data.documents import Document
from extrapolate.data.sources.fields import text_of
from extrapolate.data.sources.local.base import FileKind, kinds


@kinds.register(".csv")
class Csv(FileKind):
    """Every row is a document."""

    @classmethod
    def documents(cls, file, name, text_field):
        with file.open(newline="") as rows:
            for number, row in enumerate(csv.DictReader(rows)):
                yield Document(f"{name}:{number}", text_of(row, text_field, f"{file}, row {number}"))
''',
    "synthetic/coin.py": '''
import numpy as np

from extrapolate.data.synthetic.base import Process, processes


@processes.register("coin")
class Coin(Process):
    """Every token is drawn evenly: nothing can be predicted."""

    def draw(self, rng, documents):
        return rng.integers(0, self.states, (documents, self.length))

    def optimum(self, tokens_WT):
        return np.full((len(tokens_WT), tokens_WT.shape[1] - 1), np.log(self.states))
''',
    "probes/twice.py": '''
from dataclasses import dataclass
from typing import ClassVar

from extrapolate.data.probes.base import Parts, Probe, probes


@probes.register("twice")
@dataclass(frozen=True, kw_only=True)
class Twice(Probe):
    """Two symbols, said again."""

    marker: ClassVar[int] = 4
    source: ClassVar[str] = "a test"
    whole: ClassVar[bool] = True

    def least(self):
        return 5

    def parts(self, rng, length, vocabulary, full):
        return Parts.repeated(vocabulary.marker(self.marker), rng.choice(vocabulary.symbols(self.symbols), 2))
''',
}

PROGRAM = """
import json, sys
from pathlib import Path

from extrapolate.data.mixture import Mixture
from extrapolate.data.probes.base import Vocabulary, build_list
from extrapolate.data.catalogue import data_page
from extrapolate.data.sources import open_source
from extrapolate.data.store import StoreSettings, build
from extrapolate.evaluation.optimum import process_of

def refusal(spec):
    try:
        open_source(spec)
    except ValueError as error:
        return str(error)

def store_of(spec):
    settings = StoreSettings(source=spec, vocab_size=260, min_heldout_tokens=20)
    return build(open_source(spec), settings, Path("stores") / str(len(spec)))

numbers, coin, rows = map(store_of, ("numbers:30", "synthetic:coin:states=40,documents=30,length=50", "table.csv"))
vocabulary, train = Vocabulary.of(numbers), numbers.split("train")
tokens, answers = build_list("twice")[0].sequences(32, 0.5, 3, train, vocabulary)
json.dump({
    "nowhere": refusal("nowhere"),
    "no process": refusal("synthetic"),
    "numbers": sum(len(numbers.split(name).ids) for name in ("train", "validation", "test")),
    "rows": sorted(id for name in ("train", "validation", "test") for id in rows.split(name).ids),
    "optimum": process_of(coin).optimum(coin.split("test").slice(0, 5)[None]).tolist(),
    "all": [probe.text for probe in build_list("all")],
    "mixture": Mixture.parse("twice=0.5").text,
    "tokens": list(tokens.shape), "answers": answers.tolist(),
    "page": data_page(),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a program sees that uses a copy of the package with these files in it, and nothing else changed."""
    folder = tmp_path_factory.mktemp("additions")
    package = Path(extrapolate.__file__).parent
    shutil.copytree(package, folder / "extrapolate", ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in FILES.items():
        (folder / "extrapolate" / "data" / name).write_text(code, encoding="utf-8")
    (folder / "stores").mkdir()
    rows = [f'{n},"row {n}: {"some text, " * (10 + n)}"' for n in range(6)]
    (folder / "table.csv").write_text("\n".join(["number,text", *rows]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_source(found) -> None:
    assert found["numbers"] == 30
    assert "not hf:NAME, numbers:COUNT, stdlib, synthetic:NAME, a file" in found["nowhere"]
    assert "**`numbers:COUNT` · source**" in found["page"]


def test_a_kind_of_file(found) -> None:
    assert found["rows"] == [f"table.csv:{n}" for n in range(6)]
    assert "| `.csv` | Every row is a document. |" in found["page"]


def test_a_process(found) -> None:
    assert found["optimum"] == [[pytest.approx(3.68888, abs=1e-5)] * 4]
    assert "expected one of synthetic:coin, synthetic:echo, synthetic:markov" in found["no process"]
    assert "**`synthetic:coin` · synthetic text**" in found["page"]


def test_a_probe(found) -> None:
    assert found["all"] == ["copy", "mqar", "needle", "passkey", "twice"]
    assert found["mixture"] == "twice=0.5"
    assert found["tokens"] == [3, 33]
    assert found["answers"] == [31, 32]
    assert "\n## twice\n" in found["page"]
