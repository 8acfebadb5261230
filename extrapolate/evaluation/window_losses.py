"""The losses of windows of several lengths under one plan, each window computed once.

The first N tokens of a window are also the window of N tokens that starts there, so one pass over the longest window
gives the losses of both. That needs a causal model that ignores the length, which `prefixes_agree` tests.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from extrapolate.data.store import Split
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.losses import OnBatch, target_losses
from extrapolate.evaluation.memory import ShrinkOnOOM
from extrapolate.evaluation.protocols.base import Key, Windows, targets_of
from extrapolate.evaluation.targets import in_order
from extrapolate.machine.memory import forget_peak, peak_mib
from extrapolate.model.causality import may_leak
from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import is_users

TOLERANCE = 1e-3  # of normalised hidden states in float32; rounding is a hundredth of it

Inputs = Counter[tuple[int, int]]  # tokens, by the length of their windows and how many targets these have at the end


@dataclass
class Measured:
    """The loss of every target, nats, in the order of `Targets`, and the cost of computing it.

    inputs and seconds count only windows that were computed at this length, not those that came with a longer one.
    """

    loss_N: np.ndarray
    inputs: int
    seconds: float
    peak_mib: float | None


def joined(parts: Sequence[tuple[tuple[Windows, ...], Measured]]) -> Measured:
    """Joins the measurements of one or more parts of some windows."""
    if len(parts) == 1:
        return parts[0][1]
    flat = np.concatenate([places[order] for places, order in (targets_of(groups) for groups, _ in parts)])
    loss_N = np.concatenate([measured.loss_N for _, measured in parts])[np.lexsort((flat[:, 1], flat[:, 0]))]
    inputs, seconds = sum(measured.inputs for _, measured in parts), sum(measured.seconds for _, measured in parts)
    return Measured(loss_N, inputs, seconds, max(measured.peak_mib or 0.0 for _, measured in parts) or None)


@dataclass
class _Job:
    """A window to compute, and who takes losses from it: (key, group, row) with the first place and the end."""

    key: Key
    length: int
    document: int
    start: int
    bos: int | None
    takers: list[tuple[Key, int, int, int, int]] = field(default_factory=list)


@torch.inference_mode()
def prefixes_agree(model: LanguageModel, plan: Plan, lengths: Sequence[int]) -> bool:
    """Whether the first tokens of the longest window give the same states as shorter windows; lengths in tokens.

    Our own encodings see how long a window is through the positions that they give its tokens, which is tested for each
    of them. For other code, compares one window of each length in float32, and raises OutOfMemoryError if they do not
    fit into memory.
    """
    *shorter, longest = sorted(set(lengths))
    if not shorter:
        return True
    parts = (plan, *(part for _, part in plan.only))
    if not may_leak(model) and all(part.pairs is None or not is_users(type(part.pairs)) for part in parts):
        positions, index_T = model.encoding.positions, torch.arange(longest, dtype=torch.float32)
        return all(torch.equal(positions(index_T)[:length], positions(index_T[:length])) for length in shorter)
    tokens_BT = torch.arange(longest, device=model.device)[None] % model.vocab_size

    def agree(windows: int, setting: Any) -> bool:
        whole_BTD = model.hidden(tokens_BT, setting)
        return all(
            float((whole_BTD[:, :length] - model.hidden(tokens_BT[:, :length], setting)).abs().max()) < TOLERANCE
            for length in shorter
        )

    return ShrinkOnOOM(longest, 1, model.resolve(plan)).enough_for(agree)


def measure(
    model: LanguageModel,
    split: Split,
    wanted: Mapping[Key, tuple[Windows, ...]],
    plan: Plan,
    *,
    precision: str,
    share: bool,
    progress: OnBatch,
) -> dict[Key, Measured]:
    """The losses of the windows of every key under one plan.

    With `share`, windows that start at the same place are computed once, at their longest length. `progress` is called
    after every batch. Raises OutOfMemoryError if a window does not fit into memory.
    """
    jobs = _jobs(wanted, share)
    losses = {key: [np.empty((len(g.start_W), g.scored), np.float32) for g in groups] for key, groups in wanted.items()}
    inputs, seconds, peak = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0.0), dict.fromkeys(wanted, 0.0)
    device = model.device.type
    batches: dict[tuple[Key, int, int | None, frozenset[tuple[int, int]]], list[_Job]] = {}
    for job in jobs:
        stretches = frozenset((first, end) for *_, first, end in job.takers)
        batches.setdefault((job.key, job.length, job.bos, stretches), []).append(job)
    for (key, length, bos, stretches), batch in batches.items():
        places_P = np.unique(np.concatenate([np.arange(first, end) for first, end in stretches]))
        windows = Windows(
            np.array([job.document for job in batch]), np.array([job.start for job in batch]), length, length, bos
        )
        forget_peak(device)
        began = time.perf_counter()
        found_BP = target_losses(model, split, windows, plan, places_P=places_P, precision=precision, progress=progress)
        inputs[key] += length * len(batch)
        seconds[key] += time.perf_counter() - began
        peak[key] = max(peak[key], peak_mib(device) or 0.0)
        for found_P, job in zip(found_BP, batch, strict=True):
            for taker, group, row, first, end in job.takers:
                column = int(np.searchsorted(places_P, first))
                losses[taker][group][row] = found_P[column : column + end - first]
    return {
        key: Measured(in_order(groups, losses[key]), inputs[key], seconds[key], peak[key] or None)
        for key, groups in wanted.items()
    }


def inputs_of(wanted: Mapping[Key, tuple[Windows, ...]], share: bool) -> Inputs:
    """How many inputs `measure` computes."""
    found: Inputs = Counter()
    for job in _jobs(wanted, share):
        found[job.length, job.length - min(first for *_, first, _ in job.takers)] += job.length
    return found


def _jobs(wanted: Mapping[Key, tuple[Windows, ...]], share: bool) -> list[_Job]:
    """The longest windows first; with `share`, shorter ones with the same start take their losses from them."""
    groups = [(key, number, group) for key, groups in wanted.items() for number, group in enumerate(groups)]
    jobs: dict[tuple[int | None, ...], _Job] = {}
    for key, number, group in sorted(groups, key=lambda entry: -entry[2].length):
        first = group.length - group.scored
        places = zip(group.document_W.tolist(), group.start_W.tolist(), strict=True)
        for row, (document, start) in enumerate(places):
            window = (document, start, group.bos) if share else (document, start, group.bos, group.length)
            job = jobs.setdefault(window, _Job(key, group.length, document, start, group.bos))
            job.takers.append((key, number, row, first, group.length))
    return list(jobs.values())
