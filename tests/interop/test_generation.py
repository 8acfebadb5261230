"""Generation: with and without kept keys and values, until a text, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import extrapolate as xt
from extrapolate.encodings.plan import PLAIN
from extrapolate.interop.generation import generated
from extrapolate.runs.run import Run

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
Instance = pytest.importorskip("lm_eval.api.instance").Instance
RunLM = pytest.importorskip("extrapolate.interop.lm_eval").RunLM


@pytest.mark.parametrize("name", ["rope", "expe", "none"])
def test_generation_with_kept_tokens_is_that_without(name: str, ckpt: Path) -> None:
    model = Run.open(ckpt / name).model
    prompt, setting = list(range(5, 17)), model.resolve(PLAIN)
    plain = SimpleNamespace(device=model.device, hidden=model.hidden, head=model.head)
    kept = generated(model, prompt, 20, setting, lambda new: False)
    assert kept == generated(plain, prompt, 20, setting, lambda new: False)
    assert len(kept) == 20


def test_a_tokenizer_without_an_end_of_text_generates_too(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    run = xt.foreign(lambda tokens_BT: 1 - torch.eye(2)[tokens_BT], "Words", 16, words, out=tmp_path / "words")
    asked = [Instance("generate_until", {}, ("a b a", {"until": [], "max_gen_toks": 3}), 0)]
    assert RunLM(run, length=16, device="cpu").generate_until(asked) == ["b a b"]


def test_a_text_that_follows_is_the_likeliest_and_ends_where_it_must(ckpt: Path) -> None:
    lm = RunLM(Run.open(ckpt / "rope"), length=48, device="cpu")

    def follow(**asked: Any) -> str:
        return lm.generate_until([Instance("generate_until", {}, ("some words of a text", asked), 0)])[0]

    text = follow(until=[], max_gen_toks=12)
    end = text[4:6]
    assert end.strip()
    assert follow(until=[end], max_gen_toks=12) == text[: text.index(end)]
    context = lm.tok_encode("some words of a text")
    ((_, likeliest),) = lm._loglikelihood_tokens([(None, context, lm._tokenizer.encode(text).ids)])
    assert likeliest or lm._tokenizer.decode(lm._tokenizer.encode(text).ids) == text
    with pytest.raises(xt.UserError, match="at random"):
        follow(until=[], do_sample=True, temperature=1.0)
    with pytest.raises(xt.UserError, match="up to 256 tokens"):
        follow(until=[])
