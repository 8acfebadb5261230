import os
import subprocess
import sys

import pytest

from extrapolate.machine.limits import SPINS, wait_briefly


def test_a_setting_is_made_where_there_is_none() -> None:
    environment: dict[str, str] = {}
    wait_briefly(environment)
    assert environment == ({"GOMP_SPINCOUNT": SPINS} if sys.platform == "linux" else {})


@pytest.mark.parametrize("own", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}])
def test_a_users_own_setting_stays(own: dict[str, str]) -> None:
    environment = dict(own)
    wait_briefly(environment)
    assert environment == own


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another library")
def test_the_command_line_makes_it_before_torch_is_loaded() -> None:
    code = """
import os, sys
from extrapolate import cli
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Seen())
cli.main(["train", "--pe", "rope", "--seq-len", "8", "--data", "/nowhere"])
"""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, env=environment).stdout.strip() == SPINS
