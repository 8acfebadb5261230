"""Windows computed once: the losses of each by itself, fewer inputs, only where the model allows it; their cost."""

import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from extrapolate.data.shards import schema
from extrapolate.data.store import Split
from extrapolate.encodings.base import encodings
from extrapolate.encodings.plan import GLOBAL, PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.evaluation import window_losses
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.protocols.base import CONTROL, Windows, protocols
from extrapolate.evaluation.targets import Targets, in_order
from extrapolate.evaluation.window_losses import TOLERANCE, Measured, inputs_of, joined, measure, prefixes_agree
from extrapolate.extensions.distances import ChunkedPairs, GroupedPairs, LeakyPairs, ShiftedPairs
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
    """Windows by evaluation length, and the control's."""
    layout = protocols[protocol]().layout(split.lengths, L, lengths, 256)
    return layout.rows | {CONTROL: layout.control}


def measured(made: Model, split: Split, wanted: dict, share: bool) -> dict[int, Measured]:
    seen: list[int] = []
    found = measure(
        made, split, wanted, PLAIN, precision="fp32", share=share, progress=lambda inputs, loss: seen.append(inputs)
    )
    assert sum(seen) == inputs_of(wanted, share).total() == sum(one.inputs for one in found.values())
    return found


PAIRS = [LeakyPairs(6, 2.0), LeakyPairs(6, None), GroupedPairs(2, 4), ChunkedPairs(6, 8), ShiftedPairs(11, 8)]


@pytest.mark.parametrize(
    "plan", [*(Plan(pairs=pairs) for pairs in PAIRS), Plan(only=((GLOBAL, Plan(pairs=PAIRS[0])),))]
)
def test_pairs_of_our_own_share_windows_without_a_pass(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """And rightly so: a user's pairs are compared in passes, and agree."""
    made, passes, hidden = model("rope"), [], Model.hidden
    monkeypatch.setattr(Model, "hidden", lambda *given: [passes.append(given), hidden(*given)][1])
    assert prefixes_agree(made, plan, LENGTHS)
    assert not passes
    monkeypatch.setattr(window_losses, "is_users", lambda cls: True)
    assert prefixes_agree(made, plan, LENGTHS)
    assert len(passes) == len(LENGTHS)


@pytest.mark.parametrize("name", encodings.names())
def test_every_window_is_as_it_is_alone(name: str, split: Split) -> None:
    """Of every encoding, with sharing, which all but `random` and `rfs` allow, against each window by itself."""
    made = model(name)
    lengths = [length for length in LENGTHS if made.encoding.defined_at(length, PLAIN)]
    share = prefixes_agree(made, PLAIN, lengths)
    assert share == (name not in ("random", "rfs"))
    wanted = wanted_of("sliding", split, lengths)
    found = measured(made, split, wanted, share)
    for key, groups in wanted.items():
        alone = in_order(groups, [target_losses(made, split, group) for group in groups])
        np.testing.assert_allclose(found[key].loss_N, alone, atol=2e-3, rtol=0)


COMBINED = ("ssmax", "qk_norm", "sinks", "output_gate", "differential", "canon")


@pytest.mark.parametrize("sizes", [{"kv_heads": 1}, *({name: True} for name in COMBINED)])
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


MODEL = SimpleNamespace(device=torch.device("cpu"))
PLAN = Plan(position_scale=0.5)


class Computed:
    """Stands in for the model's losses: that of a target is 1000 times its document and its place, and is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> None:
        self.batches: list[tuple[Windows, list[int]]] = []
        self.seconds = seconds
        monkeypatch.setattr(window_losses, "target_losses", self.target_losses)

    def target_losses(
        self, model: object, split: str, windows: Windows, plan: Plan, *, places_P: np.ndarray, precision: str, progress
    ) -> np.ndarray:
        assert (model, split, plan, precision) == (MODEL, "split", PLAN, "bf16")
        assert (np.diff(places_P) > 0).all()
        time.sleep(self.seconds)
        self.batches.append((windows, places_P.tolist()))
        progress(windows.length * len(windows.start_W), 0.0)
        return 1000.0 * windows.document_W[:, None] + windows.start_W[:, None] + places_P + 1


def named(wanted: dict[int, tuple[Windows, ...]], share: bool) -> dict[int, Measured]:
    """What is measured with losses that name their targets, which `Computed` gives."""
    told: list[int] = []
    found = measure(
        MODEL, "split", wanted, PLAN, precision="bf16", share=share, progress=lambda inputs, loss: told.append(inputs)
    )
    assert sum(told) == inputs_of(wanted, share).total() == sum(one.inputs for one in found.values())
    return found


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("protocol", protocols.names())
def test_every_target_has_its_own_loss(protocol: str, share: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = Computed(monkeypatch)
    layout = protocols[protocol]().layout(np.array([50, 9, 23]), 4, [4, 8, 16], 1000)
    wanted = layout.by_key()
    found = named(wanted, share)
    targets = Targets.of(layout.control, SimpleNamespace(bytes=np.ones(3), lengths=np.ones(3)), None)
    for keys in ([CONTROL], *map(layout.keys_of, layout.rows)):
        whole = joined([(wanted[key], found[key]) for key in keys])
        assert whole.loss_N.tolist() == (1000 * targets.document_N + targets.place_N).tolist(), keys
        assert whole.inputs == sum(found[key].inputs for key in keys)
    computed_inputs = sum(windows.length * len(windows.start_W) for windows, _ in computed.batches)
    assert computed_inputs == inputs_of(wanted, share).total()
    # No window is computed twice. With sharing, nor is a window that is the beginning of a longer one.
    windows = [
        (int(d), int(s)) if share else (int(d), int(s), group.length)
        for group, _ in computed.batches
        for d, s in zip(group.document_W, group.start_W, strict=True)
    ]
    assert len(windows) == len(set(windows))


def test_places_that_nobody_wants_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One window for two lengths: the last two inputs of 4 and the last three of 12."""
    computed = Computed(monkeypatch)
    document_W, start_W = np.array([0]), np.array([5])
    wanted = {12: (Windows(document_W, start_W, 12, 3),), 4: (Windows(document_W, start_W, 4, 2),)}
    found = named(wanted, share=True)
    ((windows, places),) = computed.batches
    assert (windows.document_W.tolist(), windows.start_W.tolist(), windows.length) == ([0], [5], 12)
    assert places == [2, 3, 9, 10, 11]
    assert found[12].loss_N.tolist() == [15, 16, 17]
    assert found[4].loss_N.tolist() == [8, 9]


def test_cost_is_told_of_what_was_computed_and_nothing_of_what_came_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Computed(monkeypatch, seconds=0.05)
    peaks = iter([20.0, 30.0, 10.0])
    forgotten = []
    monkeypatch.setattr(window_losses, "forget_peak", forgotten.append)
    monkeypatch.setattr(window_losses, "peak_mib", lambda device: next(peaks))
    wanted = {
        8: (Windows(np.array([0, 1]), np.array([0, 0]), 8, 8), Windows(np.array([2]), np.array([0]), 8, 2)),
        4: (Windows(np.array([0]), np.array([0]), 4, 4),),
    }
    began = time.perf_counter()
    found = named(wanted, share=True)
    elapsed = time.perf_counter() - began
    # Three batches: document 0 is wanted at two lengths, document 1 at one, and of document 2 two places alone.
    assert found[8].inputs == 24
    assert 0.15 <= found[8].seconds <= elapsed
    assert found[8].peak_mib == 30.0
    assert (found[4].inputs, found[4].seconds, found[4].peak_mib) == (0, 0.0, None)
    assert forgotten == ["cpu"] * 3
    monkeypatch.setattr(window_losses, "peak_mib", lambda device: None)  # where it cannot be told
    assert named({4: wanted[4]}, share=True)[4].peak_mib is None


class Drifting:
    """Stands in for a model whose hidden states change with the window's length by so much from some place on."""

    device, vocab_size = torch.device("cpu"), 5

    def resolve(self, plan: Plan) -> Plan:
        return plan

    def __init__(self, change: float, place: int = 0, below: int = 10**6) -> None:
        self.change, self.place, self.below = change, place, below
        self.asked: list[tuple[list[int], Plan]] = []

    def hidden(self, tokens_BT: torch.Tensor, plan: Plan) -> torch.Tensor:
        self.asked.append((tokens_BT[0].tolist(), plan))
        length = tokens_BT.shape[1]
        hidden = torch.zeros(1, length, 3)
        if length < self.below:
            hidden[0, self.place, 1] = self.change * length
        return hidden


def test_prefixes_are_asked_of_every_length_and_agree_up_to_rounding() -> None:
    agreeing = Drifting(0.0)
    assert prefixes_agree(agreeing, PLAN, [8, 4, 16, 8])
    assert [(len(tokens), plan) for tokens, plan in agreeing.asked] == [(16, PLAN), (4, PLAN), (8, PLAN)]
    assert agreeing.asked[0][0] == [n % 5 for n in range(16)]
    # Between 4 and 16 they differ by 12 times the change, between 8 and 16 by 8 times.
    assert prefixes_agree(Drifting(0.9 * TOLERANCE / 12), PLAIN, [4, 16])
    assert not prefixes_agree(Drifting(1.1 * TOLERANCE / 12), PLAIN, [4, 16])
    assert not prefixes_agree(Drifting(-1.1 * TOLERANCE / 12), PLAIN, [4, 16])
    assert prefixes_agree(Drifting(1.1 * TOLERANCE / 12), PLAIN, [8, 16])
    # At place 5 a window of 4 has nothing to differ, and one of 8 has.
    assert not prefixes_agree(Drifting(1.0, place=5, below=9), PLAIN, [8, 16])
    assert not prefixes_agree(Drifting(1.0, place=3, below=5), PLAIN, [4, 8, 16])
    assert TOLERANCE == 1e-3
    alone = Drifting(1.0)
    assert prefixes_agree(alone, PLAIN, [8, 8])
    assert not alone.asked


def test_prefixes_are_asked_where_the_model_is() -> None:
    """On "meta", a device that every machine has; what comes out is the stand-in's own."""
    devices = []

    class Elsewhere(Drifting):
        device = torch.device("meta")

        def hidden(self, tokens_BT: torch.Tensor, plan: Plan) -> torch.Tensor:
            devices.append(tokens_BT.device.type)
            return torch.zeros(1, tokens_BT.shape[1], 3)

    assert prefixes_agree(Elsewhere(0.0), PLAIN, [4, 8])
    assert devices == ["meta", "meta"]
