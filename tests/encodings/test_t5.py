"""T5's buckets and table against transformers' own."""

import pytest
import torch
from torch import Tensor

from extrapolate.encodings.base import Dims
from extrapolate.encodings.t5 import T5

H, K = 4, 8
DIMS = Dims(width=H * K, heads=H, head_dim=K, seq_len=32, layers=3)


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (32, 32), (32, 17), (32, 4096), (64, 256), (16, 64), (8, 1000), (2, 5), (6, 100), (128, 300)],
)
def test_t5_buckets_are_transformers(buckets: int, max_distance: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(4097)
    expected = T5Attention._relative_position_bucket(
        -distance, bidirectional=False, num_buckets=buckets, max_distance=max_distance
    )
    actual = T5(DIMS, buckets=buckets, max_distance=max_distance).bucket(distance.float())
    assert torch.equal(actual, expected)


def test_t5_last_bucket_starts_at_113() -> None:
    bucket = T5(DIMS, buckets=32, max_distance=128).bucket(positions(5000))
    assert bucket[:17].tolist() == list(range(17))
    assert bucket[112].item() == 30
    assert set(bucket[113:].tolist()) == {31}


def test_t5_keys_after_the_query_count_as_near() -> None:
    assert T5(DIMS).bucket(torch.tensor([-1.0, -500.0])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("seq_len", "buckets", "max_distance"),
    [(512, 32, 128), (128, 32, 128), (64, 32, 64), (32, 16, 32), (20, 10, 20), (17, 8, 17), (16, 8, 16), (4, 2, 4)],
)
def test_t5_has_no_bucket_that_training_never_reaches(seq_len: int, buckets: int, max_distance: int) -> None:
    encoding = T5(Dims(width=32, heads=4, head_dim=8, seq_len=seq_len))
    assert encoding.arguments() == {"buckets": buckets, "max_distance": max_distance}
    trained, later = (set(encoding.bucket(positions(n)).tolist()) for n in (seq_len, 5000))
    assert later == trained
    assert max(trained) == buckets - 1


def test_t5_starts_as_transformers_does() -> None:
    table = T5(Dims(width=64, heads=64, head_dim=8, seq_len=512)).table_RH
    assert table.std().item() == pytest.approx(1 / 8, rel=0.1)
