"""Our figures against the arithmetic of published evaluations, on a Llama of `transformers`, token by token."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import AddedToken

import extrapolate as xt
from extrapolate.data.store import Split, Store
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.text import beginning_token
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

L, FACTORS = 64, (1, 2)
Scored = dict[tuple[int, int], float]  # by document and place, nats


@pytest.fixture(scope="module")
def llama(word_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose losses differ from token to token, and whose tokenizer has a beginning-of-text token."""
    folder = tmp_path_factory.mktemp("published") / "llama"
    tokenizer = word_store.tokenizer()
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    sizes: dict[str, Any] = dict(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=L,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(20)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def theirs(llama: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()


@pytest.fixture
def rows_of(llama: Path, word_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Evaluates the checkpoint, through our reader, and returns the rows by length."""
    monkeypatch.chdir(tmp_path)

    def evaluate(**settings: Any) -> pd.DataFrame:
        found = xt.evaluate(f"hf:{llama}", data=word_store, factors=FACTORS, device="cpu", **settings)
        return found.set_index("length")

    return evaluate


def texts_of(split: Split) -> list[torch.Tensor]:
    return [
        torch.from_numpy(split.slice(start, end - 1).astype(np.int64))
        for start, end in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True)
    ]


def masked(model: Any, ids: torch.Tensor, count: int) -> tuple[float, list[float]]:
    """What a masked window gives: the mean loss that the model itself returns, and its last `count` labels' losses."""
    labels = ids.clone()
    labels[:-count] = -100
    with torch.no_grad():
        out = model(input_ids=ids[None], labels=labels[None])
    log_probabilities = out.logits[0, :-1].double().log_softmax(-1)
    each = -log_probabilities.gather(-1, ids[1:, None])[:, 0][-count:]
    assert out.loss.item() == pytest.approx(each.mean().item(), abs=1e-5)
    return out.loss.item(), each.tolist()


def yarns(model: Any, texts: list[torch.Tensor], length: int, stride: int, bos: int | None) -> tuple[float, Scored]:
    """What eval/perplexity.py of github.com/jquesnelle/yarn computes: its figure, and every token's loss."""
    room = length if bos is None else length - 1
    means, scored = [], {}
    for number, text in enumerate(texts):
        seen = 0
        for begin in range(0, len(text), stride):
            end = min(begin + room, len(text))
            ids = text[begin:end] if bos is None else torch.cat([torch.tensor([bos]), text[begin:end]])
            mean, each = masked(model, ids, min(end - seen, len(ids) - 1))
            means.append(mean)
            scored |= {(number, end - len(each) + i): loss for i, loss in enumerate(each)}
            seen = end
            if end == len(text):
                break
    return math.exp(np.mean(means)), scored


@pytest.mark.parametrize(("stride", "bos"), [(None, True), (None, False), (20, True), (63, False)])
def test_the_figure_of_yarns_script(llama, theirs, rows_of, word_store, stride: int | None, bos: bool) -> None:
    rows = rows_of(protocols=["yarn"], stride=stride, bos=bos)
    step, split = stride or L // 2, word_store.split("test")
    texts = texts_of(split)
    assert len(texts) >= 2
    run = Run.open(Path("ckpt/hf-llama"))
    token = beginning_token(run, word_store)
    assert token == run.tokenizer.token_to_id("<s>") == len(run.tokenizer.get_vocab()) - 1
    name = {(None, True): "yarn:bos=true", (None, False): "yarn", (20, True): "yarn:bos=true,stride=20"}
    assert set(rows["protocol"]) == {name.get((stride, bos), "yarn:stride=63")}
    for length in (L, 2 * L):
        figure, scored = yarns(theirs, texts, length, step, token if bos else None)
        row = rows.loc[length]
        assert row["window_perplexity"] == pytest.approx(figure, rel=1e-4)
        assert row["loss"] == pytest.approx(np.mean([*scored.values()]), abs=1e-4)
        assert abs(math.log(figure) - row["loss"]) > 2e-4, "the two averages are not told apart"
        assert row["n_targets"] == len(scored) == sum(map(len, texts)) - len(texts) * (not bos)
        assert row["stride"] == step
        assert row["bos_token"] == token if bos else math.isnan(row["bos_token"] or math.nan)
        ours = ours_by_token(run, split, row["protocol"], length, token if bos else None)
        assert ours == pytest.approx(scored, abs=1e-4)


def ours_by_token(run: Run, split: Split, protocol: str, length: int, bos: int | None) -> Scored:
    model = run.load_model(run.checkpoints("last")[0])
    layout = EvaluationSettings(factors=FACTORS).layout(protocol, split, L)
    layout = layout if bos is None else layout.beginning_with(bos)
    found: Scored = {}
    for group in layout.rows[length]:
        losses = target_losses(model, split, group).ravel()
        places = group.targets().reshape(-1, 2).tolist()
        found |= {(d, p): float(loss) for (d, p), loss in zip(places, losses, strict=True)}
    return found


def recipe(model: Any, text: torch.Tensor, max_length: int, stride: int) -> dict[int, float]:
    """Every token's loss by the strided windows of "Perplexity of fixed-length models", of transformers' documents."""
    scored, seen = {}, 0
    for begin in range(0, len(text), stride):
        end = min(begin + max_length, len(text))
        ids = text[begin:end]
        _, each = masked(model, ids, min(end - seen, len(ids) - 1))
        scored |= {end - len(each) + i: loss for i, loss in enumerate(each)}
        seen = end
        if end == len(text):
            break
    return scored


@pytest.mark.parametrize("stride", [16, 64])
def test_sliding_windows_of_transformers_documentation(llama, theirs, rows_of, word_store, stride: int) -> None:
    """A window of N inputs and the next token is one of max_length N + 1, and a span is a text."""
    rows = rows_of(protocols=["sliding"], stride=stride)
    split, span = word_store.split("test"), 2 * L
    run = Run.open(Path("ckpt/hf-llama"))
    for length in (L, 2 * L):
        expected: Scored = {}
        for number, text in enumerate(texts_of(split)):
            for first in range(0, len(text) - span, span):
                losses = recipe(theirs, text[first : first + span + 1], length + 1, stride)
                expected |= {(number, first + place): loss for place, loss in losses.items()}
        assert len(expected) == rows.loc[length, "n_targets"]
        assert rows.loc[length, "loss"] == pytest.approx(np.mean([*expected.values()]), abs=1e-4)
        assert ours_by_token(run, split, f"sliding:stride={stride}", length, None) == pytest.approx(expected, abs=1e-4)
