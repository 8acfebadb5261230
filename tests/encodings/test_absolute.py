"""Absolute encodings against transformers and their papers' formulas, number by number."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from extrapolate.encodings.base import Dims
from extrapolate.encodings.expe import ExPE
from extrapolate.encodings.exqpe import ExQPE
from extrapolate.encodings.learned import Learned
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.sinusoidal import Sinusoidal
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=64, heads=4, head_dim=16, seq_len=32)
NAMES = {"expe": ExPE, "exqpe": ExQPE}


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# Sinusoidal


def test_sinusoidal_is_the_papers_table() -> None:
    table = Sinusoidal(DIMS).values(positions(40)).double().numpy()
    for i in (0, 1, 17, 39):
        for m in (0, 3, 31):
            angle = i / 10_000 ** (2 * m / 64)
            assert table[i, 2 * m] == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[i, 2 * m + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoidal_is_transformers_table() -> None:
    from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

    expected = torch.empty(40, 64)
    create_sinusoidal_embeddings(40, 64, expected)
    torch.testing.assert_close(Sinusoidal(DIMS).values(positions(40)), expected, rtol=0, atol=1e-5)


def test_sinusoidal_of_another_base() -> None:
    table = Sinusoidal(DIMS, theta=16.0).values(positions(40))
    assert table[7, 32].item() == pytest.approx(math.sin(7 / 4))
    assert table[7, 33].item() == pytest.approx(math.cos(7 / 4))


def test_a_shift_of_the_sinusoid_is_a_rotation() -> None:
    """PE(i + k) is PE(i) turned, pair by pair, by an angle that depends on k alone."""
    table = Sinusoidal(DIMS).values(positions(60)).unflatten(-1, (-1, 2))
    angle = 7 * 10_000.0 ** (-torch.arange(0, 64, 2) / 64)
    sine, cosine = table[:50].unbind(-1)
    shifted = torch.stack(
        [sine * angle.cos() + cosine * angle.sin(), cosine * angle.cos() - sine * angle.sin()], dim=-1
    )
    torch.testing.assert_close(table[7:57], shifted, rtol=0, atol=1e-5)


def test_sinusoidal_adds_its_values_and_leaves_the_embedding_as_large_as_it_is() -> None:
    x = random(2, 5, 64)
    added = Sinusoidal(DIMS).embed(x, positions(5)) - x
    torch.testing.assert_close(added, 0.5 * Sinusoidal(DIMS).values(positions(5)).expand(2, -1, -1), rtol=0, atol=1e-5)


# Learned


def test_learned_adds_its_own_row() -> None:
    torch.manual_seed(0)
    learned = Learned(DIMS)
    x = random(2, 32, 64)
    added = learned.embed(x, positions(32)) - x
    torch.testing.assert_close(added, learned.table_LD.expand(2, -1, -1), rtol=0, atol=1e-5)
    assert learned.max_length == 32
    assert learned.table_LD.std().item() == pytest.approx(0.5, rel=0.1)


def test_learned_reads_the_row_of_the_position() -> None:
    learned = Learned(DIMS)
    added = learned.embed(torch.zeros(1, 3, 64), torch.tensor([31.0, 0.0, 7.0]))
    assert torch.equal(added[0], learned.table_LD[[31, 0, 7]])


def test_learned_has_one_table_for_the_model() -> None:
    layers = layer_encodings("learned", {}, dataclasses.replace(DIMS, layers=3))
    assert [[p.shape for p in layer.parameters()] for layer in layers] == [[(32, 64)], [], []]


# ExPE and ExQPE


def expe_by_hand(n: int, c: int) -> float:
    return -1 + (2 / 32) * n + (2 / 32) * c


def exqpe_by_hand(n: int, c: int) -> float:
    """Starting from token 0, one channel at a time takes a step of l times ExPE's: first the last channel."""
    values = [-1 + (2 / 32) * channel for channel in range(8)]
    for token in range(1, n + 1):
        values[(8 - token) % 8] += 8 * (2 / 32)
    return values[c]


@pytest.mark.parametrize(("cls", "by_hand"), [(ExPE, expe_by_hand), (ExQPE, exqpe_by_hand)])
def test_expe_values(cls: type[ExPE], by_hand: Callable[[int, int], float]) -> None:
    values = cls(DIMS).values(positions(70))
    assert values.shape == (70, 8)
    for n in (0, 1, 2, 7, 8, 9, 31, 69):
        assert values[n].tolist() == pytest.approx([by_hand(n, c) for c in range(8)], abs=1e-5)


def test_expe_values_of_other_constants() -> None:
    chosen = {"size": 3, "start": 0.5, "step": 0.25, "slope": 4.0}
    assert ExPE(DIMS, **chosen).values(positions(3)).tolist() == [[0.5, 4.5, 8.5], [0.75, 4.75, 8.75], [1.0, 5.0, 9.0]]
    assert ExQPE(DIMS, **chosen).values(positions(5)).tolist() == [
        [0.5, 4.5, 8.5],
        [0.5, 4.5, 9.25],  # a step of three times 0.25
        [0.5, 5.25, 9.25],
        [1.25, 5.25, 9.25],
        [1.25, 5.25, 10.0],
    ]


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_expes_slope_is_the_step_that_was_given(cls: type[ExPE]) -> None:
    assert (cls(DIMS, step=0.5).slope, cls(DIMS, step=0.5, slope=0.125).slope) == (0.5, 0.125)
    assert cls(DIMS, step=0.5, start=3.0).values(torch.zeros(1))[0, :3].tolist() == [3.0, 3.5, 4.0]


def test_expe_values_lie_between_minus_one_and_one_in_training() -> None:
    values = ExPE(DIMS, slope=0.0).values(positions(33))
    assert values[0].tolist() == [-1.0] * 8
    assert values[32].tolist() == [1.0] * 8


def test_exqpe_moves_one_channel_at_a_time() -> None:
    moved = (ExQPE(DIMS).values(positions(100)).diff(dim=0).abs() > 1e-6).sum(dim=1)
    assert set(moved.tolist()) == {1}


def test_exqpe_moves_as_far_as_expe_over_a_round() -> None:
    expe, exqpe = (cls(DIMS).values(positions(65)) for cls in (ExPE, ExQPE))
    torch.testing.assert_close(exqpe[::8], expe[::8])


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_expe_overrides_what_queries_and_keys_read_and_nothing_else(cls: type[ExPE]) -> None:
    encoding = cls(DIMS, size=10)
    x = random(2, 5, 64)
    before = x.clone()
    read, values_read = encoding.attention_input(x, positions(5))
    assert values_read is x
    assert torch.equal(x, before), "the residual stream keeps what was overridden"
    assert torch.equal(read[..., 10:], x[..., 10:])
    assert torch.equal(read[..., :10], encoding.values(positions(5)).expand(2, -1, -1))


def test_expe_without_channels_is_nope() -> None:
    x = random(2, 5, 64)
    read, _ = ExPE(DIMS, size=0).attention_input(x, positions(5))
    assert torch.equal(read, x)


def test_both_readings_of_scaled_by_half() -> None:
    """Positions halved keep the start; values halved do not."""
    encoding = ExPE(DIMS)
    x = random(1, 9, 64)
    halved_positions, _ = encoding.attention_input(x, positions(9) / 2)
    halved_values, _ = encoding.extended(Plan(value_scale=0.5)).attention_input(x, positions(9))
    assert halved_positions[0, 4, 0].item() == pytest.approx(-1 + 2 * 2 / 32)
    assert halved_values[0, 4, 0].item() == pytest.approx((-1 + 4 * 2 / 32) / 2)
    assert encoding.value_scale == 1.0, "the encoding itself is left as it was"


# ExPE's ablations


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_without_a_slope_only_the_position_counts(cls: type[ExPE]) -> None:
    """ExPE writes one number in all channels; in ExQPE they still take turns."""
    values = cls(DIMS, slope=0.0).values(positions(20))
    for n, row in enumerate(values.tolist()):
        expected = [-1 + n / 16] * 8 if cls is ExPE else [-1 + (n + c) // 8 / 2 for c in range(8)]
        assert row == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_one_channel_is_enough(cls: type[ExPE]) -> None:
    x = random(2, 40, 64)
    read, _ = cls(DIMS, size=1).attention_input(x, positions(40))
    assert torch.equal(read[..., 1:], x[..., 1:])
    torch.testing.assert_close(read[..., 0], (-1 + positions(40) / 16).expand(2, -1))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_block_may_be_the_only_one(name: str) -> None:
    x = random(2, 5, 64)
    dims = dataclasses.replace(DIMS, layers=3)
    only, everywhere = (layer_encodings(name, {"blocks": blocks}, dims) for blocks in ("first", "all"))
    for layer in range(3):
        read, values_read = only[layer].attention_input(x, positions(5))
        overridden, _ = everywhere[layer].attention_input(x, positions(5))
        assert torch.equal(read, x if layer else overridden)
        assert not torch.equal(overridden, x)
        assert values_read is x


@pytest.mark.parametrize("blocks", ["all", "first"])
@pytest.mark.parametrize("name", NAMES)
def test_values_may_read_positions_too(name: str, blocks: str) -> None:
    x = random(2, 5, 64)
    layers = layer_encodings(name, {"value_input": True, "blocks": blocks}, dataclasses.replace(DIMS, layers=2))
    plain, _ = NAMES[name](DIMS).attention_input(x, positions(5))
    for layer, encoding in enumerate(layers):
        read, values_read = encoding.attention_input(x, positions(5))
        expected = x if layer and blocks == "first" else plain
        assert torch.equal(read, expected)
        assert torch.equal(values_read, expected)


@pytest.mark.parametrize("name", NAMES)
def test_constants_that_are_learned_start_where_they_were_fixed(name: str) -> None:
    """Start, step and slope: three numbers for the whole model."""
    chosen = {"size": 5, "start": 0.25, "slope": -0.5}
    layers = layer_encodings(name, {**chosen, "learned": "fixed"}, dataclasses.replace(DIMS, layers=3))
    trained = {id(p): p for layer in layers for p in layer.parameters()}
    assert [p.tolist() for p in trained.values()] == [[0.25, 2 / 32, -0.5]]
    unlearned = NAMES[name](DIMS, **chosen)
    assert list(unlearned.parameters()) == []
    assert list(unlearned.state_dict()) == []
    for layer in layers:
        assert isinstance(layer, ExPE)
        assert torch.equal(layer.values(positions(40)), unlearned.values(positions(40)))


@pytest.mark.parametrize(
    ("cls", "steps"),
    [
        (ExPE, sum(n for n in range(7) for _ in range(4))),
        (ExQPE, sum(4 * ((n + c) // 4) for n in range(7) for c in range(4))),
    ],
)
def test_constants_are_learned_from_the_values(cls: type[ExPE], steps: int) -> None:
    """The sum of the values grows by one for each number with start, and with step and slope as often as they count."""
    encoding = cls(DIMS, size=4, learned="fixed")
    encoding.values(positions(7)).sum().backward()
    assert isinstance(encoding.constants, nn.Parameter)
    assert encoding.constants.grad is not None
    assert encoding.constants.grad.tolist() == pytest.approx([7 * 4, steps, 7 * (0 + 1 + 2 + 3)])


@pytest.mark.parametrize("name", NAMES)
def test_learned_constants_reach_every_block(name: str) -> None:
    layers = layer_encodings(name, {"learned": "fixed", "size": 2}, dataclasses.replace(DIMS, layers=3))
    with torch.no_grad():
        next(layers[0].parameters()).copy_(torch.tensor([5.0, 0.5, 0.25]))
    expected = [6.5, 6.75] if name == "expe" else [6.0, 7.25]
    for layer in layers:
        read, _ = layer.attention_input(random(1, 4, 64), positions(4))
        assert read[0, 3, :2].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("cls", [ExPE, ExQPE])
def test_constants_may_be_learned_from_scratch(cls: type[ExPE]) -> None:
    torch.manual_seed(0)
    started = torch.stack([cls(DIMS, learned="scratch").constants.detach() for _ in range(400)])
    assert started.shape == (400, 3)
    for number in started.T:
        assert number.mean().item() == pytest.approx(0, abs=4e-3)
        assert number.std().item() == pytest.approx(0.02, rel=0.15)
    first, second = layer_encodings("expe", {"learned": "scratch"}, dataclasses.replace(DIMS, layers=2))
    assert next(first.parameters()) is next(second.parameters())
