"""PoSE against its two draws, one by one, and the base that it leaves alone in evaluation."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import DISTANCES, FREQUENCIES, LOGITS, POSITIONS, Dims, Encoding
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

L = 7
SIZES = ModelConfig(vocab_size=31, width=33, layers=2, heads=3, kv_heads=3, head_dim=22, ff_width=13)


def made(spec: str, seq_len: int = L) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, Dims(33, 3, 22, seq_len, layers=2))[0]


def model_of(spec: str, seq_len: int) -> Model:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    return Model(SIZES, parsed.name, parsed.arguments, seq_len)


def index(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def skipped(length: int, kept: int, gap: int) -> tuple[float, ...]:
    return tuple(float(i if i < kept else i + gap) for i in range(length))


@pytest.mark.parametrize(("length", "most"), [(7, 11), (8, 11), (1, 3), (2, 4)])
def test_every_split_and_every_gap_is_as_likely_as_any_other(length: int, most: int) -> None:
    torch.manual_seed(0)
    encoding = made(f"pose:max={most}", length).train()
    expected: Counter[tuple[float, ...]] = Counter()
    splits, gaps = range(1, (length + 1) // 2 + 1), range(most - length + 1)
    for kept in splits:
        for gap in gaps:
            expected[skipped(length, kept, gap)] += 1
    draws = 150 * len(splits) * len(gaps)
    found = Counter(tuple(encoding.positions(index(length)).tolist()) for _ in range(draws))
    assert found.keys() == expected.keys()
    for positions, ways in expected.items():
        assert found[positions] == pytest.approx(150 * ways, abs=5 * math.sqrt(150 * ways)), positions


def test_scores_in_training_are_those_of_the_skipped_positions() -> None:
    """RoPE by its formula, in float64, at positions that are read off a first draw."""
    encoding = made("pose:max=101").train()
    torch.manual_seed(3)
    drawn = encoding.positions(index(L))
    (place,) = [i for i in range(1, L) if drawn[i] - drawn[i - 1] > 1]
    assert drawn.tolist() == list(skipped(L, place, int(drawn[-1]) - (L - 1)))
    torch.manual_seed(3)
    again = encoding.positions(index(L))
    q, k = torch.randn(2, 3, L, 22), torch.randn(2, 3, L, 22)
    rotated_q, rotated_k = encoding.rotate(q, k, again, again)
    found = rotated_q @ rotated_k.mT
    pos = [float(i if i < place else i + drawn[-1] - (L - 1)) for i in range(L)]
    for i in range(L):
        for j in range(L):
            expected = torch.zeros(2, 3, dtype=torch.float64)
            for m in range(11):
                angle = torch.tensor((pos[i] - pos[j]) * 10_000.0 ** (-m / 11), dtype=torch.float64)
                a, b, c, d = q[:, :, i, m], q[:, :, i, m + 11], k[:, :, j, m], k[:, :, j, m + 11]
                a, b, c, d = (x.double() for x in (a, b, c, d))
                expected += (a * c + b * d) * angle.cos() + (a * d - b * c) * angle.sin()
            torch.testing.assert_close(found[:, :, i, j].double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("base", ["rope", "alibi", "fire", "expe", "learned", "rnope"])
def test_a_model_is_its_base_trained_at_max_in_evaluation(base: str) -> None:
    wrapped, plain = model_of(f"pose:base={base},max=29", L).eval(), model_of(base, 29).eval()
    x = torch.randint(0, 31, (2, 23))
    wrapped.load_state_dict({key.replace("encoding.", "encoding.inner."): v for key, v in plain.state_dict().items()})
    with torch.no_grad():
        assert torch.equal(wrapped(x), plain(x))


@pytest.mark.parametrize("length", [L, L + 4])
def test_without_room_for_a_gap_training_is_plain_too(length: int) -> None:
    """A run that goes on with windows longer than max has no gaps either."""
    encoding = made(f"pose:max={L}").train()
    for _ in range(20):
        assert torch.equal(encoding.positions(index(length)), index(length))


def test_positions_are_float32_and_whole_and_a_seed_repeats_them() -> None:
    encoding = made("pose:max=10007").train()
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)
        drawn.append([encoding.positions(index(L)) for _ in range(5)])
    assert all(torch.equal(*pair) for pair in zip(*drawn, strict=True))
    assert len({tuple(positions.tolist()) for positions in drawn[0]}) == 5
    assert all(positions.dtype == torch.float32 and torch.equal(positions, positions.round()) for positions in drawn[0])


def test_evaluation_draws_nothing() -> None:
    encoding = made("pose").eval()
    before = torch.random.get_rng_state()
    assert torch.equal(encoding.positions(index(100)), index(100))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_base_is_defined_as_far_as_it_was_trained() -> None:
    table, rope = made("pose:base=learned,max=29"), made("pose:max=29")
    assert (table.max_length, rope.max_length) == (29, None)
    assert table.defined_at(29, PLAIN)
    assert not table.defined_at(30, PLAIN)
    assert table.defined_at(57, Plan(position_scale=0.5))
    assert rope.defined_at(10_000, PLAIN)


def test_what_extensions_may_change() -> None:
    assert made("pose").accepts >= {POSITIONS, FREQUENCIES, LOGITS}
    assert DISTANCES not in made("pose").accepts
    assert made("pose:base=fire").accepts == made("fire").accepts - {DISTANCES}


def test_defaults_and_labels() -> None:
    encoding = made("pose")
    assert encoding.arguments() == {"base": "rope:theta=10000.0,pairing=half", "max": 16 * L, "curriculum": 0.0}
    assert encoding.label() == "PoSE(RoPE)"
    assert made("pose:base=alibi,max=50,curriculum=0.5").label() == "PoSE(ALiBi, max=50, curriculum=0.5)"
