"""Classes and functions of users' own files: found, or refused with what to write; and what they raise is theirs."""

import signal
from pathlib import Path

import pytest

from extrapolate.encodings.base import encodings
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError
from extrapolate.specs import convert_arguments, parameters
from extrapolate.specs.user_files import load_function, load_user_class, mistake_of_user, of_user

USER_FILE = """
from extrapolate.encodings.base import Encoding, register
from extrapolate.encodings.rope import RoPE

class Mine(Encoding):
    def __init__(self, dims, *, size: int = 3):
        super().__init__(dims)

class NotOne:
    pass
"""


class TestUserFiles:
    @pytest.fixture
    def base(self) -> type:
        from extrapolate.encodings import base

        return base.Encoding

    @pytest.fixture
    def mine(self, tmp_path: Path) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(USER_FILE)
        return path

    def test_a_class_that_is_registered_is_known_by_its_file(self, mine: Path, tmp_path: Path, base: type) -> None:
        mine.write_text(USER_FILE.replace("class Mine", '@register("rope")\nclass Mine'))
        copy = tmp_path / "encoding.py"  # as a run keeps it
        copy.write_text(mine.read_text())
        for path in (mine, mine, copy):
            assert issubclass(load_user_class(path, "Mine", base), base)
        assert encodings["rope"] is RoPE

    def test_files_of_one_name_do_not_mix(self, mine: Path, tmp_path: Path, base: type) -> None:
        other = tmp_path / "other" / "mine.py"
        other.parent.mkdir()
        other.write_text(USER_FILE.replace("size: int = 3", "size: int = 4"))
        defaults = [parameters(load_user_class(path, "Mine", base))["size"].default for path in (mine, other, mine)]
        assert defaults == [3, 4, 3]

    @pytest.mark.parametrize("name", ["Mein", "NotOne", "Encoding", "register"])
    def test_a_class_that_is_not_there_is_refused_with_those_that_are(self, mine: Path, base: type, name: str) -> None:
        expected = "did you mean 'Mine'" if name == "Mein" else "known: Mine, RoPE"
        with pytest.raises(ValueError, match=rf"mine\.py has no Encoding called '{name}'; {expected}"):
            load_user_class(mine, name, base)

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            ("class", "SyntaxError"),
            ("import nowhere", "nowhere"),
            ("raise SystemExit(0)", "SystemExit: 0.*__main__"),
        ],
    )
    def test_a_file_that_fails_is_refused_with_its_error(
        self, tmp_path: Path, base: type, content: str, what: str
    ) -> None:
        (tmp_path / "mine.py").write_text(content)
        with pytest.raises(ValueError, match=rf"mine\.py does not import: .*{what}"):
            load_user_class(tmp_path / "mine.py", "Mine", base)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("dims, *, theta=2.5", "annotate theta, for example theta: float = 2.5"),
            ("dims, *, theta=None", "annotate theta, for example theta: float = 1.0"),
            ("dims, *, theta", "annotate theta, for example theta: float = 1.0"),
            ("dims, *, theta: float", "theta needs a default, for example theta: float = 1.0"),
            ("dims, *, size: int", "size needs a default, for example size: int = 1"),
            ("dims, theta: float = 3.0",
             r"theta must be a keyword-only argument: def __init__\(self, dims, \*, theta: float = 3.0\)"),
            ("dims, a, b=1, *, c: int = 2", "a must be a keyword-only argument"),
            ("dims, *, sizes: list[int] = ()", r"sizes cannot be list\[int\]: an argument is an int, float, bool"),
            ("dims, *, size: 'Tensor | None' = None", "annotations of Mine.__init__ cannot be read: name .Tensor."),
        ],
    )  # fmt: skip
    def test_arguments_that_are_no_configuration_are_refused(
        self, tmp_path: Path, base: type, arguments: str, message: str
    ) -> None:
        (tmp_path / "mine.py").write_text(
            "from extrapolate.encodings.base import Encoding\n"
            f"class Mine(Encoding):\n    def __init__(self, {arguments}):\n        super().__init__(dims)\n"
        )
        with pytest.raises(ValueError, match=rf"mine\.py: .*{message}"):
            load_user_class(tmp_path / "mine.py", "Mine", base)

    def test_annotations_may_be_strings_and_classes_data_classes(self, tmp_path: Path, base: type) -> None:
        # Both look their module up by name, as does pickle.
        (tmp_path / "mine.py").write_text(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "from extrapolate.encodings.base import Encoding\n"
            "@dataclass\n"
            "class Settings:\n"
            "    size: int = 3\n"
            "class Mine(Encoding):\n"
            "    def __init__(self, dims, *, size: int | None = None):\n"
            "        super().__init__(dims)\n"
        )
        cls = load_user_class(tmp_path / "mine.py", "Mine", base)
        assert convert_arguments(cls, {"size": "7"}, "mine") == {"size": 7}


class TestUsersCode:
    """Whatever a user's own code raises is an error with the file's name; Ctrl-C stops the program all the same."""

    @pytest.mark.parametrize("error", [SystemExit(0), RecursionError("deep")])
    def test_what_it_raises_becomes_what_the_caller_says(self, error: BaseException) -> None:
        def call() -> None:
            raise error

        with pytest.raises(UserError, match=f"my.py: {type(error).__name__}"):
            of_user(call, lambda raised: UserError(f"my.py: {type(raised).__name__}"))
        with pytest.raises(type(error)):
            of_user(call, lambda raised: raised)

    def test_ctrl_c_stops_the_program(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            of_user(lambda: signal.raise_signal(signal.SIGINT), lambda raised: UserError("not this"))

    @pytest.mark.parametrize("error", ["SystemExit(0)", "KeyError('x')", "RuntimeError('sizes do not fit')"])
    def test_an_error_at_run_time_names_the_file_and_the_line(self, tmp_path: Path, error: str) -> None:
        (tmp_path / "mine.py").write_text(f"def load():\n    raise {error}\n")
        load = load_function(tmp_path / "mine.py", "load")
        with pytest.raises(BaseException) as raised:  # noqa: PT011
            load()
        expected = f"{tmp_path}/mine.py: load failed: {type(raised.value).__name__}: {raised.value}, in line 2"
        assert str(mistake_of_user(raised.value)) == expected

    @pytest.mark.parametrize("error", [SystemExit(0), KeyError("x"), UserError("no"), OSError(28, "No space left")])
    def test_other_errors_are_not_the_users(self, error: BaseException) -> None:
        with pytest.raises(type(error)):
            raise error
        assert mistake_of_user(error) is None
