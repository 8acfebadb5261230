"""Randomised positions around an encoding: what is drawn, what is evaluated, and the base's lengths."""

from collections import Counter

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

L = 16
DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=L, layers=3)
SIZES = ModelConfig(vocab_size=31, width=32, layers=3, heads=2, kv_heads=2, head_dim=16, ff_width=48)


def index(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def layers_of(spec: str, dims: Dims = DIMS) -> list[Encoding]:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, dims)


def inner(encoding: Encoding) -> Encoding:
    """What is wrapped."""
    base = encoding.get_submodule("inner")
    assert isinstance(base, Encoding)
    return base


def model_of(spec: str) -> Model:
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    return Model(SIZES, parsed.name, parsed.arguments, L)


def tokens(length: int) -> Tensor:
    return torch.randint(0, SIZES.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))


class TestTrainingPositions:
    def test_distinct_sorted_whole_numbers_below_max(self) -> None:
        encoding = layers_of("random:max=40")[0].train()
        for _ in range(200):
            drawn = encoding.positions(index(L))
            assert drawn.dtype == torch.float32
            assert drawn.shape == (L,)
            assert (drawn.diff() >= 1).all()
            assert torch.equal(drawn, drawn.round())
            assert drawn[0] >= 0
            assert drawn[-1] <= 39

    def test_every_set_is_as_likely_as_any_other(self) -> None:
        torch.manual_seed(0)
        encoding = layers_of("random:max=5", Dims(32, 2, 16, seq_len=3))[0].train()
        counts = Counter(tuple(encoding.positions(index(3)).tolist()) for _ in range(2000))
        assert len(counts) == 10
        assert min(counts.values()) > 140, counts  # 200 each, give or take 13
        assert max(counts.values()) < 260, counts

    def test_all_of_them_where_max_is_the_length(self) -> None:
        encoding = layers_of(f"random:max={L}")[0].train()
        assert torch.equal(encoding.positions(index(L)), index(L))

    def test_steps_differ_and_a_seed_repeats_them(self) -> None:
        encoding = layers_of("random")[0].train()
        drawn = []
        for _ in range(2):
            torch.manual_seed(7)
            drawn.append([encoding.positions(index(L)).tolist() for _ in range(5)])
        assert drawn[0] == drawn[1]
        assert len({tuple(positions) for positions in drawn[0]}) == 5

    @pytest.mark.parametrize("evaluate", ["sample", "spread", "first"])
    def test_evaluate_is_for_evaluation(self, evaluate: str) -> None:
        encoding = layers_of(f"random:evaluate={evaluate}")[0].train()
        assert not torch.equal(encoding.positions(index(L)), encoding.positions(index(L)))

    def test_a_forward_pass_draws_once_for_all_layers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = model_of("random:base=rope,max=64").train()
        seen: list[list[float]] = []
        cls = type(inner(model.encoding))
        rotate = cls.rotate

        def spy(
            self: Encoding, q: Tensor, k: Tensor, pos_T: Tensor, pos_S: Tensor, state: object
        ) -> tuple[Tensor, Tensor]:
            seen.extend([pos_T.tolist(), pos_S.tolist()])
            return rotate(self, q, k, pos_T, pos_S)

        monkeypatch.setattr(cls, "rotate", spy)
        for _ in range(2):
            model(tokens(L))
        layers = 2 * SIZES.layers
        assert len(seen) == 2 * layers
        first, second = seen[:layers], seen[layers:]
        assert all(positions == first[0] for positions in first)
        assert all(positions == second[0] for positions in second)
        assert first[0] != second[0]
        assert max(first[0]) > L

    def test_the_model_trains_on_them(self) -> None:
        """In training the same tokens give other logits each time; in evaluation they do not."""
        model = model_of("random:base=rope")
        x = tokens(L)
        assert not torch.equal(model.train()(x), model(x))
        assert torch.equal(model.eval()(x), model(x))


class TestEvaluationPositions:
    @pytest.mark.parametrize("length", [1, 5, L, 100, 511, 512])
    def test_sample_is_the_same_for_a_length(self, length: int) -> None:
        one, other = (layers_of("random:max=512")[0].eval() for _ in range(2))
        drawn = one.positions(index(length))
        torch.manual_seed(length)
        assert torch.equal(drawn, other.positions(index(length)))
        assert drawn.dtype == torch.float32
        assert drawn.shape == (length,)
        assert torch.equal(drawn, drawn.round())
        assert drawn[0] >= 0
        assert drawn[-1] <= 511
        assert (drawn.diff() >= 1).all()

    def test_sample_is_another_for_another_length(self) -> None:
        encoding = layers_of("random:max=512")[0].eval()
        shorter, longer = (set(encoding.positions(index(n)).tolist()) for n in (32, 33))
        assert not shorter <= longer

    def test_sample_reaches_across_the_range(self) -> None:
        drawn = layers_of("random:max=512")[0].eval().positions(index(256))
        assert drawn.mean().item() == pytest.approx(256, abs=32)
        assert not torch.equal(drawn, index(256))

    @pytest.mark.parametrize("evaluate", ["sample", "spread", "first"])
    def test_the_global_generator_is_left_alone(self, evaluate: str) -> None:
        encoding = layers_of(f"random:evaluate={evaluate}")[0].eval()
        before = torch.random.get_rng_state()
        encoding.positions(index(100))
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize(("most", "length"), [(512, 16), (512, 300), (512, 512), (100, 7), (70_000, 30_011)])
    def test_spread_is_even(self, most: int, length: int) -> None:
        positions = layers_of(f"random:max={most},evaluate=spread")[0].eval().positions(index(length))
        assert positions.dtype == torch.float32
        assert positions.tolist() == [i * most // length for i in range(length)]

    @pytest.mark.parametrize("length", [1, L, 100])
    def test_first(self, length: int) -> None:
        positions = layers_of("random:evaluate=first")[0].eval().positions(index(length))
        assert positions.dtype == torch.float32
        assert torch.equal(positions, index(length))


class TestRandomBase:
    def test_it_is_built_as_if_training_were_as_long_as_max(self) -> None:
        expe, learned, shaw, t5, fire = (
            inner(layers_of(f"random:base={base},max=100")[0]) for base in ("expe", "learned", "shaw", "t5", "fire")
        )
        assert expe.arguments()["step"] == 2 / 100
        assert [tuple(parameter.shape) for parameter in learned.parameters()] == [(100, 32)]
        assert shaw.arguments()["max_distance"] == 99
        assert t5.arguments()["max_distance"] == 100
        assert fire.arguments()["threshold"] == 50

    @pytest.mark.parametrize("base", ["rope", "learned", "alibi"])
    @pytest.mark.parametrize(("given", "most"), [("", 32 * L), (",max=100", 100), (f",max={L}", L)])
    def test_it_is_defined_up_to_max(self, base: str, given: str, most: int) -> None:
        encoding = layers_of(f"random:base={base}{given}")[0]
        assert encoding.arguments()["max"] == most
        assert encoding.max_length == most

    @pytest.mark.parametrize("evaluate", ["sample", "spread", "first"])
    def test_a_table_s_rows_are_those_of_the_positions(self, evaluate: str) -> None:
        encoding = layers_of(f"random:base=learned,max=64,evaluate={evaluate}")[0].eval()
        pos = encoding.positions(index(20))
        x = torch.randn(2, 20, 32)
        (table,) = encoding.parameters()
        torch.testing.assert_close(encoding.embed(x, pos), x + table[pos.long()])

    def test_every_layer_of_the_base_knows_its_place(self) -> None:
        wrapped, plain = layers_of("random:base=rnope,max=64"), layers_of("rnope", Dims(32, 2, 16, 64, layers=3))
        windows = [layer.window for layer in plain]
        assert len(set(windows)) == 2
        assert [layer.window for layer in wrapped] == windows

    @pytest.mark.parametrize("base", ["none", "cope", "fox", "fox:form=cable", "wall"])
    def test_a_base_without_positions_is_refused(self, base: str) -> None:
        with pytest.raises(ValueError, match="random does not apply to"):
            layers_of(f"random:base=({base})")

    @pytest.mark.parametrize("most", [0, L - 1])
    def test_less_than_the_training_length_is_refused(self, most: int) -> None:
        with pytest.raises(ValueError, match=f"at least the training length {L}"):
            layers_of(f"random:max={most}")

    @pytest.mark.parametrize("name", ["random", "dape"])
    def test_a_file_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="registered encoding, not a class of a file"):
            layers_of(f"{name}:base=(mine.py:Mine)")

    @pytest.mark.parametrize("name", ["random", "dape"])
    @pytest.mark.parametrize(
        ("base", "message"),
        [("rop", "did you mean 'rope'"), ("rope:thet=5", "thet"), ("expe:size=33", "between 0 and the width 32")],
    )
    def test_mistakes_in_the_base_are_named(self, name: str, base: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            layers_of(f"{name}:base=({base})")
