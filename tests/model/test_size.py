"""What a model needs, by arithmetic, beside real models; and what does not fit, refused before memory is taken."""

import time

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import Dims, encodings, layers_of
from extrapolate.errors import UserError
from extrapolate.machine.memory import peak_mib
from extrapolate.model import size
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings
from extrapolate.model.size import check_training, expected_shapes, parameter_count
from extrapolate.runs.presets import PRESETS
from extrapolate.runs.weights import unique_weights

MODELS = {name: preset["model"] for name, preset in PRESETS.items()} | {
    "grouped": {"vocab_size": 99, "heads": 6, "kv_heads": 2, "head_dim": 10, "width": 48, "layers": 2},
    "tied": {"vocab_size": 99, "tied_embeddings": True, "layers": 1},
    "biased": {"vocab_size": 99, "heads": 6, "kv_heads": 2, "head_dim": 10, "qkv_bias": True, "post_norms": True},
    "sinks and gates": {
        "vocab_size": 99,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 10,
        "sinks": True,
        "output_gate": True,
    },
    "two queries": {"vocab_size": 99, "heads": 6, "kv_heads": 2, "qkv_bias": True, "differential": True},
    "convolved": {"vocab_size": 99, "heads": 6, "kv_heads": 2, "canon": True},
    "convolved, two queries": {"vocab_size": 99, "kv_heads": 2, "canon": True, "differential": True},
    "normed and scaled": {"vocab_size": 99, "qk_norm": True, "ssmax": True, "layers": 3, "ff_width": 40},
}
DIMS = Dims(64, 4, 16, 32, layers=3)


@pytest.mark.parametrize("sizes", MODELS.values(), ids=MODELS)
def test_shapes_and_counts_are_those_of_the_model(sizes: dict) -> None:
    config = ModelConfig(**sizes)
    with torch.device("meta"):
        model = Model(config, "none", {}, 512)
    assert expected_shapes(config) == {name: tuple(tensor.shape) for name, tensor in unique_weights(model).items()}
    assert parameter_count(config) == model.parameter_count()


@pytest.mark.parametrize("spec", [*encodings.names(), "dape:base=fire", "dape:base=sandwich", "fire:shared=true"])
def test_what_an_encoding_holds_is_counted_without_making_it(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = specs.parse(spec)
    layers = layer_encodings(parsed.name, parsed.arguments, DIMS)
    tensors = {id(t): t for layer in layers for t in (*layer.parameters(), *layer.buffers())}
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    monkeypatch.setattr(size, "_check", lambda *_: None)
    monkeypatch.setattr(size, "memory_limit", lambda device: held)
    layer_encodings(parsed.name, parsed.arguments, DIMS)
    if held:
        monkeypatch.setattr(size, "memory_limit", lambda device: held - 1)
        with pytest.raises(UserError, match="the encoding's own tensors need"):
            layer_encodings(parsed.name, parsed.arguments, DIMS)


@pytest.mark.parametrize("name", encodings.names())
def test_every_encoding_can_be_made_where_tensors_take_no_memory(name: str) -> None:
    with torch.device("meta"):
        for layer in layers_of(encodings[name], {}, DIMS):
            assert all(tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"layers": 10_000, "width": 4096, "heads": 32, "head_dim": 128}, "`layers`, or width"),
        ({"width": 10**7}, "or width or ff_width in the configuration"),
        ({"vocab_size": 10**9}, "for the embedding, .*smaller vocabulary"),
        ({"ff_width": 10**12}, "for the feed-forward layers, .*ff_width"),
        ({"head_dim": 10**9}, "for attention, .*head_dim"),
    ],
)
def test_a_model_that_cannot_fit_is_refused_at_once(sizes: dict, words: str) -> None:
    config = ModelConfig(**{"vocab_size": 300} | sizes)
    before, began = peak_mib("cpu"), time.perf_counter()
    with pytest.raises(UserError, match=f"the model needs at least [0-9,]+ GB of memory, .*{words}"):
        Model(config, "rope", {}, 512)
    assert time.perf_counter() - began < 1
    assert peak_mib("cpu") - before < 10


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cope:count=1000000000", "need at least 384 GB, and this machine has .*count=1000000000"),
        ("t5:buckets=1000000000000", "need at least 16,000 GB"),
        ("shaw:max_distance=1000000000", "need at least 384 GB"),
        ("dape:width=10000000000", "need at least 3,1[0-9]+ GB"),
        ("fire:width=1000000,depth=3", "need at least 48,000 GB"),
        (f"cope:count={2**53}", "more than any machine has|need at least"),
        ("fire:depth=1000000000", "at most 100"),
        ("random:max=100000000000", "at most 16777216"),
        ("random:base=learned,max=100000000000", "at most 16777216"),
        ("sandwich:size=1000000000", "at most 65536"),
    ],
)
def test_an_argument_that_sizes_a_table_is_refused_at_once(spec: str, words: str) -> None:
    parsed = specs.parse(spec)
    before, began = peak_mib("cpu"), time.perf_counter()
    with pytest.raises(UserError, match=words):
        layer_encodings(parsed.name, parsed.arguments, Dims(64, 4, 16, 512, layers=6))
    assert time.perf_counter() - began < 1
    assert peak_mib("cpu") - before < 10


@pytest.mark.parametrize("spec", ["xpos:gamma=9007199254740992", "xpos:gamma=3e38"])
def test_numbers_that_cannot_be_computed_with_are_refused(spec: str) -> None:
    parsed = specs.parse(spec)
    with pytest.raises(UserError, match=r"xpos: .*gamma=.* gives numbers that cannot be computed with: "):
        layer_encodings(parsed.name, parsed.arguments, DIMS)


def test_many_layers_are_refused_before_the_first_is_made() -> None:
    with pytest.raises(UserError, match="needs at least 54,096 GB of memory, 50,000 GB of it for the objects"):
        layer_encodings("rope", {}, Dims(64, 4, 2, 512, layers=10**9))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"step_tokens": 10**12, "pass_tokens": 4096}, "16,000 GB of it for the tokens of a batch, .*`batch_tokens`"),
        ({"step_tokens": 10**9, "pass_tokens": 10**9}, "1,200 GB of it for the logits .*micro_batch_tokens"),
    ],
)
def test_training_needs_more_than_its_weights(tokens: dict, words: str) -> None:
    with pytest.raises(UserError, match=f"training needs at least .*{words}"):
        check_training(ModelConfig(vocab_size=300), **tokens, device="cpu")


def test_training_holds_four_numbers_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(vocab_size=10**6, width=1000, layers=1)
    monkeypatch.setattr(size, "memory_limit", lambda device: 31 * 10**9)
    size.check_model(config)
    with pytest.raises(UserError, match="training needs at least 32 GB of memory, 32 GB of it for the embedding"):
        check_training(config, step_tokens=512, pass_tokens=1, device="cpu")


def test_a_gpu_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "memory_limit", lambda device: 10**9 if device == "cuda" else 10**15)
    with pytest.raises(UserError, match=r"this machine's GPU has 1\.0 GB"):
        check_training(ModelConfig(vocab_size=10**6), step_tokens=512, pass_tokens=512, device="cuda")
