"""`name:key=value,...` <-> objects: parsing, types, suggestions, and classes in the user's own files."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extrapolate.errors import UserError
from extrapolate.specs import (
    Parameter,
    Registry,
    Spec,
    convert_arguments,
    did_you_mean,
    load_function,
    load_user_class,
    mistake_of_user,
    of_user,
    parameters,
    parse,
    split_outside_parentheses,
)


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "name", "arguments"),
        [
            ("rope", "rope", {}),
            ("rope:", "rope", {}),
            ("  rope : theta = 500 , pairing=half ", "rope", {"theta": "500", "pairing": "half"}),
            ("expe:start=-1e-3", "expe", {"start": "-1e-3"}),
            ("random:base=(rope:theta=500),max=2048", "random", {"base": "rope:theta=500", "max": "2048"}),
            ("a:x=(b:y=(c:z=1,w=2),v=3),u=4", "a", {"x": "b:y=(c:z=1,w=2),v=3", "u": "4"}),
            ("mine.py:Mine", "mine.py:Mine", {}),
            ("some/path/mine.py:Mine:size=3,base=(rope:theta=5)", "some/path/mine.py:Mine",
             {"size": "3", "base": "rope:theta=5"}),
        ],
    )  # fmt: skip
    def test_forms(self, text: str, name: str, arguments: dict[str, str]) -> None:
        assert parse(text) == Spec(name, arguments)

    @pytest.mark.parametrize(
        ("text", "name", "arguments"),
        [
            ("random:base=(mine.py:Mine),max=20", "random", {"base": "mine.py:Mine", "max": "20"}),
            ("random:base=(mine.py:Mine:size=3),max=20", "random", {"base": "mine.py:Mine:size=3", "max": "20"}),
            ("a.py:A:base=(b.py:B)", "a.py:A", {"base": "b.py:B"}),
            ("a.py:A:base=(b.py:B:size=2)", "a.py:A", {"base": "b.py:B:size=2"}),
        ],
    )
    def test_users_classes_inside_parentheses(self, text: str, name: str, arguments: dict[str, str]) -> None:
        assert parse(text) == Spec(name, arguments)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "names nothing: expected name:key=value"),
            (":theta=1", "names nothing"),
            ("rope:500", "'500' in 'rope:500' is not an argument: expected key=value"),
            ("rope:theta=", "'theta=' in .* is not an argument"),
            ("rope:=5", "'=5' in .* is not an argument"),
            ("rope:theta=1,theta=2", "'theta' is given twice"),
            ("random:base=(rope", "parentheses of .* do not match"),
            ("random:base=rope)", "parentheses of .* do not match"),
            ("random:base=)rope(", "parentheses of .* do not match"),
        ],
    )
    def test_what_is_no_spec_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse(text)

    @given(
        st.recursive(
            st.from_regex(r"[a-z0-9.+-]{1,6}", fullmatch=True),
            lambda inner: st.tuples(
                st.from_regex(r"[a-z]{1,5}", fullmatch=True),
                st.dictionaries(st.from_regex(r"[a-z_]{1,5}", fullmatch=True), inner, min_size=1, max_size=3),
            ),
            max_leaves=12,
        )
    )
    def test_nested_specs_come_back(self, tree: Any) -> None:
        def spell(node: Any) -> str:
            if isinstance(node, str):
                return node
            name, children = node
            values = {k: v if isinstance(v, str) else f"({spell(v)})" for k, v in children.items()}
            return f"{name}:{','.join(f'{k}={v}' for k, v in values.items())}"

        def check(node: Any, text: str) -> None:
            if isinstance(node, str):
                assert text == node
                return
            spec = parse(text)
            assert spec.name == node[0]
            assert set(spec.arguments) == set(node[1])
            for key, child in node[1].items():
                check(child, spec.arguments[key])

        check(tree, spell(tree))

    def test_splitting_heeds_parentheses(self) -> None:
        assert split_outside_parentheses("a,(b,(c,d)),,e", ",") == ["a", "(b,(c,d))", "e"]


class TestSuggestions:
    def test_something_near_is_suggested(self) -> None:
        assert did_you_mean("rpoe", ["alibi", "rope", "expe"]) == "did you mean 'rope'?"

    def test_else_everything_known_is_listed(self) -> None:
        assert did_you_mean("zzz", ["rope", "alibi"]) == "known: alibi, rope"
        assert did_you_mean("zzz", []) == "known: none"


class Base:
    """What user classes derive from here."""

    def __init__(self, dims: int) -> None:
        self.dims = dims


class Everything(Base):
    def __init__(
        self,
        dims: int,
        *,
        count: int = 1,
        rate: float = 0.5,
        causal: bool = True,
        size: int | None = None,
        name: str = "",
        base: str | None = None,
        kind: Literal["half", "interleaved"] = "half",
        power: Literal[1, 2] = 1,
    ) -> None:
        super().__init__(dims)


class TestTypes:
    @pytest.mark.parametrize(
        ("argument", "value", "expected"),
        [
            ("count", "12", 12),
            ("count", -3, -3),
            ("rate", "1e-3", 0.001),
            ("rate", "2", 2.0),
            ("rate", 2, 2.0),
            ("causal", "true", True),
            ("causal", "False", False),
            ("causal", False, False),
            ("size", "8", 8),
            ("size", "none", None),
            ("size", "None", None),
            ("size", None, None),
            ("name", "abc", "abc"),
            ("base", "rope", "rope"),
            ("base", None, None),
            ("kind", "interleaved", "interleaved"),
            ("power", 2, 2),
            ("power", "2", 2),
        ],
    )
    def test_text_and_json_become_the_annotated_type(self, argument: str, value: object, expected: object) -> None:
        converted = convert_arguments(Everything, {argument: value}, "all")[argument]
        assert converted == expected
        assert type(converted) is type(expected)

    @pytest.mark.parametrize(
        ("argument", "value", "wanted"),
        [
            ("count", "1.5", "whole number"),
            ("count", 1.5, "whole number"),
            ("count", "many", "whole number"),
            ("count", True, "whole number"),
            ("count", None, "whole number"),
            ("rate", "fast", "finite number"),
            ("rate", True, "finite number"),
            ("causal", "yes", "true or false"),
            ("causal", 1, "true or false"),
            ("size", "big", "whole number"),
            ("kind", "third", "half.*interleaved"),
            ("power", "3", "1.*2"),
        ],
    )
    def test_another_type_is_refused_with_the_one_wanted(self, argument: str, value: object, wanted: str) -> None:
        with pytest.raises(ValueError, match=f"all: {argument}={value} is not .*{wanted}"):
            convert_arguments(Everything, {argument: value}, "all")

    def test_an_unknown_argument_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(ValueError, match="all has no argument 'rtae'; did you mean 'rate'"):
            convert_arguments(Everything, {"rtae": 1}, "all")
        with pytest.raises(ValueError, match="plain has no argument 'x'; known: none"):
            convert_arguments(Base, {"x": 1}, "plain")

    def test_positional_arguments_are_no_configuration(self) -> None:
        assert "dims" not in parameters(Everything)
        assert parameters(Everything)["rate"] == Parameter("rate", float, 0.5)

    @given(st.integers(-(2**53), 2**53) | st.floats(-3.4e38, 3.4e38) | st.booleans())
    def test_what_is_printed_is_read_back(self, value: float) -> None:
        # What a run's folder is called can be typed again.
        assert Parameter("x", type(value), None).convert(str(value), "all") == value


class TestRegistry:
    def test_classes_are_found_by_name(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("one")(Base)
        registry.register("all")(Everything)
        assert registry["all"] is Everything
        assert registry.names() == ["all", "one"]

    def test_an_unknown_name_is_refused_with_a_suggestion(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("rope")(Base)
        with pytest.raises(ValueError, match="unknown encoding 'ropes'; did you mean 'rope'"):
            registry["ropes"]

    def test_a_name_is_taken_once(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("rope")(Base)
        with pytest.raises(ValueError, match="two encodings are called 'rope'"):
            registry.register("rope")(Everything)


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

    def test_a_class_is_loaded(self, mine: Path, base: type) -> None:
        cls = load_user_class(mine, "Mine", base)
        assert issubclass(cls, base)
        assert parameters(cls)["size"].convert("7", "mine") == 7

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

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path, base: type) -> None:
        with pytest.raises(ValueError, match=r"absent\.py: no such file"):
            load_user_class(tmp_path / "absent.py", "Mine", base)

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            ("1 / 0", "ZeroDivisionError"),
            ("class", "SyntaxError"),
            ("import nowhere", "nowhere"),
            ("import sys; sys.exit()", "SystemExit: .*__main__"),
            ("raise SystemExit(0)", "SystemExit: 0.*__main__"),
            ("raise KeyboardInterrupt", "KeyboardInterrupt"),
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


class TestHostileText:
    """Each of these once ended in an error of Python's own, in minutes of work, or in a value that nobody meant."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("rope:theta=" + "1" * 20_000, "has 20,011 characters: a spec has at most 10,000"),
            ("random:base=" + "(" * 5_000, "more than 20 parentheses in one another"),
            ("random:base=(" * 40 + "rope" + ")" * 40, "more than 20 parentheses in one another"),
            ("ro\0pe", "holds a zero byte"),
            ("a\0b.py:Mine", "holds a zero byte"),
            (":" * 9_000, "names nothing"),
            ("rope:" + "x" * 9_000, "is not an argument: expected key=value"),
        ],
    )
    def test_texts_that_are_no_specs_are_refused_in_one_line(self, text: str, words: str) -> None:
        with pytest.raises(UserError, match=re.escape(words)) as refused:
            parse(text)
        assert len(str(refused.value)) < 400

    def test_an_unknown_name_is_not_told_whole(self) -> None:
        with pytest.raises(UserError) as refused:
            Registry("encoding")["x" * 9_000]
        assert len(str(refused.value)) < 200

    @pytest.mark.parametrize("value", ["1_000", "0x10", "١٢", "１２", "1e3", "nan", "", "-", [1], {"a": 1}, 3.0, True])
    def test_what_only_looks_like_a_whole_number_is_refused(self, value: Any) -> None:
        with pytest.raises(UserError, match="is not a whole number"):
            Parameter("count", int, 1).convert(value, "all")

    @pytest.mark.parametrize("value", ["1_0.5", "１.5", "nan", "inf", "-inf", "1e999", "1" + "0" * 400])
    def test_what_only_looks_like_a_number_is_refused(self, value: str) -> None:
        with pytest.raises(UserError, match="is not a finite number") as refused:
            Parameter("theta", float, 1.0).convert(value, "all")
        assert len(str(refused.value)) < 200

    @pytest.mark.parametrize("value", [10**400, 10**5000, [1.0], False], ids=lambda value: type(value).__name__)
    def test_what_json_has_in_place_of_a_number_is_refused(self, value: Any) -> None:
        with pytest.raises(UserError, match="is not a finite number") as refused:
            Parameter("theta", float, 1.0).convert(value, "all")
        assert len(str(refused.value)) < 200

    @pytest.mark.parametrize("value", [10**24, "1" + "0" * 24, -(10**24), 2**53 + 1])
    def test_a_whole_number_that_no_float_can_be_is_refused(self, value: Any) -> None:
        with pytest.raises(UserError, match="all: group must be at most 9007199254740992, not"):
            Parameter("group", int | None, None).convert(value, "all")
        assert Parameter("group", int, 1).convert(2**53, "all") == 2**53

    @pytest.mark.parametrize("value", ["1e39", -1e308])
    def test_a_number_that_float32_does_not_have_is_refused(self, value: Any) -> None:
        with pytest.raises(UserError, match=r"all: bias must be at most 3\.4e\+38, not"):
            Parameter("bias", float, 0.0).convert(value, "all")

    def test_minus_zero_is_zero(self) -> None:
        assert str(Parameter("p", float, 1.0).convert("-0", "all")) == "0.0"

    def test_text_is_text_alone(self) -> None:
        with pytest.raises(UserError, match="base=a list is not text"):
            Parameter("base", str, "rope").convert([["rope"]], "all")


class TestUsersCode:
    """Whatever a user's own code raises is an error with the file's name; Ctrl-C stops the program all the same."""

    @pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), RecursionError("deep")])
    def test_what_it_raises_becomes_what_the_caller_says(self, error: BaseException) -> None:
        def call() -> None:
            raise error

        with pytest.raises(UserError, match=f"my.py: {type(error).__name__}"):
            of_user(call, lambda raised: UserError(f"my.py: {type(raised).__name__}"))
        with pytest.raises(type(error)):
            of_user(call, lambda raised: raised)

    def test_ctrl_c_is_told_apart_from_a_keyboard_interrupt_of_the_code(self) -> None:
        before = signal.getsignal(signal.SIGINT)

        def call() -> None:
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            of_user(call, lambda raised: UserError("not this"))
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(KeyboardInterrupt):
            of_user(lambda: of_user(call, lambda raised: UserError("not this")), lambda raised: UserError("nor this"))
        assert signal.getsignal(signal.SIGINT) is before

    def test_in_another_thread_it_is_called_all_the_same(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(of_user, lambda: 3, lambda raised: raised).result() == 3

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
