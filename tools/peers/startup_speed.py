"""How long the program takes to answer, beside Python itself and programs that use the same libraries.

The programs take turns, and the first turn is not counted: it reads the files from the disk.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import busy

OURS = [["-m", "extrapolate", *words.split()] for words in ("--help", "train --help", "report --help", "encodings")]
FLOOR, TORCH, SMALLEST = ["-c", "pass"], ["-c", "import torch"], OURS[-1]  # `encodings` is the least that needs torch
PROGRAMS = [FLOOR, *OURS, TORCH, ["-c", "import transformers"], ["-m", "lm_eval", "--help"]]


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """A row for each program. The floor is Python alone; the peer of what needs torch is Python that imports it."""
    for program in PROGRAMS:
        seconds_of(program)
    quiet = rounds(options.rounds)
    with busy.programs(options.busy):
        loud = rounds(options.rounds if options.busy else 0)
    for place, program in enumerate(PROGRAMS):
        with_torch = program in (SMALLEST, TORCH)
        yield {
            "what": "start-up, s",
            "who": "python" if program[0] == "-c" else program[1],
            "mode": " ".join(program[1 if program[0] == "-c" else 2 :]),
            "speed": statistics.median(turn[place] for turn in quiet),
            "of floor": times_as_fast(quiet, place, PROGRAMS.index(FLOOR)),
            "of the peer": times_as_fast(quiet, place, PROGRAMS.index(TORCH)) if with_torch else None,
            f"beside {options.busy} busy": statistics.median(turn[place] for turn in loud) if loud else None,
        }


def rounds(count: int) -> list[list[float]]:
    """The seconds of each program, round by round."""
    return [[seconds_of(program) for program in PROGRAMS] for _ in range(count)]


def times_as_fast(turns: list[list[float]], own: int, other: int) -> float:
    """The median ratio over the rounds."""
    return statistics.median(turn[other] / turn[own] for turn in turns)


def seconds_of(program: list[str]) -> float:
    """How long a program takes from its start to its end. Raises CalledProcessError if it fails."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *program], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - began
