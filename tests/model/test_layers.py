"""An encoding by its name: registered, or a class in a file of the user's own."""

from pathlib import Path

import pytest

from extrapolate.encodings.rope import RoPE
from extrapolate.model.model import find

SOURCE = """
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"

class Nameless(Encoding):
    pass
"""


@pytest.fixture(params=["mine.py", "a folder: with marks/mine.py"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    path.write_text(SOURCE)
    return path


def test_a_registered_name() -> None:
    assert find("rope") is RoPE
    with pytest.raises(ValueError, match="did you mean 'rope'"):
        find("ropee")


def test_a_class_in_a_file(file: Path) -> None:
    assert find(f"{file}:Mine").display == "Mine"


def test_a_class_without_a_name_in_tables_is_refused(file: Path) -> None:
    with pytest.raises(ValueError, match=r'Nameless has no display, .* write display = "Nameless"'):
        find(f"{file}:Nameless")


def test_a_file_alone_is_refused(file: Path) -> None:
    with pytest.raises(ValueError, match=r"mine\.py is a file: name the class in it too, .*mine\.py:MyEncoding"):
        find(str(file))


def test_a_class_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(ValueError, match="Other"):
        find(f"{file}:Other")
