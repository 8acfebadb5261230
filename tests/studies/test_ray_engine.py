"""A study on a real Ray cluster."""

import functools
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.studies.status import status_of

AXES = '[axes]\nencoding = ["rope"]\n'


@pytest.fixture
def no_cluster_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray finds no cluster on this machine, though somebody else may run one."""
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "_cached_find_gcs_addresses", functools.cache(set))
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: None)


@pytest.mark.usefixtures("no_cluster_here")
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1", "127.0.0.1:99999", "nonsense", "ray://127.0.0.1:1"])
def test_no_cluster_at_an_address(small, address: str) -> None:
    with pytest.raises(UserError, match=f"there is no Ray cluster at `address={address}`"):
        xt.sweep(small(AXES), "out", engine="ray", address=address)


def test_a_cluster_does_a_study(small, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    Path("pandas.py").write_text("raise RuntimeError('from the current folder')")  # a stranger's study may be beside it
    done = xt.sweep(small(AXES), "out", engine="ray")
    assert not done.failed
    assert {one.cell: one.status for one in status_of(Path("out"))} == {"rope-s0": "done"}
    assert xt.load("out/runs/rope-s0").trained.data.path == str(store.resolve())
    assert not list(Path("out/runs").rglob("*.partial"))
