"""A checkpoint trained elsewhere is evaluated, reported and compared like a run, and nothing is made up about it."""

import contextlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer

import extrapolate as xt
from extrapolate.data.build import StoreSettings
from extrapolate.data.sources.local.base import LocalFiles
from extrapolate.data.sources.stdlib import StandardLibrary
from extrapolate.data.store import Store
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

SEQ_LEN = 16
FEW = ["--factors", "1,2,4", "--max-targets", "512"]
VOCAB_SIZE = 400  # of `store`
UNKNOWN = [
    "tokens", "seed", "preset", "training_precision", "training_seconds", "training_version", "training_commit",
    "training_machine", "training_corpus",
]  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": SEQ_LEN,
}  # fmt: skip


def save_model(folder: Path, tokenizer: Tokenizer, kind: str = "Llama", seed: int = 0, **changes: Any) -> Path:
    sizes: dict[str, Any] = dict(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=SEQ_LEN,
    )  # fmt: skip
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**sizes | changes)
    getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def _llama(tmp_path_factory: pytest.TempPathFactory, bpe: Tokenizer) -> Path:
    return save_model(tmp_path_factory.mktemp("llama") / "small-llama", bpe)


@pytest.fixture
def llama(tmp_path: Path, _llama: Path) -> Path:
    """A checkpoint as transformers saves it, in the test's own folder. Its tokenizer has no end-of-text token."""
    return Path(shutil.copytree(_llama, tmp_path / "small-llama"))


def test_its_own_scaling_belongs_to_it(cli, bpe, bpe_store, tmp_path) -> None:
    save_model(tmp_path / "long", bpe, max_position_embeddings=64, rope_parameters=LLAMA3)
    flags = ["--data", bpe_store, *FEW, "--protocol", "windows", "--extend", "without-own", "--extend", "log-n"]
    ended = cli("eval-lengths", "hf:long", *flags).succeeded()
    assert "training length 16, llama3:factor=4\n" in ended.err
    rows = xt.rows(tmp_path / "ckpt/hf-long")
    assert set(rows["own_extension"]) == {"llama3:factor=4"}
    models = rows.groupby("extension")["model"].first().to_dict()
    assert models == {
        "as-trained": "long + Llama 3(4)",
        "log-n": "long + Llama 3(4) + log-n",
        "without-own": "long, Llama 3(4) taken off",
    }
    loss = rows.set_index(["extension", "length"])["loss"]
    assert loss["as-trained", 64] != loss["without-own", 64]
    # Taken off, it is the same weights without the scaling.
    save_model(tmp_path / "plain", bpe, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    cli("eval-lengths", "hf:plain", *flags[:-4]).succeeded()
    plain = xt.rows(tmp_path / "ckpt/hf-plain").set_index("length")["loss"]
    for length in (16, 32, 64):
        assert loss["without-own", length] == pytest.approx(plain[length], abs=1e-6)


@pytest.fixture(scope="module")
def _both(quietly, _llama, bpe_store, tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    shutil.copytree(_llama, folder / "small-llama")
    with contextlib.chdir(folder):
        quietly("train", "--pe", "rope", *tiny, "--data", bpe_store, "--out", "ckpt/rope")
        quietly("eval-lengths", "ckpt/rope", "hf:small-llama", "--data", bpe_store, *FEW)
    return folder / "ckpt"


class TestBesideOwnRuns:
    @pytest.fixture
    def both(self, _both, llama, tmp_path) -> Path:
        """An own run and an imported one, on the same text."""
        return Path(shutil.copytree(_both, tmp_path / "ckpt"))

    def test_rows_are_those_of_a_plain_loop_over_transformers(self, both, llama, bpe_store) -> None:
        """And what is not known is not made up."""
        model = transformers.AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
        split = Store.open(bpe_store).split("test")
        layout = protocols["windows"]().layout(split.lengths, SEQ_LEN, [16, 32, 64], 512)
        found = xt.rows(both / "hf-small-llama")
        rows = found[found["protocol"] == "windows"].set_index("length")
        for length, groups in layout.rows.items():
            losses = []
            for group in groups:
                for document, start in zip(group.document_W, group.start_W, strict=True):
                    first = split.offsets[document] + start
                    tokens = torch.from_numpy(split.slice(first, first + length + 1).astype("int64"))[None]
                    with torch.inference_mode():
                        logits = model(input_ids=tokens[:, :-1]).logits[0].double()
                    losses.append(-logits.log_softmax(-1).gather(-1, tokens[0, 1:, None])[-group.scored :])
            expected = torch.cat(losses)
            assert rows.loc[length, "n_targets"] == len(expected) == 512
            assert rows.loc[length, "loss"] == pytest.approx(expected.mean().item(), abs=1e-6)
        assert found[UNKNOWN].isna().all(axis=None)
        known = found.iloc[0]
        assert (known["imported"], known["model"], known["encoding"]) == ("small-llama", "small-llama", "rope")
        assert (known["seq_len"], known["trained_length"], known["step"]) == (SEQ_LEN, SEQ_LEN, 0)
        assert known["corpus_hash"] == Store.open(bpe_store).corpus_hash
        assert known["parameters"] == sum(parameter.numel() for parameter in model.parameters())

    @pytest.mark.usefixtures("without_pictures")
    def test_a_report_has_both_or_the_imported_one_and_says_what_is_unknown(self, cli, both, tmp_path) -> None:
        ended = cli("report", "ckpt").succeeded()
        table = pd.read_parquet(tmp_path / "report/loss_by_ev.parquet").set_index("Model")
        assert list(table.index) == ["RoPE", "small-llama"]
        assert table["Training time"]["RoPE"] == 1.0
        assert pd.isna(table["Training time"]["small-llama"])
        assert "tokens 5120, unknown" in ended.err
        page = " ".join((tmp_path / "report/report.md").read_text().split())
        assert "preset tiny, 5,120 training tokens in fp32; evaluated in fp32; one seed, 0." in page
        assert "Trained elsewhere, and imported: small-llama; training corpus, tokens, precision, seed" in page
        assert not any(word in page for word in ("nan", "NaN", "<NA>", "None"))
        cli("report", "ckpt/hf-small-llama").succeeded()
        page = " ".join((tmp_path / "report/report.md").read_text().split())
        assert "evaluated in fp32. Evaluated with commit" in page
        assert not any(word in page for word in ("nan", "NaN", "<NA>", "None", "preset", "0 seeds", "Trained with"))

    def test_they_are_compared_although_the_seed_of_one_is_not_known(self, cli, both) -> None:
        out = cli("compare", "ckpt", "--json").succeeded().out
        rows = pd.DataFrame(map(json.loads, out.splitlines())).set_index(["protocol", "factor", "model", "other"])
        losses = [xt.rows(both / run).set_index(["protocol", "factor"])["loss"] for run in ("hf-small-llama", "rope")]
        found = rows.loc[("windows", 4, "small-llama", "RoPE")]
        assert found["difference"] == pytest.approx(losses[0]["windows", 4] - losses[1]["windows", 4], abs=1e-6)
        assert set(rows["n_seeds"]) == {1}

    def test_it_is_neither_resumed_nor_trained_again(self, cli, both, refused, tiny) -> None:
        run = "ckpt/hf-small-llama"
        refused(
            ["train", "--from", run, "--seq-len", 32, "--out", "ckpt/new"], f"what {run} was trained on is not known"
        )
        refused(["train", "--config", f"{run}/config.json", "--out", "ckpt/new"], "imported checkpoint")
        refused(["train", "--pe", "rope", *tiny, "--out", run], "already holds a run")
        refused(["train", "--pe", "rope", *tiny, "--out", run, "--resume"], "imported from", "cannot be resumed")


class TestTheRun:
    def test_a_checkpoint_is_brought_in_once_and_no_other_takes_its_place(
        self, cli, llama, bpe, bpe_store, tmp_path, contents, refused
    ) -> None:
        few = ["--data", bpe_store, "--factors", "1", "--max-targets", "64", "--protocol", "windows"]
        cli("eval-lengths", "hf:small-llama", *few).succeeded()
        before = contents(tmp_path / "ckpt/hf-small-llama")
        cli("eval-lengths", f"hf:{llama}", *few).succeeded()  # by its full path
        after = contents(tmp_path / "ckpt/hf-small-llama")
        same = ["config.json", "model.safetensors", "tokenizer.json"]
        assert [after[name] for name in same] == [before[name] for name in same]
        save_model(tmp_path / "other/small-llama", bpe, seed=1)
        refused(["eval-lengths", "hf:other/small-llama", *few], "ckpt/hf-small-llama holds another run", "rename it")
        refused(["eval-lengths", "ckpt/hf-small-llama", "--seq-len", 32, *few], "--seq-len is for hf: checkpoints")

    def test_what_a_kill_left_half_is_finished(self, cli, llama, bpe_store, tmp_path, monkeypatch) -> None:
        def stop(*_: object, **__: object) -> None:
            raise RuntimeError("the power is gone")

        few = ["--data", bpe_store, "--factors", "1", "--max-targets", "64"]
        with monkeypatch.context() as patched:
            patched.setattr(Run, "save_weights", stop)
            assert "power" in cli("eval-lengths", "hf:small-llama", *few).error(1)
        assert not (tmp_path / "ckpt/hf-small-llama/model.safetensors").exists()
        cli("eval-lengths", "hf:small-llama", *few).succeeded()

    def test_what_cannot_be_evaluated_is_refused_before_anything_is_read_or_made(
        self, cli, llama, tmp_path, monkeypatch
    ) -> None:
        (tmp_path / "small-llama/model.safetensors").write_bytes(b"not yet downloaded")
        monkeypatch.setattr(StandardLibrary, "open", lambda *_: pytest.fail("the text was read"))
        flags = ["eval-lengths", "hf:small-llama", "--factors", "1,4"]
        assert "holds no span of 64 tokens: give --max-targets 64, or" in cli(*flags, "--max-targets", 63).error()
        assert "unknown extension 'yran'; did you mean 'yarn'" in cli(*flags, "--extend", "yran").error()
        assert not (tmp_path / "ckpt").exists()
        assert not (tmp_path / "data").exists()

    def test_another_training_length_is_another_run(self, cli, llama, bpe_store, tmp_path) -> None:
        flags = ["--data", bpe_store, "--factors", "1,2", "--max-targets", "256", "--protocol", "windows"]
        cli("export", "hf:small-llama", "--out", "again").succeeded()  # brings it in at its own length
        shorter = cli("eval-lengths", "hf:small-llama", "--seq-len", 8, *flags).succeeded()
        line = "its config.json says 16 tokens: up to there, which is 2x here, extensions can only cost"
        assert line in shorter.err
        paths = [tmp_path / "ckpt" / name for name in ("hf-small-llama", "hf-small-llama-L8")]
        assert len({(path / "model.safetensors").stat().st_ino for path in paths}) == 1  # which takes its place once
        assert len({(path / "special_tokens.json").read_bytes() for path in paths}) == 1
        assert sorted(xt.rows(paths[1])["length"]) == [8, 16]
        before, after = (transformers.AutoModelForCausalLM.from_pretrained(path) for path in (llama, "again"))
        tokens = torch.arange(2, 18)[None]
        with torch.inference_mode():
            torch.testing.assert_close(after(tokens).logits, before(tokens).logits, atol=1e-5, rtol=0)


class TestFineTuning:
    @pytest.fixture
    def flags(self, store, tmp_path) -> list[object]:
        """What fine-tunes a checkpoint, `hf:known`, whose tokenizer is that of `store`, for a few steps."""
        save_model(tmp_path / "known", Store.open(store).tokenizer(), vocab_size=VOCAB_SIZE)
        return [
            "train", "--from", "hf:known", "--data", store, "--lr", "1e-2", "--tokens", "4096", "--batch-tokens", "256",
            "--precision", "fp32", "--no-compile", "--out", "ckpt/new",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("more", "model"),
        [(["--seq-len", 32, "--extend", "pi:factor=2"], "RoPE + PI(2), tuned"), (["--pe", "none"], "NoPE")],
    )
    def test_a_checkpoint_learns_with_an_extension_or_another_encoding(
        self, cli, flags, store, tmp_path, more, model
    ) -> None:
        cli(*flags, *more).succeeded()
        run, start = Run.open(tmp_path / "ckpt/new"), Run.open(tmp_path / "ckpt/hf-known")
        assert (run.trained.origin.run, run.trained.seq_len) == ("hf-known", SEQ_LEN)
        few = ["--factors", "1,2", "--max-targets", "512", "--protocol", "windows", "--data", store]
        cli("eval-lengths", "ckpt", *few).succeeded()
        rows = {name: xt.rows(tmp_path / "ckpt" / name).set_index("factor") for name in ("new", "hf-known")}
        assert rows["new"]["loss"][1] < rows["hf-known"]["loss"][1] - 0.1
        assert rows["new"]["model"][1].startswith(model)
        assert run.model.parameter_count() == start.model.parameter_count()
        shutil.rmtree(tmp_path / "known")  # the run has all it needs
        assert "already finished" in cli(*flags, *more, "--resume").succeeded().err

    @pytest.mark.parametrize(
        ("kind", "changes"),
        [
            ("Qwen2", {}),
            ("Gemma3Text", {"num_hidden_layers": 7, "head_dim": 16, "sliding_window": 5, "pad_token_id": None}),
        ],
    )
    def test_it_starts_from_the_checkpoints_weights(self, cli, flags, store, tmp_path, kind, changes) -> None:
        save_model(tmp_path / "known", Store.open(store).tokenizer(), kind, vocab_size=VOCAB_SIZE, **changes)
        cli(*flags, "--lr", "1e-12", "--tokens", "256").succeeded()
        new, old = (Run.open(tmp_path / "ckpt" / name).model.state_dict() for name in ("new", "hf-known"))
        for name, weight in old.items():
            torch.testing.assert_close(new[name], weight, rtol=0, atol=1e-9)

    def test_what_is_not_known_must_be_said(self, cli, flags) -> None:
        without = [flag for flag in flags if flag not in ("--lr", "1e-2", "--tokens", "4096")]
        message = cli(*without).error()
        assert "ckpt/hf-known was trained is not known: give --lr and --tokens of the fine-tuning" in message
        data = flags.index("--data")
        assert "name a token store with its tokens as --data" in cli(*flags[:data], *flags[data + 2 :]).error()
        assert "sizes are those of" in cli(*flags, "--layers", 2).error()

    def test_text_in_other_tokens_is_refused(self, cli, flags, llama, bpe_store, tmp_path) -> None:
        assert "another tokenizer" in cli(*flags, "--data", bpe_store).error()
        message = cli(*flags, "--from", "hf:small-llama", "--data", bpe_store).error()
        assert "ends its texts with the token 300" in message
        assert "embeddings for 300" in message
        assert not (tmp_path / "ckpt/new").exists()

    def test_an_id_without_an_embedding_is_refused_only_if_a_text_uses_it(
        self, cli, flags, byte_tokenizer, corpus, tmp_path
    ) -> None:
        """Gemma 3's tokenizer has one id more than its embedding, for pictures."""
        save_model(tmp_path / "known", byte_tokenizer("<eos>", "-zqzq"), vocab_size=257)
        tokenize = ["tokenize", "--tokenizer", "hf:known", "--min-heldout-tokens", 300]
        cli(*tokenize, corpus, "--out", "plain").succeeded()
        assert Store.open(tmp_path / "plain").vocab_size == 258
        data = flags.index("--data") + 1
        flags[data] = "plain"
        cli(*flags).succeeded()
        for number, text in enumerate(sorted(corpus.glob("*.txt"))):
            (tmp_path / "drawn" / text.name).parent.mkdir(exist_ok=True)
            (tmp_path / "drawn" / text.name).write_text(text.read_text() + " zqzq" * (number == 0))
        cli(*tokenize, "drawn", "--out", "used").succeeded()
        flags[data] = "used"
        message = cli(*flags, "--out", "ckpt/other").error()
        assert "used holds the token 257" in message
        assert "embeddings for 257" in message


class TestText:
    def test_text_in_other_tokens_is_refused_with_the_command_that_makes_it(self, cli, llama, store, corpus) -> None:
        message = cli("eval-lengths", "hf:small-llama", "--data", store, *FEW).error()
        assert "another tokenizer" in message
        command = message.partition("extrapolate ")[2].replace("SOURCE", str(corpus)).split()
        command[command.index("--out") + 1] = "data/right"
        cli(*command, "--min-heldout-tokens", 300).succeeded()
        cli("eval-lengths", "hf:small-llama", "--data", "data/right", *FEW).succeeded()

    def test_tokens_without_an_embedding_are_refused(self, cli, bpe, bpe_store, tmp_path, refused) -> None:
        save_model(tmp_path / "narrow", bpe, vocab_size=290)
        cli("eval-lengths", "hf:narrow", "--data", bpe_store, *FEW).error()
        refused(["eval-lengths", "ckpt/hf-narrow", "--data", bpe_store, *FEW], "the token 29", "embeddings for 290")
        refused(["eval-lengths", "narrow"], "not a run", "hf:narrow")

    def test_without_data_the_default_is_tokenised_once_for_a_tokenizer(
        self, cli, llama, bpe, corpus, tmp_path, monkeypatch
    ) -> None:
        monkeypatch.setattr(StandardLibrary, "open", lambda argument, text_field: LocalFiles(str(corpus), "text"))
        monkeypatch.setattr("extrapolate.api.run_loop.StoreSettings", partial(StoreSettings, min_heldout_tokens=200))
        flags = ["--factors", "1,2", "--max-targets", "256", "--protocol", "windows"]
        first = cli("eval-lengths", "hf:small-llama", *flags).succeeded()
        (made,) = (tmp_path / "data").iterdir()
        assert f"no --data is given: tokenising this Python's standard library into data/{made.name}, with" in first.err
        save_model(tmp_path / "twin", bpe, seed=1)  # with the same tokenizer
        for name in ("ckpt/hf-small-llama", "hf:twin"):
            assert "tokenising" not in cli("eval-lengths", name, *flags).succeeded().err
        assert [path.name for path in (tmp_path / "data").iterdir()] == [made.name]
