"""On which text runs are evaluated."""

from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.progress import Quiet
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import train

SIZES = {"width": 32, "layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
BUDGET = {"seq_len": 16, "tokens": 512, "batch_tokens": 256, "precision": "fp32"}


def store_in(folder: Path, word: str, **given: object) -> Store:
    documents = [Document(str(i), f"{word} {i} and more " * 200) for i in range(12)]
    return build_store(documents, StoreSettings(min_heldout_tokens=200, **given), folder)


class Said(Quiet):
    """Keeps what is said."""

    text = ""

    def say(self, message: str) -> None:
        self.text += f"{message}\n"


def test_other_text_is_said_and_the_own_store_must_be_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = store_in(Path("data"), "one", vocab_size=270)
    config, _ = resolve(TrainingRequest(pe="rope", model=SIZES, training=BUDGET), own)
    run = train(TrainingJob(config, own, Path("run")))
    tokenizer = str(run.path / "tokenizer.json")
    other = store_in(Path("other"), "another", tokenizer=tokenizer)
    for call in (
        lambda **given: xt.evaluate(run, factors=(1,), max_targets=64, **given),
        lambda **given: xt.inspect(run, factors=(1,), windows=2, **given),
    ):
        own_text, others = Said(), Said()
        call(progress=own_text)
        found = call(data=other, progress=others)
        assert set(found["corpus_hash"]) == {other.corpus_hash}
        assert "not the text" not in own_text.text
        assert "other is not the text that run learned from" in others.text
    with pytest.raises(xt.UserError, match="others was made with another tokenizer than that of"):
        xt.evaluate(run, data=store_in(Path("others"), "another", vocab_size=264), factors=(1,), max_targets=64)
    for path in own.path.iterdir():
        path.unlink()
    store_in(Path("new"), "new", tokenizer=tokenizer).path.rename("data")
    with pytest.raises(xt.UserError, match=r"run was trained on corpus .*, and .*data is .* now"):
        xt.evaluate(run, factors=(1,), max_targets=64)
