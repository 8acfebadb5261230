"""Models that other libraries run, evaluated like runs."""

import re
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import extrapolate as xt
from extrapolate import files
from extrapolate.data.store import Store
from extrapolate.interop.foreign import ForeignRun
from extrapolate.runs.run import Run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
FACTORS = (1, 2, 4)
FEWER = dict(factors=FACTORS, max_targets=512)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rope(trained: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained / "rope", tmp_path / "ckpt" / "rope")
    return xt.load("ckpt/rope")


def counts(tokens_BT: torch.Tensor, vocab_size: int = 400) -> torch.Tensor:
    """A causal model: a token is as likely as it was frequent in the window so far."""
    return torch.nn.functional.one_hot(tokens_BT, vocab_size).cumsum(dim=1).float().add(0.01).log()


def losses(table: pd.DataFrame) -> pd.Series:
    return table.set_index(["protocol", "factor"])["loss"]


def test_our_own_model_as_a_foreign_one_has_the_losses_that_it_has_here(rope: Run, store: Path) -> None:
    model, asked = rope.model, dict(data=store, protocols=("windows", "fixed-target", "sliding"), **FEWER)
    ours = xt.evaluate(rope, **asked).sort_values(["protocol", "factor"])
    for kind, call in {
        "torch": model,
        "numpy": lambda tokens_BT: model(tokens_BT).numpy(),
        "with logits": lambda tokens_BT: SimpleNamespace(logits=model(tokens_BT)),
    }.items():
        made = xt.foreign(call, f"Ours {kind}", seq_len=16, tokenizer=rope.path)
        theirs = xt.evaluate(made, **asked).sort_values(["protocol", "factor"])
        for column in ("loss", "control_loss"):
            np.testing.assert_allclose(theirs[column], ours[column], rtol=1e-5, err_msg=kind)
        assert theirs["targets_hash"].tolist() == ours["targets_hash"].tolist()
        assert set(theirs["model"]) == {f"Ours {kind}"}
        assert set(theirs["parameters"].dropna()) == ({model.parameter_count()} if kind == "torch" else set())
        assert theirs[["seed", "preset", "tokens", "training_seconds"]].isna().all(axis=None)


def test_a_name_without_letters_names_no_folder(store: Path) -> None:
    with pytest.raises(xt.UserError, match="the name '!!' has no letter or digit"):
        xt.foreign(counts, "!!", seq_len=16, tokenizer=store)
    assert xt.foreign(counts, "!!", seq_len=16, tokenizer=store, out="ckpt/marks").path == Path("ckpt/marks")


def test_a_masked_logit_hides_no_leak(store: Path) -> None:
    def sees_the_next(tokens_BT: torch.Tensor) -> torch.Tensor:
        logits_BTV = 8.0 * torch.nn.functional.one_hot(tokens_BT.roll(-1, 1), 400).float()
        logits_BTV[..., 0] = -1e4
        return logits_BTV

    with pytest.raises(xt.UserError, match="Masked: the model lets token 0 see token 1"):
        xt.foreign(sees_the_next, "Masked", seq_len=16, tokenizer=store)


def test_rows_of_other_weights_are_dropped(store: Path) -> None:
    net = torch.nn.Embedding(400, 400)
    made = xt.foreign(net, "Changing", seq_len=16, tokenizer=store)
    xt.evaluate(made, data=store, protocols=("windows", "fixed-target"), **FEWER)
    xt.evaluate(made, data=store, protocols="windows", **FEWER)
    assert set(xt.rows("ckpt/foreign-Changing")["protocol"]) == {"windows", "fixed-target"}
    with torch.no_grad():
        net.weight[-1, -1] += 1  # as a step of its training would
    xt.evaluate(made, data=store, protocols="windows", **FEWER)
    assert set(xt.rows("ckpt/foreign-Changing")["protocol"]) == {"windows"}


def test_the_losses_are_those_of_its_logits(store: Path) -> None:
    made = xt.foreign(counts, "Counts", seq_len=16, tokenizer=store)
    table = xt.evaluate(made, data=store, protocols=["windows"], factors=FACTORS)
    kept = xt.rows("ckpt/foreign-Counts")
    assert kept["loss"].tolist() == table["loss"].tolist()
    # By hand, at 1x: windows of 16 inputs from the documents' starts.
    split = Store.open(store).split("test")
    assert losses(table)["windows", 4] < losses(table)["windows", 1]  # more counts, better frequencies
    documents = xt.rows("ckpt/foreign-Counts", "documents")
    one = documents[(documents["factor"] == 1) & (documents["document"] == documents["document"].iloc[0])]
    number = list(split.ids).index(one["document"].iloc[0])
    tokens = split.slice(int(split.offsets[number]), int(split.offsets[number + 1])).astype(np.int64)
    windows = int(one["n_targets"].sum()) // 16
    expected = [
        torch.nn.functional.cross_entropy(
            counts(torch.from_numpy(tokens[None, 16 * w : 16 * w + 16]))[0],
            torch.from_numpy(tokens[16 * w + 1 : 16 * w + 17]),
        ).item()
        for w in range(windows)
    ]
    assert (one["loss"] * one["n_targets"]).sum() / one["n_targets"].sum() == pytest.approx(np.mean(expected), rel=1e-5)
    assert set(table["imported"]) == {"counts"}


@pytest.mark.usefixtures("without_pictures")
def test_mamba_trained_by_its_own_library_stands_in_the_same_table(
    rope: Run, store: Path, cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example with fewer steps, then two protocols, a probe, the comparison and the report."""
    shutil.copy(ROOT / "examples" / "mamba.py", "mamba.py")
    for name, value in {"STORE": str(store), "STEPS": "2", "LAYERS": "1", "SEQ_LEN": "16"}.items():
        monkeypatch.setenv(f"MAMBA_{name}", value)
    runpy.run_path("mamba.py", run_name="__main__")
    flags = ["--data", store, "--max-targets", 256, "--factors", "1,2", "--protocol", "fixed-target,sliding"]
    flags += ["--probes", "copy", "--probe-trials", 2]
    printed = cli("eval-lengths", "ckpt/rope", "mamba.py:load", *flags).succeeded().out
    assert "foreign-Mamba" in printed
    rows = xt.rows("ckpt/foreign-Mamba")
    assert set(rows["imported"]) == {"mamba.py:load"}
    assert set(rows["protocol"]) == {"fixed-target", "sliding"}
    assert rows["loss"].notna().all()
    assert len(xt.rows("ckpt/foreign-Mamba", "probes")) == 2 * 5
    assert Path("ckpt/foreign-Mamba/model.py").read_bytes() == Path("mamba.py").read_bytes()
    compared = cli("compare", "ckpt").succeeded().out
    assert "Mamba" in compared
    cli("report", "ckpt", "--out", "report").succeeded()
    page = Path("report/report.md").read_text()
    assert "| Mamba |" in page
    assert "mamba.py:load" in page
    # It is left out of its parent folder, and refused by itself with what to evaluate instead.
    again = cli("eval-lengths", "ckpt", "--data", store, "--max-targets", 256, "--factors", 1).succeeded()
    assert "another library runs their models: ckpt/foreign-Mamba" in again.err
    assert "evaluate mamba.py:load" in cli("eval-lengths", "ckpt/foreign-Mamba", "--data", store).error()
    # The page's own function, which is refused in fewer bits.
    shown = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    Path("my_model.py").write_text(shown[1].replace('"data/stdlib"', f'"{store}"').replace("=64", "=16"))
    refused = cli("eval-lengths", "my_model.py:load", *flags[:6], "--precision", "int8").error()
    assert "Mamba cannot be evaluated in int8" in refused


def test_extensions_are_refused_with_the_reason_and_all_is_none_of_them(store: Path) -> None:
    made = xt.foreign(counts, "Counts", seq_len=16, tokenizer=store)
    with pytest.raises(xt.UserError, match=r"pi does not apply to Counts: it changes positions, .*no extension"):
        xt.evaluate(made, data=store, extend="pi", **FEWER)
    assert len(xt.evaluate(made, data=store, extend="all", protocols=["windows"], **FEWER)) == len(FACTORS)


def test_a_model_that_fails_on_long_windows_is_evaluated_up_to_the_longest_that_is_given(store: Path) -> None:
    def short(tokens_BT: torch.Tensor) -> torch.Tensor:
        return counts(tokens_BT) + torch.zeros(32, 1)[torch.arange(tokens_BT.shape[1])]

    made = xt.foreign(short, "Short", seq_len=16, tokenizer=store)
    with pytest.raises(xt.UserError, match=r"Short fails on a window of 64 tokens \(IndexError: .*, give `max_length`"):
        xt.evaluate(made, data=store, protocols=["windows"], **FEWER)
    made = xt.foreign(short, "Short", seq_len=16, tokenizer=store, max_length=32, out="ckpt/short")
    found = losses(xt.evaluate(made, data=store, protocols=["windows"], **FEWER))
    assert found.notna().tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: counts(x)[0], r"gave float32 \[16, 400\] for token ids \[2, 16\]; expected logits"),
        (lambda x: counts(x)[:, 1:], r"gave float32 \[2, 15, 400\]"),
        (lambda x: counts(x).long(), r"gave int64 \[2, 16, 400\]"),
        (lambda x: counts(x)[..., :300], "gives 300 logits a token, and its tokenizer has 400 tokens"),
        (lambda x: counts(x) * float("nan"), "not finite"),
        (lambda x: counts(x) + counts(x).mean(dim=1, keepdim=True), "lets token 0 see token 15, which comes after"),
        (lambda x: counts(x) + counts(x).mean(dim=0, keepdim=True), "lets a window see another window of the batch"),
        (lambda x: counts(x) + torch.rand(400), "lets a call depend on an earlier call"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_any_work(store: Path, call, message: str) -> None:
    with pytest.raises(xt.UserError, match=message):
        xt.foreign(call, "Wrong", seq_len=16, tokenizer=store)
    assert not Path("ckpt").exists()


def test_a_torch_module_is_evaluated_without_dropout(store: Path) -> None:
    class Dropping(torch.nn.Module):
        def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(counts(tokens_BT), training=self.training)

    assert isinstance(xt.foreign(Dropping(), "Dropping", seq_len=16, tokenizer=store), ForeignRun)


class Counts(torch.nn.Module):
    """`counts`, with a buffer that changes nothing."""

    def __init__(self, held: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("held", torch.tensor(held))

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        return counts(tokens_BT)


def test_its_folder_is_refused_before_a_store_is_made(store: Path) -> None:
    made = xt.foreign(Counts(), "Counts", seq_len=16, tokenizer=store)
    for call in (xt.evaluate, xt.inspect):
        with pytest.raises(xt.UserError, match="holds no weights, for another library runs its model"):
            call(made.path, factors=(1,))
    assert not Path("data").exists()


def test_a_folder_keeps_the_rows_of_one_model(store: Path, rope: Run) -> None:
    given = dict(name="Counts", seq_len=16, tokenizer=store)
    first, again = (xt.foreign(Counts(), **given).checkpoints("last")[0].sha256 for _ in range(2))
    assert first == again
    for call, changed, folder in (
        (Counts(held=1.0), {}, "foreign-Counts"),  # other weights
        (counts, {}, "foreign-Counts"),  # no torch module
        (Counts(), {"revision": "2"}, "foreign-Counts"),
        (Counts(), {"seq_len": 32}, "foreign-Counts"),
        (Counts(), {"out": "ckpt/rope"}, "rope"),
    ):
        with pytest.raises(xt.UserError, match=f"ckpt/{folder} holds another run or model"):
            xt.foreign(call, **given | changed)
    assert rope.path.is_dir()
    other = xt.foreign(Counts(), **given, revision="2", out="ckpt/second")
    assert other.checkpoints("last")[0].sha256 != first


def test_a_folder_of_an_earlier_version_is_refused(store: Path) -> None:
    made = xt.foreign(Counts(), "Counts", seq_len=16, tokenizer=store)
    record = files.read_sealed(made.path / "config.json")
    record["config"]["foreign"]["answers"] = [-1.5, -2.5]
    files.write_sealed(made.path / "config.json", record)
    with pytest.raises(xt.UserError, match=r"foreign-Counts/config\.json: foreign: .* evaluate again"):
        xt.foreign(Counts(), "Counts", seq_len=16, tokenizer=store)


FILE = """
import torch, extrapolate as xt
def far(by):
    def call(tokens_BT):
        logits_BTV = torch.nn.functional.one_hot(tokens_BT, 400).cumsum(dim=1).float().add(0.01).log()
        logits_BTV[:, 100:] *= by
        return logits_BTV
    return call
def load(): return xt.foreign(far(1.0), "Far", seq_len=16, tokenizer=STORE)
"""


@pytest.mark.parametrize("how", ["another function", "another file"])
def test_rows_of_a_model_are_not_kept_for_that_of_another_file(store: Path, how: str) -> None:
    text = FILE.replace("STORE", repr(str(store)))
    Path("fm.py").write_text(text)
    asked = dict(data=store, protocols=["windows"], max_targets=512)
    for _ in range(2):
        xt.evaluate("fm.py:load", factors=(1, 2, 8), **asked)
        kept = xt.rows("ckpt/foreign-Far")
        assert sorted(kept["factor"]) == [1, 2, 8]
    other = text.replace("far(1.0)", "far(9.0)")
    if how == "another function":
        other = text + other[other.index("def load") :].replace("load()", "load2()")
    Path("fm.py").write_text(other)
    xt.evaluate("fm.py:load2" if how == "another function" else "fm.py:load", factors=(1, 2), **asked)
    now = xt.rows("ckpt/foreign-Far")
    assert sorted(now["factor"]) == [1, 2]
    assert set(now["targets_hash"]).isdisjoint(kept["targets_hash"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(): pass", "mine.py has no function called 'load'; known: other"),
        ("def load(name): pass", r"mine.py: load must take no arguments"),
        ("def load(): return 3", r"mine.py: load\(\) returned int; expected what xt.foreign"),
        ("def load(): return {}['key']", r"mine.py: load\(\) failed: KeyError: 'key'"),
        ("1 / 0", "mine.py does not import: ZeroDivisionError"),
    ],
)
def test_a_file_that_loads_no_model_is_refused(source: str, message: str) -> None:
    Path("mine.py").write_text(source)
    with pytest.raises(xt.UserError, match=message):
        xt.evaluate("mine.py:load")


def test_text_in_other_tokens_is_refused(store: Path, bpe_store: Path) -> None:
    made = xt.foreign(lambda x: counts(x, 301), "Counts", seq_len=16, tokenizer=bpe_store)
    with pytest.raises(xt.UserError, match="was made with another tokenizer"):
        xt.evaluate(made, data=store, **FEWER)


def test_a_model_needs_no_logits_for_an_added_token_that_no_text_uses(store: Path, tmp_path: Path) -> None:
    """The tokenizer of Gemma 3 has one more than the model, for pictures."""
    own = Store.open(store).tokenizer()
    own.add_special_tokens(["<image_soft_token>"])
    own.save(str(tmp_path / "tokenizer.json"))
    made = xt.foreign(counts, "Counts", seq_len=16, tokenizer=tmp_path / "tokenizer.json")
    assert made.config.vocab_size == 400
    assert losses(xt.evaluate(made, data=store, protocols=["windows"], **FEWER)).notna().all()
