"""RMSNorm: its own gradient beside autograd's of the formula, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from extrapolate.model.llama import RMSNorm

EPS = 1e-5


def by_formula(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + EPS).sqrt() * weight


def gradients(norm: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    out = norm(x)
    return out.detach(), *torch.autograd.grad(out, (x, weight), grad)


@pytest.mark.parametrize("shape", [(2, 5, 48), (1, 1, 3)])
@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0])
def test_output_and_gradients_are_those_of_the_formula(shape: tuple[int, ...], size: float) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape) * size, torch.randn(shape)
    norm = RMSNorm(shape[-1], eps=EPS)
    torch.nn.init.normal_(norm.weight)
    x.requires_grad_()
    own = gradients(norm, x, norm.weight, grad)
    exact_x, exact_w = (y.detach().double().requires_grad_() for y in (x, norm.weight))
    exact = gradients(lambda x: by_formula(x, exact_w), exact_x, exact_w, grad.double())
    for ours, theirs in zip(own, exact, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5 * theirs.abs().max().item())


def test_autocast_rounds_no_sum_of_the_gradient() -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(3, 7, 64, requires_grad=True), torch.randn(3, 7, 64)
    norm = RMSNorm(64, eps=EPS)
    plain = gradients(norm, x, norm.weight, grad)
    with torch.autocast("cpu", torch.bfloat16):
        within = gradients(norm, x, norm.weight, grad)
    assert all(torch.equal(a, b) for a, b in zip(plain, within, strict=True))


def test_an_evaluation_has_torchs_own_numbers() -> None:
    x = torch.randn(2, 5, 32)
    norm = RMSNorm(32, eps=EPS)
    with torch.no_grad():
        assert torch.equal(norm(x), torch.nn.functional.rms_norm(x, (32,), norm.weight, EPS))
