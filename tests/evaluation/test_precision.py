"""Evaluating in fewer bits."""

import builtins
import subprocess
import sys

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.precision import in_precision
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

SIZES = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)
TOKENS = torch.randint(0, 61, (2, 48), generator=torch.Generator().manual_seed(0))


def model_of(name: str, sizes: ModelConfig = SIZES) -> Model:
    torch.manual_seed(0)
    return Model(sizes, name, {}, 19 if name != "learned" else 48).eval()


@pytest.mark.parametrize("name", encodings.names())
def test_int8_is_near_and_leaves_the_model_alone(name: str) -> None:
    model = model_of(name)
    with torch.inference_mode():
        before = model(TOKENS)
        rounded = in_precision(model, "int8")(TOKENS)
        assert torch.equal(model(TOKENS), before)
    assert not torch.equal(rounded, before)
    torch.testing.assert_close(rounded, before, atol=0.1 * before.abs().max().item(), rtol=0)


def test_int8_warns_of_nothing() -> None:
    """torchao warns of kernels for other machines, and torch of torchao, when they are imported."""
    code = (
        "from extrapolate.evaluation.precision import in_precision; from extrapolate.model.model import Model\n"
        "from extrapolate.model.config import ModelConfig\n"
        "in_precision(Model(ModelConfig(vocab_size=8, layers=1), 'none', {}, 8), 'int8')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("name", ["expe", "exqpe"])
def test_int8_values_are_read_from_what_they_should_be_read_from(name: str, qkv_bias: bool) -> None:
    """The quantised product of queries, keys and values is one, and yet values need not read what queries read."""
    found = []
    for value_input in (False, True):
        torch.manual_seed(0)
        sizes = SIZES.model_copy(update={"qkv_bias": qkv_bias})
        found.append(Model(sizes, name, {"value_input": value_input, "size": 16}, 19).eval())
        for block in found[-1].blocks if qkv_bias else ():
            torch.nn.init.normal_(block.attention.qkv.bias, std=0.1)
    with torch.inference_mode():
        exact, other = (model(TOKENS) for model in found)
        rounded, other_rounded = (in_precision(model, "int8")(TOKENS) for model in found)
    assert (rounded - exact).norm() < 0.5 * (rounded - other).norm()
    assert (other_rounded - other).norm() < 0.5 * (other_rounded - exact).norm()


@pytest.mark.parametrize("name", ["fox", "wall", "dape", "dape:base=fire"])
def test_int8_leaves_an_encodings_own_layers(name: str) -> None:
    spec = specs.parse(name)
    torch.manual_seed(0)
    model = Model(SIZES, spec.name, spec.arguments, 19).eval()
    before, after = (dict(m.named_parameters()) for m in (model, in_precision(model, "int8")))
    own = {key for key in before if ".encoding." in key}
    assert own
    assert all(type(after[key]) is torch.nn.Parameter and torch.equal(after[key], before[key]) for key in own)


def test_int8_leaves_a_tied_embedding_a_table() -> None:
    model = model_of("rope", SIZES.model_copy(update={"tied_embeddings": True}))
    quantised = in_precision(model, "int8")
    assert torch.equal(quantised.embedding.weight, model.embedding.weight)
    assert type(quantised.head.weight) is not torch.nn.Parameter


def test_other_precisions_leave_the_weights() -> None:
    model = model_of("rope")
    assert in_precision(model, "fp32") is in_precision(model, "bf16") is model


def test_without_torchao_int8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *arguments: object, **options: object) -> object:
        if name.startswith("torchao"):
            raise ImportError(name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"extrapolate\[int8\]"):
        in_precision(model_of("rope"), "int8")


@pytest.mark.parametrize(
    "name", ["rope", "xpos", "fope", "pope", "sinusoidal", "expe", "exqpe", "kerple", "t5", "learned"]
)
def test_an_encodings_own_values_are_rounded(name: str) -> None:
    """The rest of the model stays float32: only what the encoding makes is stored in bfloat16."""
    model = model_of(name)
    with torch.inference_mode():
        exact, rounded = (model(TOKENS, model.resolve(PLAIN, storage)) for storage in ("fp32", "bf16"))
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded, exact, atol=0.05 * exact.abs().max().item(), rtol=0)


def test_steps_of_expe_drown_where_those_of_exqpe_do_not() -> None:
    """In bfloat16, with one value in all channels, neighbours far out are the same to ExPE, and not to ExQPE."""
    pos = torch.arange(1900, 1912, dtype=torch.float32)
    for name, survive in (("expe", False), ("exqpe", True)):
        encoding = layer_encodings(name, {"size": 16, "slope": 0}, Dims(32, 2, 16, seq_len=2000))[0]
        read, _ = encoding.rounded_to("bf16").attention_input(torch.zeros(1, 12, 32), pos)
        assert bool((read[0].diff(dim=0).abs().sum(dim=1) > 0).all()) == survive
