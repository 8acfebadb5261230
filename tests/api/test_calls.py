"""Every public call, as a notebook makes it: no command line."""

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.progress import Quiet
from extrapolate.runs.run import Run

SMALL = dict(tokens=5120, batch_tokens=512, layers=1, precision="fp32", device="cpu", compile=False)  # ten steps


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Two runs, trained and evaluated by the calls."""
    folder = tmp_path_factory.mktemp("api")
    made = {name: xt.train(name, seq_len=16, data=store, out=folder / name, **SMALL) for name in ("rope", "expe")}
    xt.evaluate(made.values(), factors=(1, 2), max_targets=512)
    return made


class Noted(Quiet):
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.updates: list[tuple[str, float, float | None]] = []

    def say(self, message: str) -> None:
        self.said.append(message)

    def display(self, unit: str, stopped: str = "stopped") -> Any:
        return nullcontext(self)

    def update(self, what: str, done: float, total: float | None = None, note: str = "") -> None:
        self.updates.append((what, done, total))


def test_train_takes_a_store_or_its_folder_and_returns_the_run(runs: dict[str, Run], store: Path) -> None:
    noted = Noted()
    run = xt.train("rope", seq_len=16, data=Store.open(store), progress=noted, **SMALL)
    assert run.path == Path("ckpt/rope-L16-s0")
    assert run.finished
    assert run.checkpoints("last")[-1].sha256 == runs["rope"].checkpoints("last")[-1].sha256
    _, done, total = noted.updates[-1]
    assert done == total == 5120
    assert any("validation loss" in line for line in noted.said)
    noted.said.clear()
    assert xt.train(out=run.path, resume=True, progress=noted).path == run.path
    assert noted.said == [f"{run.path} is already finished: nothing to do"]


def test_evaluate_returns_the_rows_that_the_runs_keep(runs: dict[str, Run]) -> None:
    noted = Noted()
    limits = {"windows": 512, "fixed-target": 64}
    folder = runs["rope"].path.parent
    table = xt.evaluate(folder, factors=(1, 2), extend="pi", max_targets=limits, progress=noted)
    assert set(table["model"]) == {"RoPE", "RoPE + PI", "ExPE", "ExPE + PI"}
    assert len(table) == 2 * 2 * 2 * 2
    assert table.groupby("protocol")["n_targets"].max().to_dict() == limits
    kept = xt.rows(list(runs.values()))
    keys = ["run", "extension", "protocol", "factor", "targets_hash"]
    joined = table.merge(kept, on=keys, suffixes=("", "_kept"))
    assert len(joined) == len(table)
    assert (joined["loss"] == joined["loss_kept"]).all()
    _, done, total = noted.updates[-1]
    assert done == pytest.approx(total)


def test_load_gives_the_model_with_its_weights(runs: dict[str, Run]) -> None:
    run = xt.load(runs["rope"].path)
    model = run.model
    assert not model.training
    logits = model(torch.zeros(1, 8, dtype=torch.long))
    assert logits.shape == (1, 8, run.config.model.vocab_size)
    assert run.model is model  # read once
    assert run.tokenizer.decode(run.tokenizer.encode("some words").ids) == "some words"


def test_the_names_are_there_whatever_was_imported_before() -> None:
    """A call must not be shadowed by a module of its name."""
    code = (
        "import extrapolate.api.rows, extrapolate.api.train, extrapolate.cli.train, extrapolate as xt;"
        "assert all(callable(getattr(xt, name)) for name in xt.__all__ if name != '__version__');"
        "assert set(xt.__all__) <= set(dir(xt))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = xt.nothing


def test_the_import_alone_is_light() -> None:
    heavy = "torch pandas pyarrow datasets tokenizers numpy typer rich matplotlib"
    code = f"import sys, extrapolate as xt; print([m for m in {heavy.split()!r} if m in sys.modules])"
    made = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert made.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: xt.evaluate(run, stride="x", protocols="sliding"), "`stride`: 'x' is not a whole number"),
        (lambda run: xt.evaluate(run, factors=(1, None)), "`factors`: None is not a number"),
        (lambda run: xt.evaluate(run, max_targets={"windows": 2.5}), "`max_targets`: 2.5 is not a whole number"),
        (lambda run: xt.evaluate(run, protocols=3), "`protocols`: 3 is not a text"),
        (lambda run: xt.evaluate(run, checkpoint="first"), "`checkpoint` must be last or all or half, not first"),
        (lambda run: xt.evaluate(run, device="tpu"), "unknown `device='tpu'`: use auto, cpu or cuda"),
        (lambda run: xt.evaluate(3), "`runs`: 3 is not a run or a folder"),
        (lambda run: xt.evaluate_probes(run, ["needle", 3]), "`probes`: 3 is not a probe"),
        (lambda run: xt.inspect(run, windows="x"), "`windows`: 'x' is not a whole number"),
        (lambda run: xt.compare("nowhere"), "nowhere: no such folder"),
        (lambda run: xt.report(run, True), "`out`: True is not a path"),
        (lambda run: xt.load(run), "`path`: a Run is not a path"),
        (lambda run: xt.sweep(3), "`study`: 3 is not a path"),
        (lambda run: xt.tokenize(3), "`source`: 3 is not a source"),
        (lambda run: xt.plot_encodings(["rope", 3]), "`names`: 3 is not an encoding or a run"),
        (lambda run: xt.train("rope", data=3), "`data`: 3 is not a path"),
    ],
)
def test_what_is_no_value_of_an_argument_is_refused(
    runs: dict[str, Run], call: Callable[[Run], Any], words: str
) -> None:
    with pytest.raises(xt.UserError, match=f"^{re.escape(words)}"):
        call(runs["rope"])


def test_one_value_stands_for_a_list_of_it(runs: dict[str, Run]) -> None:
    one = xt.evaluate(runs["rope"], factors=2, protocols="windows", precisions="fp32", max_targets=256)
    assert one[["factor", "protocol", "precision"]].values.tolist() == [[2.0, "windows", "fp32"]]
    probes = xt.evaluate_probes(runs["rope"], ["needle", "copy"], trials=1, factors=1)
    assert set(probes["probe"]) == {"needle", "copy"}
