"""Windows computed once: the same losses as each by itself, fewer inputs, and only where the model allows it."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from extrapolate.data.shards import schema
from extrapolate.data.store import Split
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.protocols.base import CONTROL, protocols
from extrapolate.evaluation.targets import in_order
from extrapolate.evaluation.window_losses import Measured, inputs_of, measure, prefixes_agree
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

L, V = 8, 43
LENGTHS = [L, 2 * L, 4 * L]


@pytest.fixture(scope="module")
def split() -> Split:
    """Four documents of random tokens; token 0 ends each."""
    rng = np.random.default_rng(0)
    rows = [[*rng.integers(1, V, size).tolist(), 0] for size in (150, 40, 70, 33)]
    columns = [[[f"d{i}"], [2 * len(row)], [row]] for i, row in enumerate(rows)]
    return Split("test", [pa.record_batch(one, schema=schema("uint16")) for one in columns])


def model(name: str, **sizes: int | bool) -> Model:
    torch.manual_seed(0)
    shape = {"width": 32, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 16, "ff_width": 48} | sizes
    made = Model(ModelConfig(vocab_size=V, **shape), name, {}, L).eval()
    with torch.no_grad():  # losses that differ from token to token, and attention that is not even
        made.head.weight.mul_(20)
        for block in made.blocks:
            block.attention.qkv.weight.mul_(8)
    return made


def wanted_of(protocol: str, split: Split, lengths: list[int]) -> dict[int, tuple]:
    layout = protocols[protocol]().layout(split.lengths, L, lengths, 256)
    return layout.by_key()


def measured(made: Model, split: Split, wanted: dict, share: bool, plan: Plan = PLAIN) -> dict[int, Measured]:
    seen: list[int] = []
    found = measure(
        made,
        split,
        wanted,
        plan,
        precision="fp32",
        share=share,
        progress=seen.append,
    )
    assert sum(seen) == inputs_of(wanted, share) == sum(one.inputs for one in found.values())
    return found


@pytest.mark.parametrize("protocol", protocols.names())
@pytest.mark.parametrize("name", encodings.names())
def test_every_window_is_as_it_is_alone(name: str, protocol: str, split: Split) -> None:
    """Of every encoding, with whatever sharing it allows, against each window by itself."""
    made = model(name)
    lengths = [length for length in LENGTHS if made.encoding.defined_at(length, PLAIN)]
    wanted = wanted_of(protocol, split, lengths)
    found = measured(made, split, wanted, prefixes_agree(made, PLAIN, lengths))
    for key, groups in wanted.items():
        alone = in_order(groups, [target_losses(made, split, group) for group in groups])
        np.testing.assert_allclose(found[key].loss_N, alone, atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", [name for name in encodings.names() if name != "random"])
def test_prefixes_agree_for_all_but_random(name: str) -> None:
    made = model(name)
    assert prefixes_agree(made, PLAIN, [n for n in LENGTHS if made.encoding.defined_at(n, PLAIN)])
    assert not prefixes_agree(model("random"), PLAIN, LENGTHS)


@pytest.mark.parametrize("sizes", [{"ssmax": True}, {"qk_norm": True}, {"kv_heads": 1}])
def test_prefixes_agree_with_what_combines(sizes: dict) -> None:
    assert prefixes_agree(model("rope", **sizes), PLAIN, LENGTHS)
    assert prefixes_agree(model("rope", **sizes), Plan(position_scale=0.5, log_length=L, window=5), LENGTHS)


class Stretched(RoPE):
    """A user's encoding that divides positions by how much longer the window is than 2 L: prefixes of 4 L differ."""

    display = "Stretched"

    def positions(self, index_T: Tensor) -> Tensor:
        return index_T / max(1.0, len(index_T) / (2 * self.dims.seq_len))


def test_an_encoding_that_looks_at_the_length_shares_nothing(split: Split) -> None:
    made = model("rope")
    for block in made.blocks:
        block.encoding = Stretched(block.encoding.dims)
    assert prefixes_agree(made, PLAIN, [L, 2 * L])
    assert not prefixes_agree(made, PLAIN, LENGTHS)
    assert prefixes_agree(made, PLAIN, [4 * L])  # alone there is nothing to share
    wanted = wanted_of("windows", split, LENGTHS)
    exact = measured(made, split, wanted, share=False)
    wrong = measured(made, split, wanted, share=True)
    assert np.abs(exact[L].loss_N - wrong[L].loss_N).max() > 0.1  # what sharing would have done


class Squeezed(RoPE):
    """Divides positions by 2 in windows of one length alone."""

    display = "Squeezed"
    length = 0

    def positions(self, index_T: Tensor) -> Tensor:
        return index_T / 2 if len(index_T) == self.length else index_T


@pytest.mark.parametrize("length", LENGTHS)
def test_one_length_that_differs_is_enough(length: int) -> None:
    made = model("rope")
    for block in made.blocks:
        block.encoding = Squeezed(block.encoding.dims)
        block.encoding.length = length
    assert not prefixes_agree(made, PLAIN, LENGTHS)
    assert prefixes_agree(made, PLAIN, [n for n in LENGTHS if n != length])


@pytest.mark.parametrize(
    ("protocol", "inputs"),
    [
        # Spans of 4 L. Half of the windows of L and of 2 L begin where a longer one does; of the control's, every
        # other is a window of L.
        ("windows", {4 * L: 4 * L, 2 * L: 2 * L, L: 2 * L, CONTROL: 3 * L}),
        # 4 L: one window. 2 L: at 0 (in 4 L), L/2, L, 3L/2, 2L. L: seven, of which five are in longer ones.
        ("sliding", {4 * L: 4 * L, 2 * L: 4 * 2 * L, L: 2 * L, CONTROL: 0}),
    ],
)
def test_so_much_is_computed_for_a_span(protocol: str, inputs: dict[int, int], split: Split) -> None:
    wanted = wanted_of(protocol, split, LENGTHS)
    spans = sum(len(group.start_W) for group in wanted[4 * L])
    found = measured(model("rope"), split, wanted, share=True)
    assert {key: one.inputs for key, one in found.items()} == {key: spans * each for key, each in inputs.items()}
    # Without sharing between lengths, a window is still computed once.
    alone = measured(model("rope"), split, wanted, share=False)
    every = {
        key: {(d, s) for g in groups for d, s in zip(g.document_W.tolist(), g.start_W.tolist(), strict=True)}
        for key, groups in wanted.items()
    }
    every[CONTROL] -= every[L]
    assert {key: one.inputs for key, one in alone.items()} == {
        key: (L if key == CONTROL else key) * len(set_) for key, set_ in every.items()
    }


def test_fixed_target_computes_its_second_longest_windows_with_the_longest() -> None:
    """In documents with room for it: all but each document's last block, whose next there is none."""
    lengths = [L, 2 * L, 4 * L]
    layout = protocols["fixed-target"]().layout(np.array([300, 300]), L, lengths, 10 * (L // 2))
    longest, second = layout.rows[4 * L][0], layout.rows[2 * L][0]
    starts = set(zip(longest.document_W.tolist(), longest.start_W.tolist(), strict=True))
    shared = [(d, s) in starts for d, s in zip(second.document_W.tolist(), second.start_W.tolist(), strict=True)]
    assert (len(shared), sum(shared)) == (10, 8)
    # Where there is no room, blocks lie evenly.
    layout = protocols["fixed-target"]().layout(np.array([80]), L, lengths, 5 * (L // 2))
    assert layout.rows[4 * L][0].start_W.tolist() == [0, 8, 16, 28, 36]
