"""Variables of the environment as defaults, the version, completion, and the sections of help."""

import re
import shlex
import sysconfig
import tomllib
from pathlib import Path

import pytest
import typer

from extrapolate import __version__
from extrapolate.cli.commands import app
from extrapolate.machine.examination import DEVELOPERS
from extrapolate.runs.run import Run

ROOT = Path(__file__).parent.parent.parent
SCRIPT = [str(Path(sysconfig.get_path("scripts")) / "extrapolate")]


@pytest.fixture(scope="module")
def without_data(tiny: list[str]) -> list[str]:
    """The flags of a tiny run, but for its token store."""
    assert tiny[0] == "--data"
    return tiny[2:]


def test_the_page_has_every_variable_with_its_flag_and_commands() -> None:
    group = typer.main.get_group(app)
    found: dict[tuple[str, str], list[str]] = {}
    for name, command in group.commands.items():
        for option in command.params:
            if option.envvar:
                found.setdefault((option.envvar, option.opts[0]), []).append(name)
                assert option.show_envvar
                assert option.envvar == f"EXTRAPOLATE_{option.opts[0].removeprefix('--').upper()}"
    page = (ROOT / "docs" / "setting-up.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(EXTRAPOLATE_\w+)` \| `(--\w+)` \| (.*) \|$", page, re.MULTILINE)
    assert {(variable, flag): re.findall(r"`([\w-]+)`", commands) for variable, flag, commands in rows} == found


def test_a_variable_is_a_default_and_a_flag_wins(cli, monkeypatch, without_data, store, tmp_path) -> None:
    monkeypatch.setenv("EXTRAPOLATE_DATA", str(store))
    cli("train", "--pe", "rope", *without_data, "--resume", "--out", "run").succeeded()  # there is none yet
    assert Run.open(tmp_path / "run").config.data.path == str(store)
    monkeypatch.setenv("EXTRAPOLATE_DATA", "nowhere")
    assert "nowhere is not a token store" in cli("train", "--pe", "none", *without_data).error()
    cli("train", "--pe", "none", *without_data, "--data", store, "--out", "other").succeeded()
    monkeypatch.setenv("EXTRAPOLATE_DEVICE", "tpu")
    ended = cli("train", "--pe", "rope", *without_data[:-3])
    assert ended.code == 2
    assert "EXTRAPOLATE_DEVICE" in ended.err


def test_what_a_run_or_a_file_says_is_not_changed_by_a_variable(cli, monkeypatch, ckpt, store, tmp_path) -> None:
    monkeypatch.setenv("EXTRAPOLATE_DATA", "nowhere")
    monkeypatch.setenv("EXTRAPOLATE_DEVICE", "cuda")
    cli("train", "--resume", "--out", ckpt / "rope").succeeded()
    cli("train", "--from", ckpt / "rope", "--tokens", 512, "--out", "further").succeeded()
    assert Run.open(tmp_path / "further").config.data.path == str(store)
    cli("train", "--config", ckpt / "rope" / "config.json", "--seed", 3, "--out", "again").succeeded()
    assert Run.open(tmp_path / "again").config.training.device == "cpu"


def test_the_version(cli) -> None:
    assert cli("--version").succeeded().out == f"extrapolate {__version__}\n"


def test_completion_is_shown_and_installed_and_completes(process, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    shown = process("--show-completion", "bash", program=SCRIPT).succeeded().out
    assert "_EXTRAPOLATE_COMPLETE=complete_bash" in shown
    process("--install-completion", "bash", program=SCRIPT).succeeded()
    assert "_EXTRAPOLATE_COMPLETE" in (tmp_path / ".bash_completions" / "extrapolate.sh").read_text()
    monkeypatch.setenv("_EXTRAPOLATE_COMPLETE", "complete_bash")
    asked = {"extrapolate eval": "eval-lengths", "extrapolate train --device c": "cuda"}
    for line, expected in asked.items():
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert expected in process(program=SCRIPT).succeeded().out.split()


def test_help_has_sections_and_every_option_in_one(cli) -> None:
    shown = cli("eval-lengths", "--help").succeeded().out
    found = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert found == ["Arguments", "What to evaluate", "Text", "Runs", "Machine", "Options"]
    options = typer.main.get_group(app).commands["eval-lengths"].params
    listed = re.findall(r"^  (--[\w-]+)", shown, re.MULTILINE)
    assert sorted(listed) == sorted([o.opts[0] for o in options if o.param_type_name == "option"] + ["--help"])


def test_the_commands_of_the_page_are_ones() -> None:
    """What they do is tested elsewhere; here, that there are such commands with such options."""
    text = (ROOT / "docs" / "setting-up.md").read_text(encoding="utf-8")
    lines = re.findall(r"^extrapolate (?!--)(.*)$", text, re.MULTILINE)
    assert len(lines) >= 4
    assert any("--tracker" in line for line in lines)
    group = typer.main.get_group(app)
    for line in lines:
        name, *arguments = shlex.split(line)
        assert group.commands[name].make_context(name, arguments).params


def test_the_page_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "setting-up.md").read_text(encoding="utf-8")
    table = page.partition("| extra |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE))
    assert project["optional-dependencies"].keys() - DEVELOPERS == listed
