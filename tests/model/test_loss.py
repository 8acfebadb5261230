import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.model import model
from extrapolate.model.model import cross_entropy


def reference(logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Torch's own function, in float64."""
    if weights is None:
        return F.cross_entropy(logits.double(), targets)
    return (F.cross_entropy(logits.double(), targets, reduction="none") * weights).sum()


@pytest.mark.parametrize("chunk", [1, 1000, 2**18], ids=["a row", "some rows", "all rows"])
@pytest.mark.parametrize("weighted", [False, True], ids=["mean", "weights"])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3)], ids=["fp32", "bf16"])
def test_loss_and_gradient_are_torchs(
    dtype: torch.dtype, near: float, weighted: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(model, "CHUNK_ELEMENTS", chunk)
    logits = (5 * torch.randn(103, 57)).to(dtype)
    logits[3] += 200  # far from 0: only differences count
    logits[4, 7] = -1e4
    targets = torch.randint(0, 57, (103,))
    weights = torch.rand(103) if weighted else None
    theirs = logits.clone().requires_grad_()
    expected = reference(theirs, targets, weights)
    expected.backward()
    ours = logits.clone().requires_grad_()
    actual = cross_entropy(ours * 1, targets, weights)  # the logits of a model are no leaf
    (2.5 * actual).backward()
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(ours.grad, 2.5 * theirs.grad, rtol=near, atol=near * theirs.grad.abs().max().item())


def test_the_gradient_lies_where_the_logits_were() -> None:
    logits = torch.randn(8, 5, requires_grad=True) * 1
    logits.retain_grad()
    cross_entropy(logits, torch.zeros(8, dtype=torch.int64)).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad, logits)


def test_compiled_it_is_the_same_and_the_logits_stay() -> None:
    torch.manual_seed(0)
    logits = torch.randn(33, 21, requires_grad=True)
    targets = torch.randint(0, 21, (33,))
    expected = torch.autograd.grad(reference(logits, targets, None), logits)[0]
    kept = logits.detach().clone()
    compiled = torch.compile(cross_entropy, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(logits, targets), logits)[0], expected)
    assert torch.equal(logits, kept)
