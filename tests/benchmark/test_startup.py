"""Programs are started as the user starts them, quiet and beside busy ones."""

import pytest

from extrapolate.benchmark import startup
from extrapolate.benchmark.startup import FLOOR, SMALLEST, TORCH, Program, Start


def test_each_is_started_in_every_round() -> None:
    ours = Program("extrapolate", ("--help",))
    starts = startup.measure([FLOOR, ours], rounds=2, beside=1)
    assert list(starts) == [FLOOR, ours]
    for start in starts.values():
        assert len(start.seconds) == len(start.busy_seconds) == 2
        assert start.busy_median is not None
    assert starts[ours].times_as_fast_as(starts[FLOOR]) < 1


def test_without_busy_programs_there_is_no_such_figure() -> None:
    assert Start([1.0, 3.0, 2.0], []).busy_median is None
    assert Start([1.0, 3.0, 2.0], []).median == 2.0


def test_what_is_compared() -> None:
    chosen = startup.programs()
    assert chosen[0] == FLOOR
    assert {SMALLEST, TORCH} <= set(chosen)
    assert [p.shown for p in chosen if p.who == "extrapolate"] == [
        "--help",
        "train --help",
        "report --help",
        "encodings",
    ]


def test_a_program_that_fails_is_said() -> None:
    with pytest.raises(RuntimeError, match=r"`.* -c raise SystemExit\('no'\)` ended with 1: no"):
        startup.measure([Program("python", ("-c", "raise SystemExit('no')"))], rounds=1)
