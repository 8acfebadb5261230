"""Windows that begin with a token that is not of the text: `bos`."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import AddedToken

import extrapolate as xt
from extrapolate.data.special_tokens import find
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import parse_protocol, protocols, with_arguments
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.text import beginning_token
from extrapolate.runs.run import Run

L, MOST = 16, 256


@pytest.fixture(scope="module")
def rows(trained: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """A run evaluated by every protocol, with the token and without, at 1x and 2x."""
    folder = tmp_path_factory.mktemp("begun") / "rope"
    shutil.copytree(trained / "rope", folder)
    asked = [text for name in protocols.names() for text in (name, f"{name}:bos=true")]
    return xt.evaluate(folder, protocols=asked, factors=(1, 2), max_targets=MOST, device="cpu")


@pytest.mark.parametrize("name", protocols.names())
def test_the_first_input_is_the_end_of_text_token_and_the_loss_is_that_of_the_text(
    rows: pd.DataFrame, trained: Path, store: Path, name: str
) -> None:
    """A window at a time, its tokens written down."""
    opened = Store.open(store)
    run, split, eos = Run.open(trained / "rope"), opened.split("test"), opened.manifest["eos_id"]
    model = run.load_model(run.checkpoints("last")[0])
    mine = rows[rows["protocol"] == f"{name}:bos=true"].set_index("factor")
    assert set(mine["bos_token"]) == {eos}
    layout = EvaluationSettings(factors=(1, 2), max_targets=MOST).layout(f"{name}:bos=true", split, L)
    documents = [split.slice(a, b - 1).tolist() for a, b in zip(split.offsets, split.offsets[1:], strict=False)]
    for factor in (1, 2):
        losses = []
        for group in layout.rows[factor * L]:
            for d, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
                tokens = [eos, *documents[d][start + 1 : start + 1 + group.length]]
                assert len(tokens) == group.length + 1
                with torch.no_grad():
                    scores = model(torch.tensor([tokens[:-1]]))[0].double().log_softmax(-1)
                targets = torch.tensor(tokens[1:])
                losses += (-scores.gather(-1, targets[:, None]))[-group.scored :, 0].tolist()
        assert mine.loc[factor, "loss"] == pytest.approx(np.mean(losses), abs=1e-5)
        assert mine.loc[factor, "n_targets"] == len(losses)


def test_the_targets_are_those_without_it_but_in_yarn_which_then_scores_first_tokens_too(rows: pd.DataFrame) -> None:
    hashes = rows.groupby("protocol")["targets_hash"].first()
    for name in protocols.names():
        assert (hashes[name] == hashes[f"{name}:bos=true"]) == (name != "yarn")
    yarn = parse_protocol("yarn:bos=true").layout(np.array([40]), 8, [8], 100)
    assert min(place for group in yarn.rows[8] for _, place in group.targets().reshape(-1, 2)) == 0
    assert min(group.start_W.min() for group in yarn.rows[8]) == -1


def test_the_token_is_part_of_what_computed_the_loss(rows: pd.DataFrame) -> None:
    hashes = rows.groupby("protocol")["plan_hash"].agg(lambda found: tuple(set(found)))
    plain = {hashes[name] for name in protocols.names()}
    begun = {hashes[f"{name}:bos=true"] for name in protocols.names()}
    assert len(plain) == len(begun) == 1
    assert plain != begun
    assert rows.loc[~rows["protocol"].str.contains("bos"), "bos_token"].isna().all()
    losses = rows[rows["factor"] == 1].set_index("protocol")["loss"]
    assert all(losses[name] != losses[f"{name}:bos=true"] for name in protocols.names())


def test_which_token_it_is(trained: Path, store: Path, word_store: Store) -> None:
    """Of a run that was trained here the end-of-text token; else a beginning-of-text token, or the end-of-text one."""
    opened = Store.open(store)
    assert beginning_token(Run.open(trained / "rope"), opened) == opened.manifest["eos_id"]
    tokenizer = word_store.tokenizer()
    assert find(tokenizer).bos is None

    def imported(vocab_size: int) -> SimpleNamespace:
        config = SimpleNamespace(vocab_size=vocab_size)
        return SimpleNamespace(config=config, special_tokens=find(tokenizer), path=Path("ckpt/hf-x"))

    assert beginning_token(imported(400), word_store) == tokenizer.token_to_id("<eos>")
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    assert beginning_token(imported(400), word_store) == tokenizer.token_to_id("<s>")
    with pytest.raises(UserError, match=r"ckpt/hf-x name no token that begins or ends a text, .* leave out `bos`"):
        beginning_token(imported(tokenizer.token_to_id("<s>")), word_store)


def test_how_protocols_are_called() -> None:
    assert with_arguments(["windows", "sliding"]) == ("windows", "sliding")
    assert with_arguments(["windows", "sliding", "yarn"], stride=8) == ("windows", "sliding:stride=8", "yarn:stride=8")
    assert with_arguments(["sliding:stride=4", "sliding", "sliding"], bos=True) == (
        "sliding:bos=true,stride=4", "sliding:bos=true",
    )  # fmt: skip
    assert with_arguments(["windows:bos=false"]) == ("windows",)
    with pytest.raises(UserError, match="`stride=8` is for sliding and yarn: name one of them in `protocols`"):
        with_arguments(["windows"], stride=8)
    for text, message in [
        ("sliding:strid=8", "sliding has no argument 'strid'; did you mean 'stride'"),
        ("sliding:stride=0", "`stride` must be at least 1, not 0"),
        ("windows:stride=8", "windows has no argument 'stride'"),
        ("slidin", "did you mean 'sliding'"),
    ]:
        with pytest.raises(UserError, match=message):
            with_arguments([text])
