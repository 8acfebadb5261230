"""The least loss that is possible on text from a synthetic source, window by window."""

from collections.abc import Sequence

import numpy as np

from extrapolate.data.sources.synthetic import PREFIX
from extrapolate.data.store import Split, Store
from extrapolate.data.synthetic.base import Process, parse_process
from extrapolate.evaluation.protocols.base import Windows
from extrapolate.evaluation.targets import in_order

AT_ONCE = 2**20  # tokens


def process_of(store: Store) -> Process | None:
    """The process that a store's text was drawn from, if it was."""
    source = store.manifest["source"]
    return parse_process(source.removeprefix(PREFIX)) if source.startswith(PREFIX) else None


def optimal_losses(process: Process, split: Split, groups: Sequence[Windows]) -> np.ndarray:
    """The loss of the best prediction of each target from its own window, nats, in the order of `Targets`."""
    return in_order(groups, [_of_group(process, split, group) for group in groups])


def _of_group(process: Process, split: Split, group: Windows) -> np.ndarray:
    size = max(1, AT_ONCE // group.length)
    parts = []
    for row in range(0, len(group.start_W), size):
        tokens_WT = group.tokens(split, slice(row, row + size))
        parts.append(process.optimum(tokens_WT.astype(np.int64))[:, -group.scored :])
    return np.concatenate(parts)
