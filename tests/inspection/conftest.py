"""Models whose use of position is known, because their weights are set by hand."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Value, measurements
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L, VOCAB, WIDTH, HEADS, K = 16, 50, 32, 2, 16
Found = Mapping[tuple[str, int | None, int | None, float | None], Value]


def measured(name: str, inspected: Inspected) -> Found:
    """The values of one measurement, by quantity, layer, head and place."""
    found = list(measurements[name].measure(inspected))
    assert measurements[name].refusal(inspected) is None
    assert {value.quantity for value in found} <= set(measurements[name].quantities)
    made = {(value.quantity, value.layer, value.head, value.at): value for value in found}
    assert len(made) == len(found), "two values have one key"
    return made


@pytest.fixture(scope="session")
def measure() -> Callable[[str, Inspected], Found]:
    """measured."""
    return measured


@pytest.fixture(scope="session")
def build() -> Callable[..., Model]:
    """A small model with an encoding, in eval mode."""

    def make(encoding: str, layers: int = 1, arguments: Mapping[str, Any] | None = None, **sizes: Any) -> Model:
        torch.manual_seed(0)
        given = {"width": WIDTH, "heads": HEADS, "kv_heads": HEADS, "head_dim": K, "ff_width": 16} | sizes
        config = ModelConfig(vocab_size=VOCAB, layers=layers, **given)
        return Model(config, encoding, arguments or {}, L).eval()

    return make


@pytest.fixture(scope="session")
def windows() -> Callable[..., Inspected]:
    """Windows of random tokens, to inspect a model on."""

    def make(model: Model, factor: int = 1, count: int = 3, plan: Plan = PLAIN) -> Inspected:
        tokens = torch.randint(VOCAB, (count, factor * L + 1), generator=torch.Generator().manual_seed(1))
        return Inspected(model, model.resolve(plan), L, tokens)

    return make


@pytest.fixture(scope="session")
def positional(build: Callable[..., Model]) -> Callable[[int], Model]:
    """A model with RoPE whose head 0 attends to the token `back` places before, for any text, and head 1 to all evenly.

    The first channel of the residual stream is the same for all tokens, and queries and keys read only that. Keys are
    turned by the distance beforehand, so that the product with a query is largest there (arXiv 2410.06205, section 5).
    """

    def make(back: int) -> Model:
        model = build("rope")
        attention: Any = model.blocks[0].attention
        frequencies = model.encoding.frequencies(torch.device("cpu"))
        half = K // 2
        with torch.no_grad():
            model.embedding.weight.normal_()
            model.embedding.weight[:, 0] = 1000.0  # beside which the others hardly change the norm
            attention.qkv.weight[: 2 * HEADS * K] = 0.0  # queries, then keys
            attention.qkv.weight[:half, 0] = 3.0
            keys = attention.qkv.weight[HEADS * K : (HEADS + 1) * K]
            keys[:half, 0] = 3.0 * (back * frequencies).cos()
            keys[half:, 0] = 3.0 * (back * frequencies).sin()
        return model

    return make
