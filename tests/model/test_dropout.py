import math

import pytest
import torch

from extrapolate.model.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_elements_are_dropped_with_the_probability_and_the_others_scaled(
    probability: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.ones(1001, 333, dtype=dtype)
    y = Dropout(probability)(x)
    elements = x.numel()
    spread = math.sqrt(probability * (1 - probability) / elements)
    assert abs((y == 0).float().mean().item() - probability) < 5 * spread
    assert y.dtype == dtype
    assert y[y != 0].unique().item() == pytest.approx(
        1 / (1 - probability), rel=1e-4 if dtype == torch.float32 else 4e-3
    )


def test_neighbours_and_calls_are_independent() -> None:
    """Four elements share one draw of the generator: what is dropped must not show it."""
    torch.manual_seed(0)
    dropout, x = Dropout(0.3), torch.ones(200_000)
    first, second = ((dropout(x) == 0).float() for _ in range(2))
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 5 / math.sqrt(len(x))
    for distance in (1, 2, 3, 4, 5):
        pair = torch.stack([first[:-distance], first[distance:]])
        assert torch.corrcoef(pair)[0, 1].abs() < 5 / math.sqrt(len(x))


def test_the_gradient_goes_where_the_values_went() -> None:
    x = torch.randn(64, 65, requires_grad=True)
    y = Dropout(0.4)(x)
    y.backward(torch.ones_like(y))
    torch.testing.assert_close(x.grad * x.detach(), y.detach())


def test_in_evaluation_and_with_probability_0_nothing_happens() -> None:
    x = torch.randn(8)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_seed_decides_and_the_generator_moves_on() -> None:
    dropout, x = Dropout(0.5), torch.ones(999)
    torch.manual_seed(3)
    one, two = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), one)
    assert not torch.equal(one, two)


def test_on_other_devices_it_is_torchs() -> None:
    assert Dropout(0.5)(torch.empty(4, device="meta")).device.type == "meta"
