"""Bad input: one message that says what to do, exit code 2, and nothing left behind."""

import pytest

FEW = ["--max-targets", "512"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--pe", "rpoe"], ["unknown encoding 'rpoe'", "did you mean 'rope'"]),
        (["--pe", "rope:thta=3"], ["'thta'", "did you mean 'theta'"]),
        (["--pe", "rope:theta"], ["'theta'", "key=value"]),
        (["--pe", "nowhere.py:Mine"], ["nowhere.py", "no such file"]),
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
def test_train(refused, tiny, flags, words):
    assert "--factors" not in refused(["train", "--pe", "rope", *tiny, *flags], *words)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--extend", "pie"], ["unknown extension 'pie'", "did you mean 'pi'"]),
        (["--extend", "pi:factor=0"], ["factor", "positive"]),
        (["--factors", "0"], ["positive"]),
        (["--factors", "one,two"], ["--factors 'one,two'", "1,2,4"]),
        (["--factors", ""], ["at least one factor"]),
        (["--factors", "1,1.3"], ["1.3", "20.8", "not a whole length"]),
        (["--factors", "1,1024"], ["no held-out document", "16384", "--factors"]),
        (["--factors", "0.25", "--protocol", "fixed-target"], ["fixed-target", "8", "4"]),
        (["--protocol", "window"], ["unknown protocol 'window'", "did you mean 'windows'"]),
        (["--stride", "4"], ["--stride 4", "sliding and yarn", "--protocol"]),
        (["--protocol", "yarn", "--stride", "16"], ["yarn", "16 tokens", "too short", "--stride of at most 15"]),
        (["--split", "tset"], ["'tset'", "test"]),
        (["--max-targets", "7"], ["the limit of 7 targets", "give --max-targets 256"]),
        (["--max-targets", "many"], ["'many' is not a number"]),
        (["--max-targets", "windows=512,windows=256"], ["two numbers for windows"]),
        (["--max-targets", "window=512"], ["unknown protocol 'window'", "did you mean 'windows'"]),
        (["--max-targets", "sliding=512"], ["sliding, which is not evaluated", "--protocol"]),
        (["--max-targets", "200000"], ["above every default (windows 131072", "windows=200000,fixed-target=200000"]),
        (["--precision", "fp23"], ["did you mean 'fp32'"]),
    ],
)
def test_eval_lengths(refused, ckpt, flags, words):
    refused(["eval-lengths", ckpt / "rope", *flags], *words)


def test_heldout_documents_shorter_than_the_training_length(refused, cli, tiny, corpus):
    """Validation could not be measured: known before training begins, and said in train's own words."""
    cli("tokenize", corpus, "--out", "short", "--vocab-size", 300, "--min-heldout-tokens", 300).succeeded()
    flags = ["--data", "short", "--seq-len", "4000", "--batch-tokens", "4000", "--tokens", "8000"]
    message = refused(["train", "--pe", "none", *tiny, *flags], "4000", "validation")
    assert "--factors" not in message


def test_a_run_is_no_checkpoint_of_hugging_face(refused, ckpt):
    refused(["eval-lengths", f"hf:{ckpt / 'rope'}", *FEW], "config.json is of a run: name its folder without hf:")


@pytest.mark.parametrize("what", ["runs", "text"])
def test_a_folder_of_other_things_does_not_become_a_run(refused, tiny, ckpt, tmp_path, what):
    """Runs below a run are found no more."""
    out = {"runs": ckpt, "text": tmp_path / "novels"}[what]
    (tmp_path / "novels").mkdir()
    (tmp_path / "novels" / "one.txt").write_text("Some words.")
    refused(["train", "--pe", "rope", *tiny, "--out", out], f"{out} is no run, and holds other files", "choose a new")
