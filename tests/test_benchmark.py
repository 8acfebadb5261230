"""What `bench` measures, and how its table and JSON show it."""

import pytest

from extrapolate import benchmark
from extrapolate.benchmark import BesideRoPE, Speed, Variant
from extrapolate.cli import bench as shown
from extrapolate.errors import UserError

TINY = ["--seq-len", "8", "--no-compile", "--seconds", "0.1"]
FLOOR = Variant("floor", "fp32")


def test_a_group_is_one_mode_and_the_floor(small_bench) -> None:
    groups = benchmark.groups(small_bench(), compiled=True)
    assert len(groups) == 4
    for group in groups:
        assert [variant.who for variant in group] == ["extrapolate", "floor"]
        assert group[1].precision == group[0].precision
    with_dropout = benchmark.groups(small_bench(0.1), compiled=False)
    assert [[v.dropout for v in group if v.who == "extrapolate"] for group in with_dropout] == [[False], [True]] * 2


@pytest.mark.usefixtures("quick_measurements")
def test_variants_take_turns_and_have_as_many_steps(small_bench) -> None:
    speeds = benchmark.measure_training(small_bench(), [Variant("extrapolate", "fp32"), FLOOR], 0.01)
    assert len({len(speed.seconds) for speed in speeds.values()}) == 1
    assert all(len(speed.seconds) >= benchmark.LEAST_ROUNDS for speed in speeds.values())
    assert all(speed.taken is None or 0 <= speed.taken <= 1 for speed in speeds.values())


@pytest.mark.usefixtures("quick_measurements")
def test_encodings_take_turns_with_rope_in_every_mode_that_they_reach(monkeypatch) -> None:
    monkeypatch.setattr(benchmark, "BATCH_TOKENS", 64)
    found = dict(benchmark.measure_encodings(["rope", "learned"], "tiny", 4, 0.01))
    assert [*found["rope"]] == ["1x fp32", "16x fp32", "eager"]
    assert [*found["learned"]] == ["1x fp32", "eager"]
    for beside in (beside for modes in found.values() for beside in modes.values()):
        assert len(beside.own.seconds) == len(beside.rope.seconds) >= benchmark.LEAST_ROUNDS
        assert beside.own.tokens == beside.rope.tokens
    with pytest.raises(UserError, match="unknown encoding 'rop'"):
        next(benchmark.measure_encodings(["rope", "rop"], "tiny", 4, 0.01))


def test_a_ratio_is_of_the_same_rounds() -> None:
    """The machine was ten times as slow in one round: that changes the median step, and no ratio."""
    ours, theirs = Speed([1.0, 10.0, 1.0], 100, 0.0, None), Speed([2.0, 20.0, 2.0], 100, 0.0, None)
    assert ours.times_as_fast_as(theirs) == 2.0
    assert ours.tokens_per_s == 100


def test_on_a_busy_machine_ratios_are_not_shown() -> None:
    quiet, busy = Speed([1.0], 10, 1.0, 0.01), Speed([2.0], 10, 1.0, 0.3)
    assert shown.row_of(Variant("extrapolate", "fp32"), quiet, quiet, with_dropout=False)["of floor"] == "1.00"
    assert shown.row_of(Variant("extrapolate", "fp32"), quiet, busy, with_dropout=False)["of floor"] == "n/a"
    row = shown.row_of(FLOOR, busy, busy, with_dropout=False)
    assert (row["of floor"], row["taken by others"]) == ("n/a", "30%")
    found = shown.json_of_training("tiny", FLOOR, busy, busy)
    assert (found["of_floor"], found["disturbed"]) == (None, True)


def test_json_has_the_ratio_to_the_floor_or_to_rope() -> None:
    ours = Variant("extrapolate", "bf16", compiled=True, dropout=True)
    found = shown.json_of_training("tiny", ours, Speed([1.0], 10, 1.0, 0.0), Speed([0.5], 10, 1.0, 0.0))
    assert (found["mode"], found["tokens_per_s"], found["of_floor"]) == ("bf16 compiled dropout", 10, 0.5)
    rope = Speed([1.0, 10.0, 1.0], 100, 70.0, 0.0)
    learned = {
        "1x fp32": BesideRoPE(Speed([0.5, 5.0, 0.5], 100, 50.0, 0.0), rope),  # it does not reach 16x
        "eager": BesideRoPE(Speed([2.0, 20.0, 2.0], 100, 80.0, 0.3), rope),
    }
    evaluated, trained = shown.json_of_encoding("tiny", "learned", learned)
    assert (evaluated["what"], evaluated["mode"], evaluated["of_rope"]) == ("evaluation tiny", "1x fp32", 2.0)
    assert (evaluated["tokens_per_s"], evaluated["peak_mib"], evaluated["disturbed"]) == (200, 50.0, False)
    assert (trained["what"], trained["mode"], trained["of_rope"]) == ("training tiny", "eager", None)
    assert trained["disturbed"], "others took too much of the time"


@pytest.mark.usefixtures("quick_measurements")
def test_the_table_has_a_row_for_each_mode(cli, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = cli("bench", *TINY).succeeded().out.splitlines()
    assert [line.split()[:2] for line in lines if " fp32 " in line or " bf16 " in line] == [
        [who, precision] for precision in ("fp32", "bf16") for who in ("extrapolate", "floor")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pe", "alibi"], "--pe needs --encodings"),
        (["--preset", "huge"], "unknown preset 'huge'"),
        (["--encodings", "--pe", "alibbi"], "did you mean 'alibi'"),
    ],
)
def test_wrong_options_are_refused_at_once(cli, arguments, said) -> None:
    assert said in cli("bench", *arguments).error()
