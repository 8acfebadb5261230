"""How the program ends where a command does not succeed: one line, which moves no cursor, and an exit code."""

import os
import signal
import sys
import time

import pytest

from extrapolate.cli.ending import BROKEN_PIPE, FAILED, LONGEST, STOPPED, message, what_to_say
from extrapolate.errors import UserError
from extrapolate.terminal import escape_unprintable

# Runs the program, and sends it a signal as soon as it has imported a module.
STOPPED_AT_IMPORT = """
import builtins, os, sys
name, number = sys.argv.pop(1), int(sys.argv.pop(1))
real = builtins.__import__
def importing(module, *arguments, **named):
    if module == name:
        builtins.__import__ = real
        os.kill(os.getpid(), number)
    return real(module, *arguments, **named)
builtins.__import__ = importing
from extrapolate.cli import main
main()
"""

TOKENIZE = ["tokenize", "corpus", "--out", "store", "--vocab-size", 300, "--min-heldout-tokens", 300]


class TestMessages:
    def test_what_cannot_be_printed_is_shown_as_text(self):
        assert (
            escape_unprintable("a\x1b[31m\r\n\x9b\u202e\ud800\xa0é中") == "a\\x1b[31m\\r\\n\\x9b\\u202e\\ud800\\xa0é中"
        )

    def test_a_message_is_one_line_and_not_too_long(self):
        assert message("two\n\n lines\x1b") == "two lines\\x1b"
        cut = message("start " + "x" * 100_000 + " end")
        assert len(cut) <= LONGEST + len(" ... ")
        assert cut.startswith("start xx")
        assert cut.endswith("xx end")
        assert what_to_say(UserError("`seq_len=" + "[" * 100_000 + "`"))[0].startswith("--seq-len [[[")
        assert what_to_say(UserError("out of memory it would be"))[0] == "out of memory it would be"

    def test_a_command_shows_what_it_was_given_as_text(self, cli):
        for arguments in (["check", "\x1b[2Jrope[red]\n" + "x" * 100_000], ["train", "--x\x1b[31m\ny"]):
            ended = cli(*arguments)
            assert ended.code == 2
            assert "\x1b" not in ended.err
            assert "\\x1b[" in ended.err
            assert max(map(len, ended.err.splitlines())) < 1100


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 7.28 TiB for an array with shape (1000,)"), " for 7.28 TiB more"),
        (
            RuntimeError("can't allocate memory: you tried to allocate 4000 bytes. Error code 12"),
            " for 4000 bytes more",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"), " for 20.00 GiB more"),
        (OSError(12, "Cannot allocate memory"), ""),
    ],
)
def test_too_little_memory_is_one_line_that_says_what_to_do(error, size):
    said, code = what_to_say(error)
    assert said.startswith(f"not enough memory{size}: try a smaller batch")
    assert code == FAILED


class TestStop:
    @pytest.mark.parametrize(
        ("module", "command", "number"),
        [
            ("typer", "train", signal.SIGINT),
            ("pandas", "report", signal.SIGTERM),
        ],
    )
    def test_while_importing(self, start, tmp_path, module, command, number):
        program = [sys.executable, "-c", STOPPED_AT_IMPORT, module, str(int(number))]
        began = start(command, "ckpt", program=program)
        out, err = began.communicate(timeout=60)
        assert (began.returncode, out) == (STOPPED, "")
        assert err == "Error: stopped\n"

    def test_a_report_says_what_is_kept(self, cli, evaluated, monkeypatch, tmp_path):
        def stop(*arguments):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

        monkeypatch.setattr("extrapolate.reports.write.lay_out", stop)
        ended = cli("report", evaluated)
        assert ended.code == STOPPED
        assert ended.err == "Error: stopped; report is as it was\n"
        assert not list(tmp_path.iterdir())


class TestOutput:
    def test_who_reads_it_has_gone(self, start):
        began = start("columns", bufsize=0)
        began.stdout.close()
        assert began.wait(timeout=60) == BROKEN_PIPE
        assert began.stderr.read() == ""

    def test_a_full_disk(self, start):
        with open("/dev/full", "w") as full:
            began = start("columns", stdout=full)
            _, err = began.communicate(timeout=60)
        assert began.returncode == FAILED
        assert err == "Error: No space left on device; free some space and run the command again\n"

    @pytest.mark.parametrize(
        ("closed", "arguments", "code"),
        [
            ("2>&-", ["report", "nosuch"], 2),
            (">&- 2>&- <&-", TOKENIZE, 0),
        ],
    )
    def test_closed_streams_change_neither_work_nor_exit_code(self, start, corpus, tmp_path, closed, arguments, code):
        """As cron and services start programs."""
        (tmp_path / "corpus").symlink_to(corpus)
        began = start(
            *arguments, program=["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "extrapolate"]
        )
        out, err = began.communicate(timeout=60)
        assert (began.returncode, out, err) == (code, "", "")
        assert (tmp_path / "store/manifest.json").exists() == (arguments[0] == "tokenize")

    def test_an_encoding_without_a_character_gets_its_number(self, start):
        began = start("encodings", "rope", env=os.environ | {"PYTHONIOENCODING": "ascii"})
        out, err = began.communicate(timeout=60)
        assert (began.returncode, err) == (0, "")
        assert out.startswith(r"rope \xb7 RoPE \xb7 rotary")
