"""ASEntmax against its formulas in float64: the threshold by bisection, the scale query by query."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extrapolate.encodings.asentmax import ASEntmax, Entmax
from extrapolate.encodings.base import Dims
from extrapolate.errors import UserError
from extrapolate.model import attention
from extrapolate.model.attention import Scoring, attend
from extrapolate.model.model import layer_encodings

B, H, T, K, D = 2, 3, 13, 5, 7
DIMS = Dims(width=D, heads=H, head_dim=K, seq_len=7)


def entmax_by_bisection(z: Tensor) -> Tensor:
    """Weights of one row, float64: halves the interval of the threshold until it cannot be halved."""
    half = z.double() / 2
    low, high = half.max() - 1, half.max()
    for _ in range(80):
        middle = (low + high) / 2
        if (half - middle).clamp(min=0).square().sum() > 1:
            low = middle
        else:
            high = middle
    return (half - low).clamp(min=0).square()


def made(dims: Dims = DIMS, **arguments: Any) -> ASEntmax:
    torch.manual_seed(0)
    encoding = ASEntmax(dims, **arguments)
    with torch.no_grad():
        for layer in (encoding.gain, encoding.exponent):
            layer.weight.normal_()
    return encoding


class TestEntmax:
    @pytest.mark.parametrize("size", [1, 2, 13, 64])
    @pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
    def test_weights_are_those_of_bisection(self, size: int, scale: float) -> None:
        torch.manual_seed(size)
        z = scale * torch.randn(5, size) + 100  # it is the same for scores that are all larger
        z[:, 2::3] = -torch.inf
        z[:, : size // 4] = z[:, :1]  # ties
        own = Entmax.apply(z)
        expected = torch.stack([entmax_by_bisection(row) for row in z])
        torch.testing.assert_close(own.double(), expected, rtol=1e-4, atol=1e-5)
        assert (own[z == -torch.inf] == 0).all()

    def test_far_from_the_largest_a_key_has_nothing_at_all(self) -> None:
        weights = Entmax.apply(torch.tensor([0.0, -1.9, -2.0, -40.0, -1e30]))
        assert weights[1] > 0
        assert weights[2:].tolist() == [0, 0, 0]
        assert Entmax.apply(torch.tensor([5.0, 3.0])).tolist() == [1, 0]

    def test_gradient(self) -> None:
        torch.manual_seed(0)
        z = (2 * torch.randn(4, 9, dtype=torch.float64)).requires_grad_()
        assert torch.autograd.gradcheck(Entmax.apply, (z,))
        masked = torch.where(torch.arange(9) < 6, z, -torch.inf)
        assert torch.autograd.grad(Entmax.apply(masked).square().sum(), z)[0].isfinite().all()

    def test_thousands_of_equal_scores(self) -> None:
        torch.testing.assert_close(Entmax.apply(torch.zeros(2, 5000)) * 5000, torch.ones(2, 5000), rtol=1e-3, atol=0.0)


class TestLayer:
    @pytest.mark.parametrize("slopes", ["linear", "exp"])
    @pytest.mark.parametrize("chunk", [128, 5])
    def test_output_is_that_of_the_formula(self, slopes: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", chunk)
        dims = Dims(width=D, heads=5, head_dim=K, seq_len=7)
        encoding = made(dims, slopes=slopes, range=1.5)
        q, k, v = (torch.randn(B, 5, T, K) for _ in range(3))
        x, pos = torch.randn(B, T, D), torch.arange(float(T))
        with torch.no_grad():
            state = encoding.prepare(x)
            mixed = attend(*encoding.rotate(q, k, pos, pos, state), v, Scoring(encoding, pos, state))
        gain, exponent = (layer.weight.detach().double() for layer in (encoding.gain, encoding.exponent))
        for b in range(B):
            for h in range(5):
                slope = {"linear": 1 / (h + 1), "exp": 2.0**-h}[slopes] if h < 2 else 0.0
                for i in range(T):
                    factor = 1.0
                    if h >= 2:
                        token = x[b, i].double()
                        power = 1.5 * math.tanh(exponent[h - 2] @ token)
                        factor += F.softplus(gain[h - 2] @ token).item() * math.log(i + 2) ** power
                    scores = torch.stack(
                        [factor * (q[b, h, i] @ k[b, h, j]) / math.sqrt(K) - slope * (i - j) for j in range(i + 1)]
                    )
                    expected = entmax_by_bisection(scores) @ v[b, h, : i + 1].double()
                    torch.testing.assert_close(mixed[b, h, i].double(), expected, rtol=1e-4, atol=1e-5)

    def test_without_content_the_factor_is_one_and_ln_2(self) -> None:
        encoding = made()
        state = encoding.prepare(torch.zeros(1, T, D))
        torch.testing.assert_close(state, torch.full((1, 2, T, 1), 1 + math.log(2)))
        q = torch.randn(1, H, T, K)
        turned, keys = encoding.rotate(q, q, torch.arange(13.0), torch.arange(13.0), state)
        assert torch.equal(turned[:, :1], q[:, :1])  # ALiBi's head
        torch.testing.assert_close(turned[:, 1:], q[:, 1:] * (1 + math.log(2)))
        assert keys is q

    def test_one_head_alone_has_no_bias(self) -> None:
        encoding = made(Dims(width=D, heads=1, head_dim=K, seq_len=7))
        assert encoding.bias(torch.arange(3.0), torch.arange(3.0)).abs().max() == 0
        assert encoding.prepare(torch.zeros(1, T, D)).shape == (1, 1, T, 1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [({"range": "0"}, "range must be positive, not 0"), ({"slopes": "1/h"}, "slopes=1/h is not linear or exp")],
    )
    def test_refused_arguments(self, arguments: dict[str, str], message: str) -> None:
        with pytest.raises(UserError, match=message):
            layer_encodings("asentmax", arguments, DIMS)
