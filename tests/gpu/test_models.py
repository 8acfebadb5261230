"""A GPU computes what the CPU does, for every encoding and extension, and nothing in a model waits for it."""

import copy

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.base import extensions
from extrapolate.model.config import ModelConfig
from extrapolate.model.hooks import move_from_constants
from extrapolate.model.model import Model

pytestmark = pytest.mark.gpu
L, N = 16, 256
SIZES = ModelConfig(
    vocab_size=61, width=32, layers=2, heads=4, kv_heads=2, head_dim=16, ff_width=48, qk_norm=True, ssmax=True
)
VARIANTS = [
    "rope:pairing=interleaved", "pope:delta=uniform", "kerple:kernel=power", "fire:shared=true,depth=2",
    "dape:base=fire", "cope:scaled=true", "fox:form=cable", "expe:learned=fixed", "random:base=alibi",
    "random:base=learned,evaluate=spread",
]  # fmt: skip
BASES = {"expe-scale": "expe", "table-resize": "learned"}  # what an extension is tried on, where that is not RoPE


def pair(text: str, device: str, **settings: bool) -> tuple[Model, Model]:
    """The same model on the CPU and on the device."""
    spec = specs.parse(text)
    torch.manual_seed(0)
    model = Model(SIZES.model_copy(update=settings), spec.name, spec.arguments, L)
    with torch.no_grad():
        move_from_constants(model.encodings)
    return model, copy.deepcopy(model).to(device)


def tokens_of(length: int) -> Tensor:
    return torch.randint(0, 61, (3, length), generator=torch.Generator().manual_seed(1))


def same(some: Tensor, others: Tensor) -> None:
    torch.testing.assert_close(some.cpu(), others, rtol=1e-3, atol=1e-4)


def same_evaluation(ours: Model, theirs: Model, plan: Plan, length: int, device: str) -> None:
    """The hidden states of the last tokens, in float32; and in bfloat16 about those."""
    tokens = tokens_of(length)
    with torch.inference_mode():
        expected = ours.eval().hidden(tokens, plan, length // 3)
        there = theirs.eval().resolve(plan)
        tokens = tokens.to(device)
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")  # raises where anything waits for the GPU
        try:
            found = theirs.hidden(tokens, there, length // 3)
            with torch.autocast(device, torch.bfloat16):
                rounded = theirs.hidden(tokens, there, length // 3)
        finally:
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    same(found, expected)
    assert (rounded.float().cpu() - expected).abs().mean() < 0.1


def same_training(ours: Model, theirs: Model, device: str) -> None:
    """The gradients of a loss, of every parameter."""
    tokens = tokens_of(L + 1)
    for model, where in ((ours, "cpu"), (theirs, device)):
        torch.manual_seed(0)  # of positions that are drawn
        model.train().loss(tokens[:, :-1].to(where), tokens[:, 1:].to(where)).backward()
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None), name
        if parameter.grad is not None and other.grad is not None:
            same(other.grad, parameter.grad)


@pytest.mark.parametrize("text", encodings.names() + VARIANTS)
def test_every_encoding_gives_the_cpus_losses_and_gradients(text: str, device: str) -> None:
    same_training(*pair(text, device), device)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_in_float32_are_the_cpus_to_rounding(compiled: bool, device: str) -> None:
    ours, theirs = pair("rope", device)
    tokens, found = tokens_of(L + 1), []
    for model, where in ((ours, "cpu"), (theirs, device)):
        loss = torch.compile(model.train().loss) if compiled and model is theirs else model.train().loss
        loss(tokens[:, :-1].to(where), tokens[:, 1:].to(where)).backward()
        found.append(torch.cat([each.grad.cpu().flatten() for each in model.parameters() if each.grad is not None]))
    assert (found[1] - found[0]).norm() < 1e-4 * found[0].norm()


@pytest.mark.parametrize("setting", ["sinks", "output_gate", "differential", "canon"])
def test_what_combines_with_any_encoding_gives_what_the_cpu_does(setting: str, device: str) -> None:
    ours, theirs = pair("rope", device, **{setting: True})
    same_training(ours, theirs, device)
    same_evaluation(ours, theirs, PLAIN, N, device)


@pytest.mark.parametrize("text", encodings.names() + VARIANTS)
def test_every_encoding_is_evaluated_as_on_the_cpu(text: str, device: str) -> None:
    ours, theirs = pair(text, device)
    same_evaluation(ours, theirs, PLAIN, min(N, ours.encoding.max_length or N), device)


@pytest.mark.parametrize("name", extensions.names())
def test_every_extension_is_evaluated_as_on_the_cpu(name: str, device: str) -> None:
    ours, theirs = pair(BASES.get(name, "rope"), device)
    stack = stacks.parse(name)
    stack = stack if stack.to_fit is None else stack.fitted(0.1)
    same_evaluation(ours, theirs, stack.plan(ours.encoding, L, N), N, device)


@pytest.mark.parametrize("name", encodings.names())
def test_no_token_sees_a_later_one(name: str, device: str) -> None:
    _, model = pair(name, device)
    tokens = tokens_of(L).to(device)
    seen: list[Tensor] = []
    handle = model.embedding.register_forward_hook(lambda _, __, x: (seen.append(x), x.retain_grad())[0])
    model.eval()(tokens)[:, L // 2].sum().backward()
    handle.remove()
    assert seen[0].grad is not None
    assert not seen[0].grad[:, L // 2 + 1 :].any()
    assert seen[0].grad[:, : L // 2].any()
