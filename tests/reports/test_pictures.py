"""A `matplotlibrc` changes no picture, and none is read from the current folder."""

import subprocess
import sys
from pathlib import Path

from extrapolate.reports.plots import own_settings
from extrapolate.reports.protocol_picture import svg

SCRIPT = "import sys; from extrapolate.reports.protocol_picture import svg; sys.stdout.write(svg('windows'))"


def test_a_matplotlibrc_in_the_current_folder_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.hashsalt: other\naxes.grid: True")
    ended = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert ended.stdout == svg("windows")


def test_the_settings_of_a_program_that_draws_too_come_back() -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30.0}):
        with own_settings():
            assert mpl.rcParams["font.size"] == 10
        assert mpl.rcParams["font.size"] == 30
