"""Whether text holds enough long documents for an interval."""

from collections.abc import Iterable

import numpy as np

from extrapolate.statistics.intervals import FEWEST


def too_short(document_lengths: np.ndarray, lengths: Iterable[int], stretch: int) -> str | None:
    """Says at which evaluation length documents are too few for an interval, the shortest of these; None if at none.

    document_lengths and lengths: tokens. stretch: the tokens that are resampled together if documents are few, 16 L.
    """
    for length in sorted(lengths):
        clusters_D = np.where(document_lengths > length, (document_lengths - 1 - length) // stretch + 1, 0)
        if clusters_D.sum() < FEWEST:
            count = np.count_nonzero(clusters_D)
            enough = f"{count} {'document is' if count == 1 else 'documents are'} long enough"
            return f"at {length:,} tokens {enough}; fewer than {FEWEST} give no interval: use longer text"
    return None
