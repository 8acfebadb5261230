"""How fast text becomes tokens on the disk, beside `datasets.Dataset.map` with the same tokenizer, in one run.

Each variant gets the same texts from the same Parquet file, and has a process of its own, with the children that it
starts. The peer's reading of that file is not counted, ours is; the learning of the BPE is nobody's. Near-duplicates
are not looked for: the peer does not, and a text that is said again would be one.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import busy
import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Source
from extrapolate.data.sources import open_source
from extrapolate.data.tokenizer import learn_bpe
from extrapolate.errors import UserError
from extrapolate.machine.children import worker
from extrapolate.machine.limits import cores

VOCAB_SIZE = 2048
BATCHES = (16, 128, 1000)  # documents that the peer's function gets at a time
SAMPLED_S = 0.1


@dataclass(frozen=True)
class Variant:
    """What is measured: the peer's function gets batches of this number of documents."""

    who: str
    processes: int
    batch: int = 0


@dataclass(frozen=True)
class Speed:
    """MB of text per second, and the most memory of all processes, MiB; and the rate beside busy programs.

    Memory is the sum of what each process holds alone and its part of what several share (PSS).
    """

    mb_per_s: float
    peak_mib: float
    busy_mb_per_s: float | None


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """With one process and with one a core: this program, and `datasets` in the fastest of its batches."""
    for count in sorted({1, cores()}):
        ours, *peers = [Variant("extrapolate", count), *(Variant("datasets", count, size) for size in BATCHES)]
        speeds = measure(options.source, options.megabytes, [ours, *peers], options.busy)
        fastest = max(peers, key=lambda variant: speeds[variant].mb_per_s)
        for variant in (ours, fastest):
            yield {
                "what": "tokenising, MB/s", "who": variant.who, "mode": f"{count} process{'es' if count > 1 else ''}",
                "speed": speeds[variant].mb_per_s,
                "of the peer": speeds[variant].mb_per_s / speeds[fastest].mb_per_s,
                f"beside {options.busy} busy": speeds[variant].busy_mb_per_s,
                "peak MiB": speeds[variant].peak_mib,
            }  # fmt: skip


def measure(source: str, megabytes: float, chosen: list[Variant], beside: int) -> dict[Variant, Speed]:
    """Measures each variant on the first `megabytes` of a source; a shorter one is repeated with its lines shuffled.

    Raises UserError if the source cannot be read.
    """
    found = {}
    with tempfile.TemporaryDirectory(prefix="extrapolate-peers-") as made:
        folder = Path(made)
        mb = _prepare(open_source(source), megabytes * 1e6, folder) / 1e6
        for variant in chosen:
            with worker() as process:
                measured = process.submit(_measure, variant, folder)
                peak = 0.0
                while not measured.done():
                    peak = max(peak, sum(map(_held_mib, _children(os.getpid()))))
                    time.sleep(SAMPLED_S)
                with busy.programs(beside):
                    loud = mb / process.submit(_measure, variant, folder).result() if beside else None
            found[variant] = Speed(mb / measured.result(), peak, loud)
    return found


def _prepare(source: Source, size: float, folder: Path) -> int:
    """Writes the texts and a tokenizer of them into a folder. Returns the bytes of the texts."""
    texts: list[str] = []
    total = 0
    for text in _texts(source):
        texts.append(text)
        total += len(text.encode())
        if total >= size:
            break
    learn_bpe(texts, VOCAB_SIZE, cores()).save(str(folder / "tokenizer.json"))
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    return total


def _texts(source: Source) -> Iterator[str]:
    yield from (document.text for document in source)
    lines = [document.text.splitlines(keepends=True) for document in source]
    if not any(lines):
        raise UserError("the source holds no text")
    order = random.Random(0)
    while True:
        for some in lines:
            yield "".join(order.sample(some, len(some)))


def _measure(variant: Variant, folder: Path) -> float:
    return _ours(variant, folder) if variant.who == "extrapolate" else _peer(variant, folder)


def _ours(variant: Variant, folder: Path) -> float:
    out, texts = folder / "store", str(folder / "texts.parquet")
    settings = StoreSettings(texts, tokenizer=str(folder / "tokenizer.json"), min_heldout_tokens=1, dedup=False)
    began = time.perf_counter()
    build_store(open_source(texts), settings, out, workers=variant.processes)
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    return seconds


def _peer(variant: Variant, folder: Path) -> float:
    datasets.disable_progress_bars()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if variant.processes > 1:  # each process has one thread, as its authors advise
        os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def encode(texts: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"tokens": [one.ids for one in tokenizer.encode_batch_fast(texts["text"], add_special_tokens=False)]}

    with tempfile.TemporaryDirectory(dir=folder) as cache:
        read = datasets.Dataset.from_parquet(str(folder / "texts.parquet"), cache_dir=cache)
        many = variant.processes if variant.processes > 1 else None
        began = time.perf_counter()
        read.map(encode, batched=True, batch_size=variant.batch, num_proc=many, remove_columns=["text"])
        return time.perf_counter() - began


def _children(pid: int) -> list[int]:
    try:
        lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return []
    mine = [int(child) for one in lists for child in one]
    return mine + [below for child in mine for below in _children(child)]


def _held_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
