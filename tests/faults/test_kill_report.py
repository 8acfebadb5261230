"""kill -9 of a report at the moments that matter: the old one is whole, or the new one."""

import signal
import sys

# Kills itself before the n-th call of a function of `os`, in a report whose pictures are quickly made.
KILLED_AT_CALL = """
import os, signal, sys
from pathlib import Path
from extrapolate import files
from extrapolate.cli import main
from extrapolate.reports import plots
name, left = sys.argv.pop(1), int(sys.argv.pop(1))
call = getattr(os, name)
def killing(*arguments, **named):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*arguments, **named)
setattr(os, name, killing)
plots.save = lambda figure, path: files.write_text(path, "new")
main()
"""


def test_killed_the_old_report_is_whole_and_the_next_one_too(
    process, cli, evaluated, contents, without_pictures, tmp_path
) -> None:
    program = [sys.executable, "-c", KILLED_AT_CALL]
    cli("report", evaluated, "--out", "whole").succeeded()
    (tmp_path / "made").mkdir()
    for path in (tmp_path / "whole").iterdir():
        (tmp_path / "made" / path.name).write_text("old")
    old = contents(tmp_path / "made")
    # While it writes; and between the old report's rename and the new one's.
    for name, nth, kept in (("fsync", 9, "made"), ("rename", 2, ".made.previous.partial")):
        assert process(name, nth, "report", evaluated, "--out", "made", program=program).code == -signal.SIGKILL
        assert contents(tmp_path / kept) == old
        assert (tmp_path / ".made.partial").is_dir()
    cli("report", evaluated, "--out", "made").succeeded()
    assert contents(tmp_path / "made") == contents(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "made"}
