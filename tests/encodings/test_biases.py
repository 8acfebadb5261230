"""Encodings that add a bias to the scores against their papers' formulas, computed pair by pair in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.alibi import slopes
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model, layer_encodings

B, H, K = 2, 4, 8
DIMS = Dims(width=H * K, heads=H, head_dim=K, seq_len=32, layers=3)
PLACES = [0, 1, 2, 5, 6, 23, 24, 60, 200]  # near and far, with gaps
SIZES = ModelConfig(vocab_size=31, width=32, layers=3, heads=4, kv_heads=4, head_dim=8, ff_width=48)


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def layers_of(spec: str, dims: Dims = DIMS) -> list[Encoding]:
    """The encoding's instances, with parameters that are not where they start."""
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    layers = layer_encodings(parsed.name, parsed.arguments, dims)
    with torch.no_grad():
        for parameter in {id(p): p for layer in layers for p in layer.parameters()}.values():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layers


def numbers(module: torch.nn.Module) -> dict[str, Any]:
    """Its parameters, as float64."""
    return {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}


def bias_of(encoding: Encoding, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    bias = encoding.bias(pos_T, pos_S)
    assert bias is not None
    return bias


def perceptron(x: np.ndarray, weights: dict[str, Any], activation: Callable[[float], float]) -> np.ndarray:
    """A network of linear layers, one number at a time."""
    names = sorted(name for name in weights if name.startswith("network") and name.endswith("weight"))
    for name in names:
        matrix, offset = weights[name], weights[name.replace("weight", "bias")]
        x = np.array([sum(w * value for w, value in zip(row, x, strict=True)) for row in matrix]) + offset
        if name != names[-1]:
            x = np.array([activation(value) for value in x])
    return x


def relu(x: float) -> float:
    return max(x, 0.0)


def leaky_relu(x: float) -> float:
    return x if x > 0 else 0.01 * x


def alibi_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    return np.array([-(2.0 ** (-8 * h / H)) * (i - j) for h in range(1, H + 1)])


def kerple_log_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    own = numbers(encoding)
    return np.array([-own["p_H"][h] * math.log(1 + own["a_H"][h] * (i - j)) for h in range(H)])


def kerple_power_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    own = numbers(encoding)
    return np.array([-own["a_H"][h] * (i - j) ** own["p_H"][h] for h in range(H)])


def sandwich_by_hand(encoding: Encoding, i: int, j: int, size: int = 128) -> np.ndarray:
    cosines = sum(math.cos((i - j) * 10_000 ** (-2 * m / size)) for m in range(size // 2))
    return np.array([cosines / (8 * h / H) for h in range(1, H + 1)])


def small_sandwich_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    return sandwich_by_hand(encoding, i, j, size=6)


def fire_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    own = numbers(encoding)

    def psi(x: float) -> float:
        return math.log(abs(own["c"] * x) + 1)

    threshold = abs(own["factor"] * encoding.arguments()["threshold"])
    return perceptron(np.array([psi(i - j) / (psi(max(threshold, i)) + 1e-6)]), own, relu)


def t5_by_hand(encoding: Encoding, i: int, j: int) -> np.ndarray:
    """Eight buckets: 0, 1, 2, 3, then four that end evenly in the logarithm at 50."""
    r = i - j
    bucket = r if r < 4 else min(7, 4 + int(4 * math.log(r / 4) / math.log(50 / 4)))
    return numbers(encoding)["table_RH"][bucket]


@pytest.mark.parametrize(
    ("spec", "by_hand"),
    [
        ("alibi", alibi_by_hand),
        ("t5:buckets=8,max_distance=50", t5_by_hand),
        ("kerple", kerple_log_by_hand),
        ("kerple:kernel=power", kerple_power_by_hand),
        ("sandwich", sandwich_by_hand),
        ("sandwich:size=6", small_sandwich_by_hand),
        ("fire", fire_by_hand),
        ("fire:threshold=40", fire_by_hand),
        ("fire:width=5,depth=2,shared=true", fire_by_hand),
    ],
)
def test_the_bias_is_the_formula(spec: str, by_hand: Callable[[Encoding, int, int], np.ndarray]) -> None:
    pos = torch.tensor(PLACES, dtype=torch.float32)
    first = len(PLACES) // 2  # the last queries only, as in a chunk
    for encoding in layers_of(spec):
        with torch.no_grad():
            encoding.constrain()
        bias = bias_of(encoding, pos[first:], pos)
        assert bias.shape == (H, len(PLACES) - first, len(PLACES))
        for t, i in enumerate(PLACES[first:]):
            for s, j in enumerate(PLACES):
                if j <= i:
                    expected = by_hand(encoding, i, j)
                    np.testing.assert_allclose(bias[:, t, s].detach().numpy(), expected, rtol=1e-4, atol=1e-5)


# ALiBi


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_alibi_slopes_are_blooms(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    bloom = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32).view(heads, 3)
    torch.testing.assert_close(torch.tensor(slopes(heads)), bloom[:, 1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("heads", range(1, 41))
def test_alibi_slopes_of_any_number_of_heads(heads: int) -> None:
    power = 1
    while 2 * power <= heads:
        power *= 2
    expected = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    expected += [2 ** (-8 * (2 * t - 1) / (2 * power)) for t in range(1, heads - power + 1)]
    assert slopes(heads) == pytest.approx(expected)


def test_alibi_slopes_of_twelve_heads_by_hand() -> None:
    assert slopes(12) == pytest.approx([2.0**-h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])


def test_alibi_bias_is_minus_slope_times_distance() -> None:
    bias = bias_of(layer_encodings("alibi", {}, DIMS)[0], positions(6)[4:], positions(6))
    for h, slope in enumerate([1 / 4, 1 / 16, 1 / 64, 1 / 256]):
        for t, i in enumerate((4, 5)):
            for j in range(i + 1):
                assert bias[h, t, j].item() == pytest.approx(-slope * (i - j))


# What layers share


@pytest.mark.parametrize("spec", ["t5", "kerple", "kerple:kernel=power", "fire:shared=true"])
def test_all_layers_have_the_same_parameters(spec: str) -> None:
    layers = layers_of(spec)
    names = [name for name, _ in layers[0].named_parameters()]
    assert names
    for name in names:
        assert len({id(layer.get_parameter(name)) for layer in layers}) == 1


@pytest.mark.parametrize("spec", ["fire", "shaw", "dape"])
def test_every_layer_has_parameters_of_its_own(spec: str) -> None:
    layers = layers_of(spec)
    parameters = [p for layer in layers for p in layer.parameters()]
    assert parameters
    assert len({id(p) for p in parameters}) == len(parameters)


@pytest.mark.parametrize("spec", ["t5", "kerple", "kerple:kernel=power", "fire:shared=true"])
def test_shared_parameters_gather_the_gradients_of_all_layers(spec: str) -> None:
    """With a copy in each layer instead, the copies' gradients have the same sum."""
    torch.manual_seed(0)
    parsed = specs.parse(spec)
    x = torch.randint(0, 31, (2, 17))
    shared, apart = (Model(SIZES, parsed.name, parsed.arguments, 16) for _ in range(2))
    apart.load_state_dict(shared.state_dict())
    fresh = [layer_encodings(parsed.name, parsed.arguments, apart.dims)[0] for _ in apart.blocks]
    for block, encoding in zip(apart.blocks, fresh, strict=True):
        encoding.load_state_dict(shared.encoding.state_dict())
        block.encoding = encoding
    for model in (shared, apart):
        model.loss(x[:, :-1], x[:, 1:]).backward()
    for name, parameter in shared.encoding.named_parameters():
        each = torch.stack([encoding.get_parameter(name).grad for encoding in fresh])
        assert all(gradient.abs().sum() > 0 for gradient in each), "a layer gives no gradient"
        torch.testing.assert_close(parameter.grad, each.sum(dim=0), rtol=1e-3, atol=1e-7)


# Sandwich


def test_sandwich_is_largest_at_distance_zero() -> None:
    bias = bias_of(layer_encodings("sandwich", {}, DIMS)[0], positions(1), positions(1))
    assert bias.flatten().tolist() == pytest.approx([32.0, 16.0, 64 / 6, 8.0])  # 64 / c, c = 2, 4, 6, 8


# FIRE


@pytest.mark.parametrize(("seq_len", "threshold"), [(32, 16.0), (512, 256.0)])
def test_fire_starts_with_the_papers_constants(seq_len: int, threshold: float) -> None:
    encoding = layer_encodings("fire", {}, Dims(width=32, heads=4, head_dim=8, seq_len=seq_len))[0]
    assert encoding.arguments() == {"width": 32, "depth": 1, "shared": False, "threshold": threshold}
    own = numbers(encoding)
    assert own["c"] == pytest.approx(0.1)
    assert own["factor"] == 1.0
    assert own["network.0.weight"].shape == (32, 1)
    assert own["network.2.weight"].shape == (H, 32)


def test_fire_ignores_the_signs_of_its_constants() -> None:
    encoding = layers_of("fire")[0]
    pos = torch.tensor(PLACES, dtype=torch.float32)
    before = bias_of(encoding, pos, pos)
    with torch.no_grad():
        encoding.get_parameter("c").neg_()
        encoding.get_parameter("factor").neg_()
    after = bias_of(encoding, pos, pos)
    seen = torch.ones(len(PLACES), len(PLACES), dtype=torch.bool).tril()
    assert torch.equal(before[:, seen], after[:, seen])


def test_fire_divides_by_a_little_more_than_the_query_s_position() -> None:
    """With a tiny c the constant 1e-6 shows: the input of the oldest key falls short of 1."""
    encoding = layer_encodings("fire", {"threshold": "20"}, DIMS)[0]
    with torch.no_grad():
        encoding.get_parameter("c").fill_(1e-5)
        for name, parameter in encoding.named_parameters():
            if name.startswith("network"):
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
    bias = bias_of(encoding, torch.tensor([20.0]), torch.tensor([0.0]))
    expected = 32 * math.log(1 + 2e-4) / (math.log(1 + 2e-4) + 1e-6)
    assert bias.flatten().tolist() == pytest.approx([expected] * H, rel=1e-3)


def test_fire_beyond_training_shows_its_network_nothing_new() -> None:
    encoding = layers_of("fire")[0]
    seen: list[Tensor] = []
    encoding.get_submodule("network").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    bias_of(encoding, positions(4000)[-3:], positions(4000))
    bias_of(encoding, positions(12), positions(12))
    far, near = (x.flatten(0, -2)[:, 0] if x.ndim == 3 else x.flatten() for x in seen)
    far, near = far.view(3, 4000), near.view(12, 12)
    for row, i in enumerate((3997, 3998, 3999)):
        assert far[row, : i + 1].min().item() >= 0
        assert far[row, : i + 1].max().item() <= 1
        assert far[row, 0].item() == pytest.approx(1, abs=1e-5)
        assert far[row, i].item() == 0
    assert near[11, 0].item() < 0.9, "below the threshold the oldest key's input is less than 1"


# Shaw and DAPE make scores of their own


@pytest.fixture(params=["one piece", "chunks"])
def attend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """attention.attend: in one piece, as in training, or five queries at a time, as in evaluation."""
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 5)

    def call(*arguments: Any) -> Tensor:
        with torch.set_grad_enabled(request.param == "one piece"):
            return attention.attend(*arguments).detach()

    return call


def mixed_by_hand(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Values weighted by the softmax of the scores that a query sees."""
    mixed = np.zeros_like(scores[..., 0, None] * v[0, 0, 0])
    for b, h, i in np.ndindex(scores.shape[:3]):
        weights = np.exp(scores[b, h, i, : i + 1] - scores[b, h, i, : i + 1].max())
        mixed[b, h, i] = weights @ v[b, h * v.shape[1] // scores.shape[1], : i + 1] / weights.sum()
    return mixed


def check_scores(
    attend: Callable[..., Tensor],
    encoding: Encoding,
    score: Callable[[np.ndarray, np.ndarray, int, int], np.ndarray],
    places: list[int],
    kv_heads: int,
) -> None:
    """Attention with the encoding is attention with the scores of all heads that `score` makes of q_i and all k."""
    torch.manual_seed(1)
    length = len(places)
    q, k, v = (torch.randn(B, heads, length, K) for heads in (H, kv_heads, kv_heads))
    q_by_hand, k_by_hand, v_by_hand = (x.double().numpy() for x in (q, k, v))
    scores = np.full((B, H, length, length), -np.inf)
    for b in range(B):
        keys = k_by_hand[b, [h * kv_heads // H for h in range(H)]]
        for i in range(length):
            for j in range(i + 1):
                scores[b, :, i, j] = score(q_by_hand[b, :, i], keys[:, j], places[i], places[j])
    actual = attend(q, k, v, attention.Scoring(encoding, torch.tensor(places, dtype=torch.float32)))
    np.testing.assert_allclose(actual.numpy(), mixed_by_hand(scores, v_by_hand), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("spec", "reach"), [("shaw", 31), ("shaw:max_distance=3", 3)])
def test_shaw_adds_a_vector_to_every_key(spec: str, reach: int, kv_heads: int, attend: Callable[..., Tensor]) -> None:
    encoding = layers_of(spec)[0]
    table = numbers(encoding)["table_RK"]
    assert table.shape == (reach + 1, K)

    def score(q: np.ndarray, k: np.ndarray, i: int, j: int) -> np.ndarray:
        return np.array([q[h] @ (k[h] + table[min(i - j, reach)]) for h in range(H)]) / math.sqrt(K)

    check_scores(attend, encoding, score, list(range(13)), kv_heads)
    check_scores(attend, encoding, score, PLACES, kv_heads)


@pytest.mark.parametrize(("seq_len", "reach"), [(16, 15), (129, 128), (512, 128)])
def test_shaw_reaches_as_far_as_training_or_128(seq_len: int, reach: int) -> None:
    assert layer_encodings("shaw", {}, Dims(32, 4, 8, seq_len))[0].arguments() == {"max_distance": reach}


@pytest.mark.parametrize("kv_heads", [4, 1])
@pytest.mark.parametrize(
    ("spec", "base_by_hand"),
    [
        ("dape", alibi_by_hand),
        ("dape:base=alibi,width=7", alibi_by_hand),
        ("dape:base=kerple", kerple_log_by_hand),
        ("dape:base=(kerple:kernel=power)", kerple_power_by_hand),
        ("dape:base=fire", fire_by_hand),
    ],
)
def test_dape_corrects_scores_and_bias_together(
    spec: str, base_by_hand: Callable[..., np.ndarray], kv_heads: int, attend: Callable[..., Tensor]
) -> None:
    encoding = layers_of(spec)[1]
    own, base = numbers(encoding), encoding.get_submodule("inner")
    assert isinstance(base, Encoding)

    def score(q: np.ndarray, k: np.ndarray, i: int, j: int) -> np.ndarray:
        scaled = np.array([q[h] @ k[h] for h in range(H)]) / math.sqrt(K)
        bias = base_by_hand(base, i, j)
        return scaled + bias + perceptron(np.concatenate([scaled, bias]), own, leaky_relu)

    check_scores(attend, encoding, score, list(range(12)), kv_heads)
