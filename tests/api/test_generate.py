"""xt.generate: the text that follows, as the whole model would give it token by token."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import extrapolate as xt
from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.evaluation.plans import AppliedExtensions
from extrapolate.extensions import stack
from extrapolate.interop.generation import Drawn
from extrapolate.runs.run import Run

PROMPT = list(range(5, 17))


def expected(run: Run, extend: str | None, new: int) -> str:
    """Without anything kept: the whole text is read again for every token."""
    plan = AppliedExtensions(None, extend and stack.parse(extend)).plan(run, run.model, len(PROMPT) + new)
    tokens = list(PROMPT)
    with torch.no_grad():
        for _ in range(new):
            tokens.append(int(run.model(torch.tensor([tokens]), plan)[0, -1].argmax()))
    return run.tokenizer.decode(tokens[len(PROMPT) :])


@pytest.mark.parametrize(
    ("name", "extend"),
    [
        ("rope", None),
        ("rope", "self-extend"),
        ("rope", "window:size=4 + log-n"),
        ("expe", "expe-scale"),
    ],
)
def test_it_is_what_the_model_gives_without_a_cache(trained: Path, name: str, extend: str | None) -> None:
    run = xt.load(trained / name)
    given = {} if extend is None else {"extend": extend}
    text = xt.generate(run, PROMPT, max_new_tokens=24, **given)
    assert text == expected(run, extend, 24)
    assert text == xt.generate(trained / name, PROMPT, max_new_tokens=24, **given)


def test_a_prompt_may_be_text(trained: Path) -> None:
    run = xt.load(trained / "rope")
    text = run.tokenizer.decode(PROMPT)
    ids = run.tokenizer.encode(text).ids
    assert xt.generate(run, text, max_new_tokens=4) == xt.generate(run, ids, max_new_tokens=4)


def test_a_seed_always_gives_the_same_text_and_one_token_is_no_choice(trained: Path) -> None:
    run = xt.load(trained / "rope")
    drawn = [xt.generate(run, PROMPT, temperature=1.0, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    greedy = xt.generate(run, PROMPT)
    assert greedy == xt.generate(run, PROMPT, temperature=1.0, top_k=1)
    assert greedy == xt.generate(run, PROMPT, temperature=1e-300)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, None), (2.0, 3)])
def test_tokens_are_drawn_as_often_as_the_softmax_says(temperature: float, top_k: int | None) -> None:
    logits_V = torch.tensor([0.3, -1.0, 1.2, 0.9, -0.2])
    kept_V = logits_V.argsort(descending=True).argsort() < (top_k or 5)
    share_V = (logits_V / temperature).masked_fill(~kept_V, float("-inf")).softmax(dim=0)
    draw, count = Drawn(temperature, top_k, seed=3), 4000
    found_V = torch.bincount(torch.tensor([draw(logits_V) for _ in range(count)]), minlength=5) / count
    # Four standard errors.
    assert ((found_V - share_V).abs() <= 4 * (share_V * (1 - share_V) / count).sqrt()).all()


def test_it_ends_with_the_text(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = xt.load(trained / "rope")
    tokens = run.tokenizer.encode(xt.generate(run, PROMPT, max_new_tokens=8)).ids
    with torch.no_grad():
        first = int(run.model(torch.tensor([PROMPT]))[0, -1].argmax())
    monkeypatch.setattr(Run, "special_tokens", SpecialTokens(eos=(-1, first)))
    assert len(tokens) > 1
    assert xt.generate(run, PROMPT, max_new_tokens=8) == run.tokenizer.decode([first])


def test_a_model_of_another_library_continues_a_text_too(
    trained: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = xt.load(trained / "rope")
    other = xt.foreign(run.model, "Other", seq_len=16, tokenizer=store)
    assert xt.generate(other, PROMPT, max_new_tokens=8) == xt.generate(run, PROMPT, max_new_tokens=8)


@pytest.mark.parametrize(
    ("name", "prompt", "named", "message"),
    [
        ("learned", PROMPT, {"max_new_tokens": 5}, "not defined at 17 tokens"),
        ("rope", PROMPT, {"max_new_tokens": 0}, "`max_new_tokens` must be between 1 and"),
        ("rope", PROMPT, {"temperature": -1.0}, "`temperature` must be 0 or more"),
        ("rope", PROMPT, {"temperature": 1.0, "top_k": 0}, "`top_k` must be at least 1"),
        ("rope", PROMPT, {"extend": "expe-scale"}, "expe-scale does not apply to RoPE"),
        ("rope", "", {}, "`prompt` has no tokens"),
    ],
)
def test_what_cannot_be_continued_is_refused(trained: Path, name: str, prompt: Any, named: Any, message: str) -> None:
    with pytest.raises(xt.UserError, match=message):
        xt.generate(trained / name, prompt, **named)


def test_a_run_that_was_opened_before_another_was_trained_in_its_folder_is_refused(
    trained: Path, tmp_path: Path
) -> None:
    """It still holds the weights of then."""
    shutil.copytree(trained / "rope", tmp_path / "run")
    run = xt.load(tmp_path / "run")
    assert xt.generate(run, PROMPT, max_new_tokens=1)
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(trained / "expe", tmp_path / "run")
    for call in (lambda: xt.generate(run, PROMPT, max_new_tokens=1), lambda: xt.attention(run, PROMPT)):
        with pytest.raises(xt.UserError, match="holds another run now"):
            call()
