"""What is computed and what it is told to cost, with losses that name their targets."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.evaluation import window_losses
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.window_losses import TOLERANCE, Measured, inputs_of, measure, prefixes_agree

L = 4
MODEL = SimpleNamespace(device=torch.device("cpu"))
PLAN = Plan(position_scale=0.5)


class Computed:
    """Stands in for the model's losses: that of a target is 1000 times its document and its place, and is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> None:
        self.batches: list[tuple[Windows, list[int]]] = []
        self.seconds = seconds
        monkeypatch.setattr(window_losses, "losses_at", self.losses_at)

    def losses_at(
        self,
        model: Any,
        split: Any,
        windows: Windows,
        places_P: np.ndarray,
        plan: Plan,
        *,
        precision: str,
        progress: Any,
    ) -> np.ndarray:
        assert (model, split, plan, precision) == (MODEL, "split", PLAN, "bf16")
        assert (np.diff(places_P) > 0).all()
        time.sleep(self.seconds)
        self.batches.append((windows, places_P.tolist()))
        progress(windows.length * len(windows.start_W))
        return 1000.0 * windows.document_W[:, None] + windows.start_W[:, None] + places_P + 1


def measured(wanted: dict[int, tuple[Windows, ...]], share: bool) -> tuple[dict[int, Measured], list[int]]:
    told: list[int] = []
    found = measure(MODEL, "split", wanted, PLAN, precision="bf16", share=share, progress=told.append)
    return found, told


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("protocol", protocols.names())
def test_every_target_has_its_own_loss(protocol: str, share: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = Computed(monkeypatch)
    layout = protocols[protocol]().layout(np.array([50, 9, 23]), L, [L, 2 * L, 4 * L], 1000)
    wanted = layout.by_key()
    found, told = measured(wanted, share)
    targets = Targets.of(layout.control, SimpleNamespace(bytes=np.ones(3), lengths=np.ones(3)), None)
    for key in wanted:
        assert found[key].loss_N.tolist() == (1000 * targets.document_N + targets.place_N).tolist(), key
    inputs = sum(windows.length * len(windows.start_W) for windows, _ in computed.batches)
    assert sum(one.inputs for one in found.values()) == inputs
    assert sum(told) == inputs == inputs_of(wanted, share)
    # No window is computed twice: with sharing none that another begins with, whatever their lengths.
    windows = [
        (int(d), int(s)) if share else (int(d), int(s), group.length)
        for group, _ in computed.batches
        for d, s in zip(group.document_W, group.start_W, strict=True)
    ]
    assert len(windows) == len(set(windows))


def test_places_that_nobody_wants_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One window for two lengths: the last two inputs of 4 and the last three of 12."""
    computed = Computed(monkeypatch)
    wanted = {
        12: (Windows(np.array([0]), np.array([5]), 12, 3),),
        4: (Windows(np.array([0]), np.array([5]), 4, 2),),
    }
    found, _ = measured(wanted, share=True)
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
    found, _ = measured(wanted, share=True)
    elapsed = time.perf_counter() - began
    # Three batches: document 0 is wanted at two lengths, document 1 at one, and of document 2 two places alone.
    assert found[8].inputs == 24
    assert 0.15 <= found[8].seconds <= elapsed
    assert found[8].peak_mib == 30.0
    assert (found[4].inputs, found[4].seconds, found[4].peak_mib) == (0, 0.0, None)
    assert forgotten == ["cpu"] * 3


def test_where_memory_cannot_be_told_there_is_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    Computed(monkeypatch)
    monkeypatch.setattr(window_losses, "peak_mib", lambda device: None)
    found, _ = measured({4: (Windows(np.array([0]), np.array([0]), 4, 4),)}, share=True)
    assert found[4].peak_mib is None
    assert found[4].inputs == 4


class Drifting:
    """Stands in for a model whose hidden states change with the window's length by so much from some place on."""

    device, vocab_size = torch.device("cpu"), 5

    def setting(self, plan: Plan) -> Plan:
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


def test_one_length_has_nothing_to_agree_with() -> None:
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
