"""What the tests share: a generated corpus, its token store, a few tiny trained runs, and ways to call the commands."""

import atexit
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from markupsafe import Markup
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# The tests' models are too small to gain from a second thread, and on a busy machine threads that wait for each other
# make them many times slower. Read when torch is first imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What the tests compile is small: processes that compile its parts at once would take longer to start than to do it.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# Without vector instructions the C++ compiler takes half as long, a quarter of it to find out which ones it knows.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")

from extrapolate import results
from extrapolate.cli import main
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.results import kept

# A shell has what runs in its background ignore Ctrl-C, and processes inherit that: those that tests stop must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SEQ_LEN = 16
VOCAB_SIZE = 400
# The real program, whether or not its script is on the PATH.
PROGRAM = [sys.executable, "-P", "-c", "from extrapolate.cli import main; main()"]
ENCODINGS = ("rope", "expe", "learned", "none")


# They take longest, the first one most. Where workers share the files out, none may be left with one of these at the
# end. xdist must keep this order: --no-loadscope-reorder.
SLOWEST = (
    "test_readme.py", "test_sweep.py", "test_kill.py", "test_commands.py", "test_damage.py", "test_extend.py",
    "test_docs.py", "test_device.py", "test_contract.py", "test_export.py", "test_resume.py", "test_report.py",
    "test_probes.py", "test_loop.py", "test_compare.py", "test_additions.py", "test_protocols.py",
    "test_imported.py", "test_render.py", "test_trust.py", "test_optimum.py",
)  # fmt: skip


def pytest_configure() -> None:
    """What the user trusts is kept in a folder of settings: the tests' own, and empty at first."""
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="extrapolate-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Faults and the tools take minutes: they are tried where their folder, or a file in it, is named."""
    if collection_path not in (Path(__file__).parent / "faults", Path(__file__).parent / "tools"):
        return None
    named = [Path(argument.split("::")[0]).absolute() for argument in config.args]
    return not any(collection_path in (path, *path.parents) for path in named) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files first; the order within a file stays."""
    place = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(SLOWEST)))


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def succeeded(self) -> "Outcome":
        """This outcome, which must be a success."""
        assert self.code == 0, self.err
        return self

    def error(self, code: int = 2) -> str:
        """The message of a command that must have failed with `code`: one line, the last one, and no traceback."""
        assert self.code == code, f"exit code {self.code}, stderr: {self.err}"
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, self.err
        assert self.err.splitlines()[-1] == lines[0]
        return lines[0].removeprefix("Error: ")


def corpus_text(rng: random.Random, words: list[str], count: int) -> str:
    """Text with something to learn: a word is often followed by its successor in the list."""
    place = rng.randrange(len(words))
    chosen = []
    for _ in range(count):
        place = (place + 1) % len(words) if rng.random() < 0.6 else rng.randrange(len(words))
        chosen.append(words[place])
    return " ".join(chosen)


def write_corpus(folder: Path, documents: int, words_each: int, seed: int = 0) -> Path:
    """A folder of .txt files, the same for the same arguments."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8))) for _ in range(200)]
    folder.mkdir(parents=True)
    for number in range(documents):
        (folder / f"{number:03}.txt").write_text(corpus_text(rng, words, words_each), encoding="utf-8")
    return folder


def quietly(*arguments: object) -> None:
    """Runs a command that must succeed."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert not ended.value.code, arguments


@pytest.fixture(scope="session")
def make_corpus() -> Callable[..., Path]:
    """write_corpus, for tests that need another one."""
    return write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 documents of about 2 000 tokens each: long enough for 64 times the training length."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus", documents=24, words_each=600)


@pytest.fixture(scope="session")
def store(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token store of the corpus. Not to be changed."""
    out = tmp_path_factory.mktemp("store") / "store"
    quietly("tokenize", corpus, "--out", out, "--vocab-size", VOCAB_SIZE, "--min-heldout-tokens", 300)
    return out


@pytest.fixture(scope="session")
def tiny(store: Path) -> list[str]:
    """The flags of `train` that make a run of ten steps, which takes a fraction of a second."""
    return [
        "--data", str(store), "--seq-len", str(SEQ_LEN), "--tokens", "5120", "--batch-tokens", "512",
        "--layers", "1", "--precision", "fp32", "--device", "cpu", "--no-compile",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def trained(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of each of ENCODINGS, called after it. Not to be changed: see `ckpt`."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ENCODINGS:
        quietly("train", "--pe", name, *tiny, "--keep-every", 2048, "--out", folder / name)
    return folder


@pytest.fixture(scope="session")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `trained`, evaluated at 1, 2 and 4 times the training length; rope and expe also with pi:factor=2."""
    folder = tmp_path_factory.mktemp("evaluated") / "ckpt"
    shutil.copytree(trained, folder)
    flags = ["--factors", "1,2,4", "--max-targets", "512"]
    quietly("eval-lengths", folder / "rope", folder / "expe", *flags, "--extend", "pi:factor=2")
    quietly("eval-lengths", folder / "learned", folder / "none", *flags)
    return folder


@pytest.fixture(scope="session")
def word_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The tokens of twelve documents of ten words drawn at random. Not to be changed."""
    rng = np.random.default_rng(0)
    words = ["red", "green", "blue", "stone", "river", "cloud", "sings", "falls", "grows", "slowly"]
    documents = [Document(str(i), " ".join(rng.choice(words, 300))) for i in range(12)]
    settings = StoreSettings(source="words", vocab_size=280, min_heldout_tokens=200)
    return build_store(documents, settings, tmp_path_factory.mktemp("data") / "words")


@pytest.fixture(scope="session")
def byte_tokenizer() -> Callable[..., Tokenizer]:
    """Makes a tokenizer of 256 tokens of a byte each, then added ones, from 256.

    A hyphen before a name means that the token is not special. template: what stands around a text, as `<s> $A`.
    """

    def make(*names: str, template: str = "") -> Tokenizer:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        made.add_tokens([AddedToken(name.removeprefix("-"), special=name[0] != "-") for name in names])
        if template:
            used = [(name, made.token_to_id(name)) for name in sorted({*template.split()} - {"$A"})]
            made.post_processor = processors.TemplateProcessing(template, special_tokens=used)
        return made

    return make


@pytest.fixture(scope="session")
def bpe(corpus: Path) -> Tokenizer:
    """A tokenizer of 300 tokens as another project might make it: it has no end-of-text token that we know."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["[START]"], initial_alphabet=alphabet, show_progress=False
    )
    made.train([str(path) for path in sorted(corpus.glob("*.txt"))], trainer)
    assert made.get_vocab_size() == 300
    return made


@pytest.fixture(scope="session")
def bpe_store(corpus: Path, bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token store of the corpus in those tokens, and one more, <eos>. Not to be changed."""
    folder = tmp_path_factory.mktemp("bpe")
    bpe.save(str(folder / "tokenizer.json"))
    quietly("tokenize", corpus, "--out", folder / "store", "--tokenizer", f"hf:{folder}", "--min-heldout-tokens", 300)
    return folder / "store"


@pytest.fixture(scope="session")
def reported(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on `evaluated`. Not to be changed."""
    folder = tmp_path_factory.mktemp("reported") / "report"
    quietly("report", evaluated, "--out", folder)
    return folder


@pytest.fixture
def ckpt(trained: Path, tmp_path: Path) -> Path:
    """A copy of `trained` in the test's own folder, to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "ckpt"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a command in this process, in the test's own folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Outcome(code or 0, written.out, written.err)

    return call


@pytest.fixture
def quick_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks measure few tokens, in this process: to start another takes seconds."""

    def call(work: Callable[..., object], *arguments: object) -> object:
        work, arguments = pickle.loads(pickle.dumps((work, arguments)))  # a process of its own could be given them
        return work(*arguments)

    class Here(Executor):
        def submit(self, work: Callable[..., object], *arguments: object) -> Future[object]:
            done: Future[object] = Future()
            done.set_result(call(work, *arguments))
            return done

    monkeypatch.setattr("extrapolate.machine.children.worker", Here)
    monkeypatch.setattr("extrapolate.benchmark.micro_batch_tokens", lambda *_: 128)
    monkeypatch.setattr("extrapolate.benchmark.BATCH_TOKENS", 128)


@pytest.fixture(scope="session")
def small_bench() -> Callable[..., Any]:
    """What `bench` measures, but with two small layers at L = 8."""

    def call(dropout: float = 0.0) -> Any:
        from extrapolate.benchmark import bench_config

        made = bench_config("tiny", 8)
        sizes = {"vocab_size": 64, "width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "ff_width": 48}
        return made.model_copy(update={"model": made.model.model_copy(update={**sizes, "dropout": dropout})})

    return call


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a command as a process of its own, in the test's own folder; what is left running is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object, program: list[str] = PROGRAM, **options: object) -> "subprocess.Popen[str]":
        command = [*program, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process = subprocess.Popen(command, cwd=tmp_path, text=True, **pipes)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def process(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[..., Outcome]:
    """Runs a command as a process of its own, to its end."""

    def call(*arguments: object, **options: object) -> Outcome:
        begun = start(*arguments, **options)
        out, err = begun.communicate(timeout=120)
        return Outcome(begun.returncode, out, err)

    return call


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, with its bytes; locks, which stay empty, are left out."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="session")
def edit_rows() -> Callable[..., None]:
    """Changes the rows that a run keeps in a table, each by a function."""

    def edit(run: Path, table: results.Table, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for path in kept.files_of(run, table):
            results.write(path, [change(row) for row in results.read(path, table)], table)

    return edit


@pytest.fixture(scope="session")
def leftovers() -> Callable[[Path], list[str]]:
    """Whatever below a folder still has a temporary name: there should be nothing."""
    return lambda folder: [str(path.relative_to(folder)) for path in folder.rglob("*.partial")]


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw nothing, which takes most of their time: `tests/reports` tests their pictures."""
    from extrapolate.reports import plots, svg
    from extrapolate.reports.sections import provenance

    monkeypatch.setattr(plots, "draw", lambda chart, path: path.touch())
    monkeypatch.setattr(svg, "drawn", lambda chart: Markup("<svg></svg>"))
    monkeypatch.setattr(provenance, "svg", lambda protocol: "<svg></svg>")


@pytest.fixture
def cells_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of a study are done in this process: another one takes seconds to start."""
    from extrapolate.studies import local, tasks, worker

    def run(left: tasks.Tasks, folder: Path, jobs: int, watch: local.Watch) -> None:
        while ready := left.ready()[:1]:
            left.settle(ready, worker.perform_all([local.assignment_of(ready[0], left, folder, jobs == 1)]))

    monkeypatch.setattr(local, "run", run)


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine() -> Iterator[None]:
    """What else runs on the developer's machine must not decide whether a training's time is known."""
    from extrapolate.machine.cpu_time import CpuTime
    from extrapolate.training import loop

    class Quiet(CpuTime):
        @classmethod
        def now(cls) -> CpuTime:
            return CpuTime(0.0, 0.0, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CpuTime", Quiet)
        yield


@pytest.fixture(autouse=True)
def _plain_environment() -> Iterator[None]:
    """Neither the developer's own settings nor what an earlier test left in the environment may decide a test."""
    terminal = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    defaults = (f"EXTRAPOLATE_{name}" for name in ("DATA", "DEVICE", "JOBS", "TRACKER"))
    with mock.patch.dict(os.environ):
        for name in (*terminal, *defaults, "PYTHONSAFEPATH"):
            os.environ.pop(name, None)
        yield
