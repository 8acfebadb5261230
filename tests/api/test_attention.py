"""xt.attention: the weights that the softmax gives, layer by layer. test_export.py compares them with transformers'."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.api import run as module
from extrapolate.runs.run import Run

TEXT = list(range(5, 17))


def test_they_are_the_softmax_of_the_scaled_products(trained: Path) -> None:
    """Of NoPE's first layer, by hand from its weights."""
    model = xt.load(trained / "none").model
    found = xt.attention(trained / "none", TEXT)
    block, count = model.blocks[0], len(TEXT)
    with torch.no_grad():
        x_TD = block.attention_norm(model.embedding(torch.tensor(TEXT)))
        queries, keys = block.attention.sizes
        q_TK, k_TK = (x_TD @ block.attention.qkv.weight[: queries + keys].T).split([queries, keys], dim=-1)
    q_HTK, k_HTK = (x.unflatten(-1, (-1, model.config.head_dim)).transpose(0, 1) for x in (q_TK, k_TK))
    scores_HTT = q_HTK @ k_HTK.transpose(1, 2) * model.config.head_dim**-0.5
    scores_HTT = scores_HTT.masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
    torch.testing.assert_close(found.weights[0], scores_HTT.softmax(dim=-1), rtol=0, atol=1e-6)
    assert found.weights.shape == (model.config.layers, model.config.heads, count, count)


@pytest.mark.parametrize(("name", "extend"), [("rope", "as-trained"), ("expe", "log-n"), ("rope", "self-extend")])
def test_rows_add_up_to_one_over_tokens_that_were_read(trained: Path, name: str, extend: str) -> None:
    """Also where a text has several chunks of queries."""
    weights = xt.attention(trained / name, [*range(5, 205)], extend=extend).weights
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
    assert not weights.triu(1).any()


def test_a_text_has_its_tokens(trained: Path) -> None:
    run = xt.load(trained / "rope")
    found = xt.attention(run, "some words")
    assert found.ids == run.tokenizer.encode("some words").ids
    assert "".join(found.tokens) == "some words"
    for ids in (found.ids, torch.tensor(found.ids)):
        assert torch.equal(found.weights, xt.attention(run, ids).weights)


def test_an_extension_is_set_for_the_length(trained: Path) -> None:
    plain, long, fixed = (
        xt.attention(trained / "rope", TEXT, extend=extend, length=length).weights
        for extend, length in (("pi", None), ("pi", 64), ("pi:factor=4", None))
    )
    assert torch.equal(plain, xt.attention(trained / "rope", TEXT).weights)  # 12 tokens are no more than L
    assert torch.equal(long, fixed)
    assert (long - plain).abs().max() > 1e-4
    window = xt.attention(trained / "rope", TEXT, extend="window:size=3").weights
    assert not window.tril(-3).any()


@pytest.mark.parametrize(
    ("name", "text", "named", "message"),
    [
        ("rope", "", {}, "`text` has no tokens"),
        ("rope", [5, 400], {}, "there is no token 400; the model has those from 0 to 399"),
        ("rope", ["a"], {}, "`text`: 'a' is not a whole number"),
        ("rope", TEXT, {"length": 5}, "`length=5` is less than the 12 tokens"),
        ("rope", TEXT, {"extend": "expe-scale"}, "expe-scale does not apply to RoPE"),
        ("rope", TEXT, {"extend": "all"}, "stands for several extensions: name one"),
        ("rope", TEXT, {"extend": "temperature", "length": 64}, "leaves a constant out"),
        ("learned", [5] * 17, {}, "not defined at 17 tokens"),
    ],
)
def test_what_has_no_attention_is_refused(trained: Path, name: str, text: Any, named: Any, message: str) -> None:
    with pytest.raises(xt.UserError, match=message):
        xt.attention(trained / name, text, **named)


def test_maps_that_memory_cannot_hold_are_refused(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Run.open(trained / "rope").config.model
    needed = config.layers * config.heads * 100**2 * 4
    monkeypatch.setattr(module, "memory_limit", lambda: 2 * needed)
    xt.attention(trained / "rope", [5] * 100)
    with pytest.raises(xt.UserError, match=r"the attention of 101 tokens takes .* GB in all layers.*: give a shorter"):
        xt.attention(trained / "rope", [5] * 101)


def test_that_of_another_librarys_model_cannot_be_seen(trained: Path, store: Path, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), pytest.raises(xt.UserError, match="another library runs the model"):
        xt.attention(xt.foreign(xt.load(trained / "rope").model, "Other", seq_len=16, tokenizer=store), TEXT)
