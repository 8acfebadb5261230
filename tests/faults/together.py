"""Runs commands in several processes, as torchrun starts them, but forked from one that has imported everything.

together.py COUNT FOLDER reads a list of commands from stdin, JSON. Each is {"argv": [...]}, and may say `stop_at`, the
step at which the last process, and no other, is asked to stop. What all processes wrote to stderr is in FOLDER/err-N,
and their exit codes go to stdout, a list of lists by command.
"""

import json
import os
import socket
import sys
from pathlib import Path

import torch.nn.parallel

from extrapolate.api import evaluate, train
from extrapolate.cli import main
from extrapolate.machine import distributed
from extrapolate.training.loop import Training

LOADED = (torch, evaluate, train)
count, folder, commands = int(sys.argv[1]), Path(sys.argv[2]), json.load(sys.stdin)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def work(rank: int) -> list[int]:
    """The exit codes of the commands in this process."""
    codes = []
    wishes = Training._wishes
    for number, command in enumerate(commands):
        err = os.open(folder / f"err-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(err, 2)
        stop_at = command.get("stop_at")

        def wished(training: Training, stop_at: int | None = stop_at) -> tuple[bool, bool]:
            asked, late = wishes(training)
            return asked or (rank == count - 1 and training.step + 1 == stop_at), late

        Training._wishes = wished
        distributed._ENDED = f"end of command {number}"  # of which a process has one, and here it has several
        try:
            main(command["argv"])
        except SystemExit as ended:
            codes.append(int(ended.code or 0))
    return codes


environment = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
children = []
for rank in range(count):
    child = os.fork()
    if child == 0:
        os.environ.update({name: str(value) for name, value in (environment | {"RANK": rank}).items()})
        (folder / f"codes-{rank}").write_text(json.dumps(work(rank)))
        sys.exit(0)
    children.append(child)
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert ended == [0] * count, ended
print(json.dumps([json.loads((folder / f"codes-{rank}").read_text()) for rank in range(count)]))
