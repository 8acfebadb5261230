"""What the contract tests run over: every registered encoding, and variants that take other branches of its code."""

from collections.abc import Callable

import pytest
import torch

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding, encodings
from extrapolate.model.model import layer_encodings

VARIANTS = [
    "rope:pairing=interleaved", "p-rope:drop=fastest", "pope:delta=uniform", "kerple:kernel=power",
    "fire:shared=true,depth=2",
    "dape:base=kerple", "dape:base=fire", "cope:scaled=true,count=8", "fox:form=cable", "wall:gate_bias=0",
    "selective-rope:gate=true,form=fixed",
    "path:forget=true", "bam:train_loc=true,loc=-1", "grape:form=ap", "gape:p=0.5,length=7",
    "expe:learned=fixed", "expe:learned=scratch", "expe:blocks=first", "expe:value_input=true", "exqpe:learned=fixed",
    "random:base=alibi", "random:base=(expe:size=8),evaluate=spread", "random:base=learned",
    "random:base=shaw,evaluate=first", "stick-breaking:remainder=current", "random:curriculum=0.5",
    "pose:base=alibi,curriculum=1", "pose:base=learned", "rfs:base=t5", "rfs:base=fire",
]  # fmt: skip


@pytest.fixture(params=encodings.names() + VARIANTS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def make_layers() -> Callable[[str, Dims], list[Encoding]]:
    """An encoding's layers, in eval mode, their parameters not where they start: some start where they do nothing."""

    def make(spec: str, dims: Dims) -> list[Encoding]:
        torch.manual_seed(0)
        parsed = specs.parse(spec)
        layers = layer_encodings(parsed.name, parsed.arguments, dims)
        with torch.no_grad():
            for parameter in {id(p): p for layer in layers for p in layer.parameters()}.values():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return [layer.eval() for layer in layers]

    return make
