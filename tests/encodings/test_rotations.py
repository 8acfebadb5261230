"""What an encoding says that it turns is what it turns."""

import math
from pathlib import Path

import pytest
import torch

from extrapolate.encodings.base import Dims, encodings
from extrapolate.extensions import stack
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=64, heads=4, head_dim=16, seq_len=32, layers=4)
ROTATING = {
    "rope", "p-rope", "partial-rope", "hope", "rnope", "local-global", "xpos", "pope", "random", "repo", "rope-pp",
    "rope-id", "lerope", "gape", "scale-invariant", "pose", "rfs",
}  # fmt: skip


def turned(encoding, position: float, channels) -> torch.Tensor:
    """The angle of each pair of a fixed key at a position."""
    x = torch.randn(1, 4, 1, 16, generator=torch.Generator().manual_seed(0))
    pos = torch.tensor([position])
    _, k = encoding.rotate(x, x, pos, pos)
    a, b = k[0, 0, 0, channels].double().unbind(-1)
    return torch.atan2(b, a)


@pytest.mark.parametrize("name", sorted(ROTATING))
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_every_pair_turns_at_its_speed(name: str, pairing: str) -> None:
    arguments = {} if name in ("xpos", "pope", "random", "pose", "rfs") else {"pairing": pairing}
    encoding = layer_encodings(name, arguments, DIMS)[0].eval()
    rotations = encoding.rotations()
    assert rotations is not None
    frequency_M, pairs_M2 = rotations.frequency_M, rotations.channel_M2
    assert pairs_M2.unique().numel() == pairs_M2.numel() == 2 * len(frequency_M)
    moved = turned(encoding, 7.0, pairs_M2) - turned(encoding, 4.0, pairs_M2)
    wanted = 3 * frequency_M.double()
    apart = torch.remainder(moved - wanted + math.pi, 2 * math.pi) - math.pi
    assert apart.abs().max() < 1e-4


def test_the_encodings_that_turn_pairs_at_one_speed_each_say_so() -> None:
    found = {name for name in encodings.names() if layer_encodings(name, {}, DIMS)[0].rotations() is not None}
    own = {name for name in found if Path(__file__).with_name(f"test_{name.replace('-', '_')}.py").exists()}
    assert ROTATING <= found <= ROTATING | own


def test_an_extension_changes_the_speeds() -> None:
    encoding = layer_encodings("rope", {}, DIMS)[0]
    plan = stack.parse("yarn").plan(encoding, 32, 128)
    rotations = encoding.extended(plan).rotations()
    plain = encoding.rotations()
    assert rotations is not None
    assert plain is not None
    torch.testing.assert_close(rotations.frequency_M, plain.frequency_M * torch.tensor(plan.frequency_scale))
    assert not torch.equal(rotations.frequency_M, plain.frequency_M)
