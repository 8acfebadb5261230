"""What every registered encoding makes of a pair depends on that pair, and what it draws for a layer on that layer."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Context, Dims, Encoding
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=64, layers=3)
# As the branches of an extension have them: queries and keys of one window, each with positions of their own.
QUERIES, KEYS = torch.tensor([9.0, 10.0, 24.0, 24.0]), torch.tensor([0.0, 1.0, 0.5, 7.0])


def made_of(encoding: Encoding, q_BHTK: Tensor, k_BHSK: Tensor, pos_T: Tensor, pos_S: Tensor) -> dict[str, Tensor]:
    """What each hook adds to the scores of these queries and keys, [.., T, S]."""
    made: dict[str, Tensor] = {}
    if encoding.prepare(torch.zeros(1, 1, DIMS.width)) is None:  # if not, `rotate` gets all tokens
        rotated_q, rotated_k = encoding.rotate(q_BHTK, k_BHSK, pos_T, pos_S)
        made["rotate"] = rotated_q @ rotated_k.mT
    if (bias_HTS := encoding.bias(pos_T, pos_S)) is not None:
        made["bias"] = bias_HTS
    hidden_TS = torch.zeros(len(pos_T), len(pos_S), dtype=torch.bool)
    context = Context(pos_T, pos_S, slice(0, len(pos_T)), slice(0, len(pos_S)), hidden_TS, None)
    if encoding.positional and (scores_BHTS := encoding.scores(q_BHTK, k_BHSK, context)) is not None:
        made["scores"] = scores_BHTS
    return made


@pytest.mark.parametrize("layer", [0, 1])
def test_a_pair_is_the_same_whatever_is_beside_it(
    name: str, layer: int, make_layers: Callable[[str, Dims], list[Encoding]]
) -> None:
    """Also where queries' and keys' positions differ, and no position is that of another pair."""
    encoding = make_layers(name, DIMS)[layer]
    torch.manual_seed(1)
    q_BHTK, k_BHSK = torch.randn(2, 1, 2, 4, 16).unbind()
    with torch.no_grad():
        together = made_of(encoding, q_BHTK, k_BHSK, QUERIES, KEYS)
        for i in range(4):
            for j in range(4):
                t, s = slice(i, i + 1), slice(j, j + 1)
                alone = made_of(encoding, q_BHTK[:, :, t], k_BHSK[:, :, s], QUERIES[t], KEYS[s])
                for hook, value in alone.items():
                    torch.testing.assert_close(together[hook][..., t, s], value, rtol=1e-4, atol=1e-5)


# Among those that draw something for each layer: for them the next test must have something to compare.
DRAWN_BY_LAYER = {
    "fire", "dape", "dape:base=fire", "fox", "fox:form=cable", "wall", "shaw", "pope:delta=uniform",
    "asentmax", "darope", "grape", "hype", "kda", "path", "pattern", "repo", "retention", "selective-rope",
    "random:base=shaw,evaluate=first",
}  # fmt: skip


def tensors_of(encoding: Encoding) -> dict[str, Tensor]:
    return {**dict(encoding.named_parameters()), **dict(encoding.named_buffers())}


def drawn(name: str) -> set[str]:
    """Parameters and buffers that another seed makes others, in the second layer."""
    spec, made = specs.parse(name), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        made.append(tensors_of(layer_encodings(spec.name, spec.arguments, DIMS)[1]))
    return {key for key, value in made[0].items() if not torch.equal(value, made[1][key])}


def test_every_layer_starts_with_its_own_draw_or_shares_one(name: str) -> None:
    """By value: a layer that holds another tensor with the same numbers is not a layer of its own."""
    spec = specs.parse(name)
    layers = [tensors_of(layer) for layer in layer_encodings(spec.name, spec.arguments, DIMS)]
    random = drawn(name)
    own = {key for key in random if layers[1][key] is not layers[2].get(key)}
    assert own or name not in DRAWN_BY_LAYER
    for key in own:
        having = [layer for layer in range(3) if key in layers[layer]]  # layers may be of several kinds
        for one, other in itertools.combinations(having, 2):
            assert not torch.equal(layers[one][key], layers[other][key]), f"{key} is the same in layers {one}, {other}"
