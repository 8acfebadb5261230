"""Runs commands in children of a process that has imported everything: a hundred of them in the time of ten.

A line of JSON on stdin, {"cwd": ..., "argv": [...]}, starts one. Its process id is answered at once; it stops itself
until it gets SIGCONT, so that it can be traced from its first system call. Its exit code is answered at its end,
negative for the signal that ended it. What it prints is in the files `out` and `err` that the line names.
"""

import json
import os
import signal
import sys
import time

import jinja2
import matplotlib.backends.backend_agg
import matplotlib.backends.backend_svg
import matplotlib.pyplot
import torch._dynamo

from extrapolate.api import evaluate, rows, tokenize, train
from extrapolate.cli import main, render
from extrapolate.reports.sections.base import in_order

LOADED = (jinja2, matplotlib, torch, evaluate, rows, tokenize, train, render)


def run(job: dict[str, object]) -> int:
    """In the child: the command, once the parent lets it go on."""
    os.chdir(str(job["cwd"]))
    for descriptor, name in ((1, "out"), (2, "err")):
        opened = os.open(str(job[name]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGSTOP)
    if job.get("clock"):  # jumps back and forth, a year and more
        true, jumps = time.time, iter(range(10**9))
        time.time = lambda: true() + (-1) ** next(jumps) * 4e7
    try:
        main([str(argument) for argument in job["argv"]])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return 0


if __name__ == "__main__":
    in_order()  # imports the sections of reports
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = run(json.loads(line))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
