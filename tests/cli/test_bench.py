"""`bench`: which options go together, a column for busy programs, and one table of everything."""

import pytest

from extrapolate.benchmark import everything, startup, tokenizing
from extrapolate.benchmark.startup import FLOOR, Program

TINY = ["--seq-len", "8", "--no-compile", "--seconds", "0.1"]
LITTLE = ["--preset", "tiny", *TINY, "--tokens", "2048", "--protocol", "sliding", "--precision", "fp32"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--encodings", "--tokenize"], "give one of --encodings and --tokenize"),
        (["--all", "--start-up"], "give one of --start-up and --all"),
        (["--evaluation", "--seconds", "1"], "--seconds says nothing about --evaluation; give it for training or"),
        (["--tokenize", "--preset", "tiny"], "--preset says nothing about --tokenize"),
        (["--encodings", "--busy", "1"], "--busy says nothing about --encodings"),
        (["--encodings", "--compile"], "--compile says nothing about --encodings"),
        (["--pe", "alibi"], "--pe says nothing about training; give it with --encodings, or leave it out"),
        (["--markdown"], "--markdown says nothing about training; give it with --all"),
        (["--all", "--preset", "huge"], "unknown preset 'huge'"),
        (["--all", "--source", "nowhere"], "nowhere"),
        (["--all", "--tokens", "5"], "--tokens 5 holds no window"),
        (["--all", "--protocol", "window"], "unknown protocol 'window'"),
    ],
)
def test_wrong_options_are_refused_at_once(cli, arguments, said):
    ended = cli("bench", *arguments)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert not ended.out


def test_help_has_a_section_for_each_kind(cli):
    shown = cli("bench", "--help").succeeded().out
    titles = [line.rstrip(":") for line in shown.splitlines() if line and line[0] != " "][1:]
    assert titles == [
        "What to measure (default: training)", "How to measure", "With --evaluation or --all",
        "With --tokenize or --all", "With --encodings", "With --all", "Options",
    ]  # fmt: skip


@pytest.mark.usefixtures("quick_measurements")
def test_training_beside_a_busy_program_has_a_column(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "tokens/s beside 1 busy" in cli("bench", *TINY, "--busy", "1").succeeded().out


@pytest.fixture
def few_programs(monkeypatch):
    """Start-up is that of Python and of this program's help."""
    monkeypatch.setattr(startup, "programs", lambda: [FLOOR, Program("extrapolate", ("--help",))])


@pytest.mark.usefixtures("quick_measurements", "few_programs")
def test_a_part_that_fails_leaves_the_others(cli, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tokenizing, "measure", fails)
    ended = cli("bench", "--all", *LITTLE, "--markdown")
    assert ended.code == 1
    assert "part 3 of 4: tokenising" in ended.err
    assert ended.err.splitlines()[-1].startswith("Error: not everything could be measured: tokenising (No space left")
    header, _, *rows = [line.split(" | ") for line in ended.out.splitlines() if line.startswith("|")]
    assert "beside 1 busy" in header
    whats = [row[0].removeprefix("| ") for row in rows]
    assert list(dict.fromkeys(whats)) == ["training tiny, tokens/s", "evaluation tiny, tokens/s", "start-up, s"]
    place = header.index("beside 1 busy")
    assert all(float(row[place].replace(",", "")) > 0 for row in rows)


def test_a_stop_prints_what_there_is(cli, monkeypatch):
    def parts(settings):
        def stopped():
            yield everything.Row("training tiny", "extrapolate", "fp32 eager", 1234.5, "tokens/s", 0.51, 0.98)
            raise KeyboardInterrupt

        return {"training tiny": stopped, "start-up": lambda: pytest.fail("stopped is stopped")}

    monkeypatch.setattr(everything, "parts", parts)
    ended = cli("bench", "--all", "--busy", "0")
    assert ended.code == 130
    assert "1,234" in ended.out
    assert "beside" not in ended.out
