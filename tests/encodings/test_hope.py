"""HoPE: which pairs it keeps."""

import dataclasses

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.hope import HoPE
from extrapolate.model.model import layer_encodings

K = 16
DIMS = Dims(width=64, heads=4, head_dim=K, seq_len=32)


def make(spec: str) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, DIMS)[0]


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("seq_len", "theta", "kept"),
    [
        (6, 10_000, 0),  # 2 pi / 6 is above 1
        (7, 10_000, 1),
        (62, 10_000, 2),  # w_2 = 0.1, and 2 pi / 62 = 0.101
        (63, 10_000, 3),
        (35, 100, 3),  # w_3 = 0.178, and 2 pi / 35 = 0.1795
        (36, 100, 4),
        (512, 10_000, 4),  # w_3 = 0.0316, w_4 = 0.01, 2 pi / 512 = 0.0123
        (100_000, 10_000, 8),
    ],
)
def test_hope_keeps_the_pairs_that_complete_a_turn(seq_len: int, theta: float, kept: int) -> None:
    hope = HoPE(dataclasses.replace(DIMS, seq_len=seq_len), theta=theta)
    x = torch.ones(1, 1, 2, K)
    rotated, _ = hope.rotate(x, x, positions(2), positions(2))
    moved = (rotated[0, 0, 1] != 1).nonzero().flatten().tolist()
    assert moved == [*range(kept), *range(8, 8 + kept)]
    assert hope.arguments()["kept"] == kept


def test_hope_is_p_rope_with_p_set_by_the_training_length() -> None:
    q, k = random(2, 1, 4, 40, K).unbind()
    pos = positions(40)
    for ours, other in zip(
        make("hope").rotate(q, k, pos, pos), make("p-rope:p=0.25").rotate(q, k, pos, pos), strict=True
    ):
        assert torch.equal(ours, other)
