"""Bad input: one message that says what to do, exit code 2, and nothing left behind."""

import shutil

import pytest

FEW = ["--max-targets", "512"]


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ("rpoe", ["unknown encoding 'rpoe'", "did you mean 'rope'"]),
            ("rope:thta=3", ["'thta'", "did you mean 'theta'"]),
            ("expe:size=999", ["size", "128", "999"]),
            ("rope:theta", ["'theta'", "key=value"]),
            ("nowhere.py:Mine", ["nowhere.py", "no such file"]),
        ],
    )
    def test_encoding(self, refused, tiny, spec, words):
        refused(["train", "--pe", spec, *tiny], *words)

    def test_users_class_that_ends_the_program_in_the_midst_of_training(self, cli, tiny, tmp_path):
        """The checks before it have called it with other batches, and found nothing wrong."""
        (tmp_path / "mine.py").write_text(
            "from extrapolate.encodings.base import Encoding\nclass Mine(Encoding):\n    display = 'Mine'\n"
            "    def rotate(self, q, k, pos_T, pos_S, state):\n        if len(q) == 32: raise SystemExit(0)\n"
            "        return q, k\n"
        )
        message = cli("train", "--pe", "mine.py:Mine", *tiny, "--out", "new").error()
        assert "encoding.py: rotate failed: SystemExit: 0, in line 5" in message

    @pytest.mark.parametrize(
        ("code", "arguments", "words"),
        [
            (
                "from extrapolate.extensions.base import Extension\nclass Mine(Extension):\n"
                "    display, slot, needs = 'Mine', 'positions', 'positions'\n"
                "    def plan(self, encoding, seq_len, length): raise SystemExit(0)\n",
                ["ckpt/rope", "--extend", "mine.py:Mine", *FEW],
                "mine.py: plan at",
            ),
            ("def load():\n    raise SystemExit(0)\n", ["mine.py:load"], "mine.py: load() failed"),
        ],
    )
    def test_users_extension_or_model_that_ends_the_program(
        self, refused, ckpt, store, tmp_path, code, arguments, words
    ):
        (tmp_path / "mine.py").write_text(code)
        refused(["eval-lengths", *arguments, "--data", store], words, "SystemExit: 0")

    @pytest.mark.parametrize(
        ("run", "extension", "words"),
        [
            ("rope", "pie", ["unknown extension 'pie'", "did you mean 'pi'"]),
            ("rope", "pi:factor=0", ["factor", "positive"]),
            (
                "learned",
                "pi",
                ["pi does not apply to Learned", "what applies: llama4, log-n, table-resize, temperature"],
            ),
        ],
    )
    def test_extension(self, refused, ckpt, run, extension, words):
        refused(["eval-lengths", ckpt / run, "--extend", extension, *FEW], *words)


class TestSettings:
    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (["--preset", "tinny"], ["unknown preset 'tinny'", "did you mean 'tiny'"]),
            (["--seq-len", "0"], ["seq_len"]),
            (["--tokens", "100"], ["--tokens 100", "less than one batch"]),
            (["--batch-tokens", "8"], ["--batch-tokens 8", "no window of 16"]),
            (["--lr", "-1"], ["lr"]),
            (["--data", "nowhere"], ["nowhere is not a token store", "extrapolate tokenize"]),
            (["--config", "nowhere.toml"], ["nowhere.toml", "no such file"]),
            (["--seq-len", "100000", "--batch-tokens", "100000", "--tokens", "100000"], ["100000", "--seq-len"]),
        ],
    )
    def test_flags_of_train(self, refused, tiny, flags, words):
        assert "--factors" not in refused(["train", "--pe", "rope", *tiny, *flags], *words)

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
            (["--factors", "1,nan"], ["positive"]),
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
            (["--max-targets", "7"], ["the limit of 7 targets", "give --max-targets 256"]),
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
        ],
    )
    def test_flags_of_eval_lengths(self, refused, ckpt, flags, words):
        refused(["eval-lengths", ckpt / "rope", *flags], *words)


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
