"""Bad input: one message that says what to do, exit code 2, and nothing left behind."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FEW = ["--max-targets", "512"]


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("rpoe", ["unknown encoding 'rpoe'", "did you mean 'rope'"]),
            ("zzzzzz", ["unknown encoding", "expe", "rope"]),
            ("rope:thta=3", ["'thta'", "did you mean 'theta'"]),
            ("rope:theta=high", ["theta=high", "a finite number"]),
            ("rope:theta=nan", ["theta=nan", "a finite number"]),
            ("expe:size=2.5", ["size=2.5", "a whole number"]),
            ("expe:size=999", ["size", "128", "999"]),
            ("rope:theta=-1", ["theta", "more than 1"]),
            ("rope:pairing=diagonal", ["pairing=diagonal", "half", "interleaved"]),
            ("rope:theta", ["'theta'", "key=value"]),
            ("rope:theta=1,theta=2", ["twice"]),
            ("nowhere.py:Mine", ["nowhere.py", "no such file"]),
        ],
    )
    def test_encoding(self, refused, tiny, spec, words):
        refused(["train", "--pe", spec, *tiny], *words)

    def test_no_encoding(self, refused, tiny):
        refused(["train", *tiny], "--pe")

    def test_no_training_length(self, refused, store):
        refused(["train", "--pe", "rope", "--data", store], "--seq-len")

    def test_users_class_that_ends_the_program_in_the_midst_of_training(self, cli, tiny, tmp_path):
        """The checks before it have called it with other batches, and found nothing wrong."""
        (tmp_path / "mine.py").write_text(
            "from extrapolate.encodings.base import Encoding\nclass Mine(Encoding):\n    display = 'Mine'\n"
            "    def rotate(self, q, k, pos_T, pos_S):\n        if len(q) == 32: raise SystemExit(0)\n"
            "        return q, k\n"
        )
        message = cli("train", "--pe", "mine.py:Mine", *tiny, "--out", "new").error()
        assert "encoding.py: rotate failed: SystemExit: 0, in line 5" in message

    def test_users_extension_that_ends_the_program(self, refused, ckpt, tmp_path):
        (tmp_path / "mine.py").write_text(
            "from extrapolate.extensions.base import Extension\nclass Mine(Extension):\n"
            "    display, slot, needs = 'Mine', 'positions', 'positions'\n"
            "    def plan(self, encoding, seq_len, length): raise SystemExit(0)\n"
        )
        refused(["eval-lengths", ckpt / "rope", "--extend", "mine.py:Mine", *FEW], "mine.py: plan at", "SystemExit: 0")

    def test_users_model_that_ends_the_program(self, refused, store, tmp_path):
        (tmp_path / "mine.py").write_text("def load():\n    raise SystemExit(0)\n")
        refused(["eval-lengths", "mine.py:load", "--data", store], "mine.py: load() failed: SystemExit: 0")

    @pytest.mark.parametrize(
        ("run", "extension", "words"),
        [
            ("rope", "pie", ["unknown extension 'pie'", "did you mean 'pi'"]),
            ("rope", "pi:fator=2", ["'fator'", "did you mean 'factor'"]),
            ("rope", "pi:factor=0", ["factor", "positive"]),
            ("rope", "pi:factor=two", ["factor=two", "a finite number"]),
            ("rope", "expe-scale", ["expe-scale means nothing for RoPE", "what applies", "pi"]),
            ("learned", "pi", ["pi means nothing for Learned", "what applies: log-n, table-resize, temperature"]),
        ],
    )
    def test_extension(self, refused, ckpt, run, extension, words):
        refused(["eval-lengths", ckpt / run, "--extend", extension, *FEW], *words)

    def test_an_extension_that_suits_none_of_the_runs_stops_all_before_any_work(self, refused, ckpt):
        runs = [ckpt / "learned", ckpt / "none"]
        refused(["eval-lengths", *runs, "--extend", "pi", *FEW], "pi applies to none of these runs", "Learned")


class TestSettings:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--preset", "tinny"], ["unknown preset 'tinny'", "did you mean 'tiny'"]),
            (["--seq-len", "0"], ["seq_len"]),
            (["--tokens", "100"], ["--tokens 100", "less than one batch"]),
            (["--batch-tokens", "8"], ["--batch-tokens 8", "no window of 16"]),
            (["--lr", "-1"], ["lr"]),
            (["--layers", "0"], ["layers"]),
            (["--seed", "-1"], ["seed"]),
            (["--data", "nowhere"], ["nowhere is not a token store", "extrapolate tokenize"]),
            (["--config", "nowhere.toml"], ["nowhere.toml", "no such file"]),
        ],
    )
    def test_flags_of_train(self, refused, tiny, flags, words):
        refused(["train", "--pe", "rope", *tiny, *flags], *words)

    def test_data_that_do_not_fill_a_window(self, refused, tiny):
        flags = ["--seq-len", "100000", "--batch-tokens", "100000", "--tokens", "100000"]
        message = refused(["train", "--pe", "none", *tiny, *flags], "100000", "--seq-len")
        assert "--factors" not in message

    def test_heldout_documents_shorter_than_the_training_length(self, refused, cli, tiny, corpus):
        """Validation could not be measured: known before training begins, and said in train's own words."""
        cli("tokenize", corpus, "--out", "short", "--vocab-size", 300, "--min-heldout-tokens", 300).succeeded()
        flags = ["--data", "short", "--seq-len", "4000", "--batch-tokens", "4000", "--tokens", "8000"]
        message = refused(["train", "--pe", "none", *tiny, *flags], "4000", "validation")
        assert "--factors" not in message

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--factors", "0"], ["positive"]),
            (["--factors", "1,-2"], ["positive", "-2"]),
            (["--factors", "1,nan"], ["positive"]),
            (["--factors", "1,inf"], ["positive"]),
            (["--factors", "one,two"], ["--factors 'one,two'", "1,2,4"]),
            (["--factors", ""], ["at least one factor"]),
            (["--factors", "1,1.3"], ["1.3", "20.8", "not a whole length"]),
            (["--factors", "1,1024"], ["no held-out document", "16384", "--factors"]),
            (["--factors", "0.25", "--protocol", "fixed-target"], ["fixed-target", "8", "4"]),
            (["--protocol", "window"], ["unknown protocol 'window'", "did you mean 'windows'"]),
            (["--protocol", ""], ["protocol"]),
            (["--stride", "4"], ["--stride 4", "sliding and yarn", "--protocol"]),
            (["--protocol", "yarn", "--stride", "16"], ["yarn", "16 tokens", "too short", "--stride of at most 15"]),
            (["--split", "tset"], ["'tset'", "test"]),
            (["--max-targets", "7"], ["--max-targets 7"]),
            (["--max-targets", "0"], ["'0' is not a number", "windows=500000"]),
            (["--max-targets", "many"], ["'many' is not a number"]),
            (["--max-targets", "=64"], ["'=64' is not a number"]),
            (["--max-targets", "512,256"], ["two numbers for all protocols"]),
            (["--max-targets", "windows=512,windows=256"], ["two numbers for windows"]),
            (["--max-targets", "window=512"], ["unknown protocol 'window'", "did you mean 'windows'"]),
            (["--max-targets", "sliding=512"], ["sliding, which is not evaluated", "--protocol"]),
            (
                ["--max-targets", "200000"],
                ["above every default (windows 131072, fixed-target 8192)", "windows=200000,fixed-target=200000"],
            ),
            (["--max-targets", "9000,windows=9000"], ["(fixed-target 8192)", "write --max-targets fixed-target=9000"]),
            (["--data", "nowhere"], ["nowhere is not a token store"]),
        ],
    )
    def test_flags_of_eval_lengths(self, refused, ckpt, flags, words):
        refused(["eval-lengths", ckpt / "rope", *flags], *words)


class TestSources:
    def tokenize(self, source, *flags):
        return ["tokenize", source, "--out", "data/new", "--vocab-size", "300", "--min-heldout-tokens", "300", *flags]

    def test_missing_column(self, refused, tmp_path):
        pq.write_table(pa.table({"body": ["a text"], "title": ["a title"]}), tmp_path / "rows.parquet")
        refused(self.tokenize("rows.parquet"), "'text'", "body, title", "--text-field")

    def test_too_few_long_documents(self, refused, corpus):
        refused(self.tokenize(corpus, "--min-heldout-tokens", "1000000"), "0 of 24", "--min-heldout-tokens")


def test_a_run_is_no_checkpoint_of_hugging_face(refused, ckpt):
    refused(["eval-lengths", f"hf:{ckpt / 'rope'}", *FEW], "config.json is of a run: name its folder without hf:")


@pytest.mark.parametrize("what", ["store", "runs", "text"])
def test_a_folder_of_other_things_does_not_become_a_run(refused, tiny, ckpt, store, tmp_path, what):
    """A store would get the tokenizer of the run, and runs below a run are found no more."""
    out = {"store": tmp_path / "data", "runs": ckpt, "text": tmp_path / "novels"}[what]
    shutil.copytree(store, tmp_path / "data")
    (tmp_path / "novels").mkdir()
    (tmp_path / "novels" / "one.txt").write_text("Some words.")
    refused(["train", "--pe", "rope", *tiny, "--out", out], f"{out} is no run, and holds other files", "choose a new")
