"""Rows of known targets, by hand: sums, means, what is missing, and where documents' rows begin."""

import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from extrapolate.evaluation.rows import BLOCK_FACTOR, Scores
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.window_losses import Measured

SPLIT = SimpleNamespace(ids=["one", "other"])


def scores_of(seq_len: int, optimum: bool = True) -> Scores:
    """Windows of 2 L, all of them scored: of one document at 0, 3 L and 20 L, and of another at 1."""
    rng = np.random.default_rng(seq_len)
    starts = [(0, 0), (0, 3 * seq_len), (0, 20 * seq_len), (1, 1)]
    targets = [(document, start + i + 1, i) for document, start in starts for i in range(2 * seq_len)]
    document_N, place_N, index_N = np.array(sorted(targets)).T
    count = len(targets)
    bytes_N = rng.integers(1, 9, count).astype(float)
    control_N, optimum_N = rng.uniform(1, 3, (2, count))
    window_N = np.repeat(np.arange(len(starts)), 2 * seq_len)
    known = Targets(document_N, place_N, bytes_N), control_N, index_N, window_N
    return Scores(*known, optimum_N if optimum else None)


def measured_of(scores: Scores, inputs: int = 600) -> Measured:
    loss_N = np.random.default_rng(1).uniform(1, 3, len(scores.control_N)).astype(np.float32)
    return Measured(loss_N, inputs, 1.5, 77.25)


def test_a_row_has_the_means_over_targets_and_what_was_measured() -> None:
    scores = scores_of(4)
    measured = measured_of(scores)
    row = scores.row({"run": "r", "factor": 2.0}, measured)
    total = sum(float(loss) for loss in measured.loss_N)
    n_bytes = sum(scores.targets.bytes_N)
    assert (row["run"], row["factor"]) == ("r", 2.0)
    assert row["loss"] == pytest.approx(total / 32)
    assert row["perplexity"] == pytest.approx(math.exp(total / 32))
    assert row["bits_per_byte"] == pytest.approx(total / math.log(2) / n_bytes)
    assert row["control_loss"] == pytest.approx(sum(scores.control_N) / 32)
    assert row["optimum_loss"] == pytest.approx(sum(scores.optimum_N) / 32)
    assert (row["n_targets"], row["n_documents"], row["n_bytes"]) == (32, 2, n_bytes)
    assert row["tokens_per_s"] == 400
    assert row["peak_mib"] == 77.25
    assert row["evaluated_at"].utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - row["evaluated_at"]) < timedelta(minutes=1)


def test_without_a_measurement_the_control_and_the_counts_are_still_there() -> None:
    row = scores_of(4, optimum=False).row({}, None)
    for name in ("loss", "perplexity", "bits_per_byte", "optimum_loss", "tokens_per_s", "peak_mib"):
        assert row[name] is None, name
    assert row["control_loss"] == pytest.approx(scores_of(4).control_N.mean())
    assert row["n_targets"] == 32


def test_windows_that_came_with_longer_ones_have_no_speed() -> None:
    scores = scores_of(4)
    assert scores.row({}, measured_of(scores, inputs=0))["tokens_per_s"] is None
    assert scores.row({}, measured_of(scores, inputs=0))["loss"] is not None


def test_targets_that_stand_for_no_text_have_no_bits_per_byte() -> None:
    scores = scores_of(4)
    empty = Scores(
        Targets(scores.targets.document_N, scores.targets.place_N, np.zeros(32)), scores.control_N, scores.index_N,
        scores.window_N, None,
    )  # fmt: skip
    row = empty.row({}, measured_of(scores))
    assert row["bits_per_byte"] is None
    assert row["loss"] is not None


def test_a_perplexity_beyond_the_largest_number_is_infinite() -> None:
    scores = scores_of(4)
    row = scores.row({}, Measured(np.full(32, 800.0), 1, 1.0, None))
    assert row["perplexity"] == math.inf
    assert row["loss"] == 800


@pytest.mark.parametrize("optimum", [True, False])
@pytest.mark.parametrize("seq_len", [1, 4, 5])
def test_documents_rows_are_sums_over_stretches_and_buckets(seq_len: int, optimum: bool) -> None:
    """A target at a time: stretches of 16 L by where its window begins, buckets of L/2 by its place in that."""
    scores = scores_of(seq_len, optimum)
    measured = measured_of(scores)
    width = max(1, seq_len // 2)
    expected = defaultdict(list)
    for n, (document, place, index) in enumerate(
        zip(scores.targets.document_N, scores.targets.place_N, scores.index_N, strict=True)
    ):
        start = place - 1 - index  # an input before its target
        expected[SPLIT.ids[document], start // (16 * seq_len), index // width * width].append(n)
    setting = {"run": "r", "seq_len": seq_len, "factor": 2.0}
    rows = scores.document_rows(setting, measured, SPLIT)
    assert BLOCK_FACTOR == 16
    assert {block for _, block, _ in expected} == {0, 1}
    assert len(rows) == len(expected)
    for row in rows:
        chosen = expected.pop((row["document"], row["block"], row["position"]))
        assert (row["run"], row["factor"], row["n_targets"]) == ("r", 2.0, len(chosen))
        assert "seq_len" not in row  # a column of the other table
        assert row["loss"] == pytest.approx(measured.loss_N[chosen].mean())
        assert row["control_loss"] == pytest.approx(scores.control_N[chosen].mean())
        assert row["n_bytes"] == scores.targets.bytes_N[chosen].sum()
        assert ("optimum_loss" in row) == optimum
        if optimum:
            assert row["optimum_loss"] == pytest.approx(scores.optimum_N[chosen].mean())
    assert not expected


def test_a_window_that_crosses_a_stretchs_end_is_of_the_one_that_it_begins_in() -> None:
    """With all of its targets; and the next stretch has the window that begins at its first token."""
    seq_len, starts = 4, (62, 64)
    index_N = np.tile(np.arange(8), 2)
    place_N = np.repeat(starts, 8) + index_N + 1
    targets = Targets(np.zeros(16, np.int64), place_N, np.ones(16))
    scores = Scores(targets, np.ones(16), index_N, np.repeat([0, 1], 8), None)
    rows = scores.document_rows({"seq_len": seq_len}, None, SPLIT)
    blocks = [(row["block"], row["position"], row["n_targets"]) for row in rows]
    assert blocks == [(block, position, 2) for block in (0, 1) for position in (0, 2, 4, 6)]


def test_documents_rows_without_a_measurement_have_no_loss() -> None:
    rows = scores_of(4).document_rows({"seq_len": 4}, None, SPLIT)
    assert all("loss" not in row and row["control_loss"] > 0 for row in rows)
