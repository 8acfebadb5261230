"""Worker processes: a stop while they start, and the death of their parent."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from extrapolate.machine.children import Child, reply


def serve(connection: Connection) -> None:
    """The work of a process that never starts it, because its module takes long to import."""


def test_one_that_is_stopped_while_it_starts_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "slow_start.py").write_text(f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(serve, "__module__", "slow_start")
    with Child(serve, "the process") as child:
        end = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.01)
        child.interrupt()
        child.wait()
    assert begun.exists()
    assert capfd.readouterr().err == ""


# A process that starts another one like the program does, prints its id, and waits.
STARTS = {
    "child": "from extrapolate.machine.children import Child\n"
    "from test_children import compute\n"
    "with Child(compute, 'the process') as child:\n"
    "    print(child.receive(), flush=True)\n"
    "    child.receive()\n",
    "measurement": "import os\n"
    "from extrapolate.machine.children import worker\n"
    "from test_children import for_ever\n"
    "with worker() as pool:\n"
    "    print(pool.submit(os.getpid).result(), flush=True)\n"
    "    pool.submit(for_ever).result()\n",
}


def for_ever() -> None:
    """Work that looks at nothing else."""
    while True:
        sum(range(10_000))


def compute(connection: Connection) -> None:
    """The same in a Child."""
    reply(connection, os.getpid())
    for_ever()


@pytest.mark.parametrize("how", STARTS)
def test_its_end_is_that_of_who_started_it_also_by_a_kill(how: str) -> None:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    command = [sys.executable, "-c", STARTS[how]]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        end = time.monotonic() + 20
        while there(child) and time.monotonic() < end:
            time.sleep(0.05)
        assert not there(child)
    finally:
        parent.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def there(process: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
