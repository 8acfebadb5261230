"""The share of the machine that each of several jobs has."""

import pytest

from extrapolate.studies import worker
from extrapolate.studies.worker import Share, core_shares


@pytest.mark.parametrize(
    ("quota", "threads"), [(8, [3, 3, 2]), (4, [2, 1, 1]), (3, [1, 1, 1])]
)  # 8 cores, of whose time a control group may give fewer
def test_jobs_have_no_more_threads_together_than_the_quota_keeps_busy(
    monkeypatch: pytest.MonkeyPatch, quota: int, threads: list[int]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(worker, "cores", lambda: quota)
    places = [(0, 3, 6), (1, 4, 7), (2, 5)]
    assert core_shares(3) == [Share(own, number) for own, number in zip(places, threads, strict=True)]
