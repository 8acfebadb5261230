"""How long the program takes to answer, beside Python itself and programs that use the same libraries.

The programs take turns, and the first turn is not counted: it reads the files from the disk.
"""

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from extrapolate.benchmark import busy, peers

ROUNDS = 5


@dataclass(frozen=True)
class Program:
    """What is started: `who` with these arguments, by this Python."""

    who: str
    arguments: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The arguments, in words."""
        return " ".join(argument for argument in self.arguments if argument != "-c")

    @property
    def command(self) -> list[str]:
        """As the system starts it."""
        module = {"extrapolate": ["-m", "extrapolate"], "lm-eval": ["-m", "lm_eval"]}
        return [sys.executable, *module.get(self.who, []), *self.arguments]


@dataclass(frozen=True)
class Start:
    """Seconds from the start to the end of a program, in the order of the rounds; and beside busy programs."""

    seconds: list[float]
    busy_seconds: list[float]

    @property
    def median(self) -> float:
        """Of the quiet rounds."""
        return statistics.median(self.seconds)

    @property
    def busy_median(self) -> float | None:
        """None where nothing was measured beside busy programs."""
        return statistics.median(self.busy_seconds) if self.busy_seconds else None

    def times_as_fast_as(self, other: "Start") -> float:
        """The median over the rounds."""
        return statistics.median(theirs / own for own, theirs in zip(self.seconds, other.seconds, strict=True))


FLOOR = Program("python", ("-c", "pass"))
SMALLEST = Program("extrapolate", ("encodings",))  # the least that needs torch: it lists what is registered
TORCH = Program("python", ("-c", "import torch"))
WITH_TORCH = (SMALLEST, TORCH)


def programs() -> list[Program]:
    """What is compared: this program, Python alone, and the peers that are installed."""
    helps = [("--help",), ("train", "--help"), ("report", "--help")]
    found = [FLOOR, *(Program("extrapolate", arguments) for arguments in helps), SMALLEST, TORCH]
    there = peers.installed()
    if there["transformers"]:
        found.append(Program("python", ("-c", "import transformers")))
    if there["lm_eval"]:
        found.append(Program("lm-eval", ("--help",)))
    return found


def measure(chosen: list[Program], rounds: int = ROUNDS, beside: int = 0) -> dict[Program, Start]:
    """Starts each program so many times, in turns; and again as often beside so many busy programs.

    Raises RuntimeError where one of them fails.
    """
    for program in chosen:
        _seconds(program)
    quiet = [[_seconds(program) for program in chosen] for _ in range(rounds)]
    with busy.programs(beside):
        loud = [[_seconds(program) for program in chosen] for _ in range(rounds if beside else 0)]
    return {
        program: Start([turn[place] for turn in quiet], [turn[place] for turn in loud])
        for place, program in enumerate(chosen)
    }


def _seconds(program: Program) -> float:
    began = time.perf_counter()
    ended = subprocess.run(program.command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:]
        raise RuntimeError(f"`{' '.join(program.command)}` ended with {ended.returncode}: {' '.join(last)}")
    return seconds
