"""The lowest possible loss on text from a synthetic source, window by window."""

from collections.abc import Callable, Sequence

import numpy as np

from extrapolate.data.sources.synthetic import PREFIX
from extrapolate.data.store import Split, Store
from extrapolate.data.synthetic.base import Process, parse_process
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.evaluation.targets import in_order

AT_ONCE = 2**20  # tokens


def process_of(store: Store) -> Process | None:
    """The process that a store's text was drawn from, if any."""
    source = store.manifest["source"]
    return parse_process(source.removeprefix(PREFIX)) if source.startswith(PREFIX) else None


def optimal_losses(process: Process, split: Split, groups: Sequence[Windows]) -> np.ndarray:
    """The loss of the best prediction of each target from its own window, nats, in the order of `Targets`."""
    return in_chunks(groups, split, lambda tokens_WT: process.optimum(tokens_WT.astype(np.int64)))


def in_chunks(groups: Sequence[Windows], split: Split, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What `values` makes of the tokens of some windows, [W, T], for every target, in the order of `Targets`."""
    found = []
    for group in groups:
        size = max(1, AT_ONCE // group.length)
        rows = range(0, len(group.start_W), size)
        parts = [values(group.tokens(split, slice(row, row + size)))[:, -group.scored :] for row in rows]
        found.append(np.concatenate(parts))
    return in_order(groups, found)
