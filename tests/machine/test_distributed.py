"""What a cluster's environment says of other processes, and what commands make of it."""

import os
import sys

import pytest

from extrapolate.machine.distributed import world_size
from extrapolate.studies.worker import perform_all

LEFT = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}  # where nobody answers
IMPATIENT = """
from extrapolate.machine import distributed
distributed.LONGEST_WAIT_S, distributed.QUIET_WAIT_S = 1.5, 0.3
from extrapolate.cli import main
main()
"""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that a cluster leaves in a pod."""
    for name, value in LEFT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("left")
def test_commands_that_never_share_work_print(cli) -> None:
    assert "yarn" in cli("extensions").succeeded().out
    assert world_size() == 1  # for child processes, such as those of a sweep


@pytest.mark.usefixtures("left")
def test_so_do_errors_and_help_before_the_processes_meet(cli) -> None:
    assert cli("train", "--help").succeeded().out.startswith("Usage: ")
    assert "No such option: --nosuch" in cli("train", "--nosuch").err
    assert world_size() == 2


@pytest.mark.usefixtures("left")
def test_a_task_of_a_study_is_done_by_one_process() -> None:
    perform_all([])
    assert world_size() == 1


@pytest.mark.parametrize("size", ["", "two", "1"])
@pytest.mark.usefixtures("left")
def test_other_sizes_are_of_one_process(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    assert world_size() == 1


def test_a_training_says_what_it_waits_for_and_how_long(start, store) -> None:
    arguments = ["train", "--pe", "rope", "--seq-len", 16, "--data", store]
    began = start(*arguments, program=[sys.executable, "-c", IMPATIENT], env=os.environ | LEFT)
    out, err = began.communicate(timeout=60)
    assert (began.returncode, out) == (1, "")
    alone = "to run in this process alone, unset RANK and WORLD_SIZE"
    assert f"waiting up to 0.025 min for the other process of WORLD_SIZE at 127.0.0.1:1; {alone}\n" in err
    assert err.splitlines()[-1].startswith("Error: the other process of WORLD_SIZE at 127.0.0.1:1 did not come (")
