"""Layers with something in place of attention: where weights are shown, they are left out or the run is refused."""

from pathlib import Path

import pytest
import torch

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.interop.export import content_of
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

TEXT = list(range(5, 17))


@pytest.fixture(scope="module")
def runs(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: `mixed`, a recurrence and RoPE, and `recurrent`, a recurrence alone."""
    folder = tmp_path_factory.mktemp("runs")
    sizes = {"seq_len": 32, "tokens": 1024, "batch_tokens": 256, "layers": 2, "precision": "fp32", "device": "cpu"}
    for name, pe in (("mixed", "pattern:layers=(retention,rope)"), ("recurrent", "kda")):
        xt.train(pe, data=store, out=folder / name, compile=False, **sizes)
    return folder


def test_attention_has_the_other_layers(runs: Path) -> None:
    found = xt.attention(runs / "mixed", TEXT)
    model = xt.load(runs / "mixed").model
    assert found.layers == [1]
    assert found.weights.shape == (1, model.config.heads, len(TEXT), len(TEXT))
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(found.weights.shape[:3]))


def test_a_run_without_attention_has_none(runs: Path) -> None:
    with pytest.raises(UserError, match=r"no layer of KDA has attention: .*recurrent has no weights to show"):
        xt.attention(runs / "recurrent", TEXT)


@pytest.mark.parametrize("name", ["mixed", "recurrent"])
def test_text_is_what_the_model_gives_read_anew_for_every_token(runs: Path, name: str) -> None:
    run, tokens = xt.load(runs / name), list(TEXT)
    with torch.no_grad():
        for _ in range(8):
            tokens.append(int(run.model(torch.tensor([tokens]))[0, -1].argmax()))
    assert xt.generate(run, TEXT, max_new_tokens=8) == run.tokenizer.decode(tokens[len(TEXT) :])


@pytest.mark.parametrize("measure", ["attention", "heads"])
def test_inspection_shows_the_other_layers_or_says_that_there_are_none(runs: Path, measure: str) -> None:
    mixed, recurrent = (
        xt.inspect(runs / name, measures=(measure,), factors=(1,), windows=2) for name in ("mixed", "recurrent")
    )
    assert set(mixed["layer"].dropna()) == {1}
    assert set(recurrent["reason"]) == {"no layer of KDA has attention"}


@torch.no_grad()
def test_an_exported_model_has_no_cache_and_no_weights_for_these_layers() -> None:
    transformers_model = pytest.importorskip("extrapolate.transformers.model")
    torch.manual_seed(0)
    sizes = ModelConfig(vocab_size=31, width=24, layers=4, heads=2, kv_heads=1, head_dim=12, ff_width=24)
    model = Model(sizes, "pattern", {"layers": "kda,hype,rope"}, 16).eval()
    content = content_of(model, "pattern", None, 16)
    assert content.config["needs_whole_text"]
    assert not content.config["use_cache"]
    assert {"encodings_pattern.py", "encodings_kda.py", "encodings_hype.py", "encodings_rope.py"} <= set(content.code)
    loaded = transformers_model.ExtrapolateForCausalLM(transformers_model.ExtrapolateConfig(**content.config)).eval()
    loaded.load_state_dict(content.weights)
    tokens = torch.tensor([TEXT])
    output = loaded(tokens, output_attentions=True)
    torch.testing.assert_close(output.logits, model(tokens))
    assert [None if weights is None else tuple(weights.shape) for weights in output.attentions] == [
        None, None, (1, 2, 12, 12), None,
    ]  # fmt: skip
