"""`name:key=value,...` <-> objects: parsing, types, suggestions, and classes in the user's own files."""

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
            ("random:base=(mine.py:Mine:size=3),max=20", "random", {"base": "mine.py:Mine:size=3", "max": "20"}),
            ("a.py:A:base=(b.py:B)", "a.py:A", {"base": "b.py:B"}),
        ],
    )  # fmt: skip
    def test_forms(self, text: str, name: str, arguments: dict[str, str]) -> None:
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
            ("rope:theta=" + "1" * 20_000, "has 20,011 characters: a spec has at most 10,000"),
            ("random:base=" + "(" * 5_000, "more than 20 parentheses in one another"),
            ("random:base=(" * 40 + "rope" + ")" * 40, "more than 20 parentheses in one another"),
            ("ro\0pe", "contains a NUL byte"),
            (":" * 9_000, "names nothing"),
            ("rope:" + "x" * 9_000, "is not an argument: expected key=value"),
        ],
        ids=lambda value: value[:20],
    )
    def test_what_is_no_spec_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(UserError, match=message) as refused:
            parse(text)
        assert len(str(refused.value)) < 400

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

    def test_of_hundreds_of_names_it_lists_the_nearest(self) -> None:
        known = [f"mmlu_{number}" for number in range(300)] + ["nosy", "such", "nock_5", "chess", "nous"]
        said = did_you_mean("xx-nosuch-xx", known)
        assert said.startswith("of 305 names the nearest are ")
        assert len(said.split(", ")) == 5
        assert "such" in said


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

    @given(st.integers(-(2**53), 2**53) | st.floats(-3.4e38, 3.4e38) | st.booleans())
    def test_what_is_printed_is_read_back(self, value: float) -> None:
        # What a run's folder is called can be typed again.
        assert Parameter("x", type(value), None).convert(str(value), "all") == value


class TestRegistry:
    @pytest.fixture(autouse=True)
    def of_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for cls in (Base, Everything):
            monkeypatch.setattr(cls, "__module__", "extrapolate.encodings.test")

    def test_an_unknown_name_is_refused_with_a_suggestion(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("rope")(Base)
        with pytest.raises(ValueError, match="unknown encoding 'ropes'; did you mean 'rope'"):
            registry["ropes"]
        with pytest.raises(UserError) as refused:
            registry["x" * 9_000]
        assert len(str(refused.value)) < 200
        with pytest.raises(UserError, match=r"'b=2' is an argument, and no encoding: .* as in \(name:a=1,b=2\)"):
            registry["b=2"]

    def test_a_name_is_taken_once(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("rope")(Base)
        with pytest.raises(ValueError, match="two encodings are called 'rope'"):
            registry.register("rope")(Everything)

    def test_a_class_that_is_defined_again_takes_its_place(self) -> None:
        registry: Registry[Base] = Registry("encoding")
        registry.register("rope")(Base)
        again = type("Base", (), {"__module__": Base.__module__})
        assert registry.register("rope")(again) is again
        assert registry["rope"] is again

    def test_a_class_of_a_user_has_no_name(self) -> None:
        """By its name alone, results of an edited class would be taken for those of the class before."""
        registry: Registry[Base] = Registry("encoding")
        own = type("Mine", (Base,), {"__module__": "__main__"})
        assert registry.register("mine")(own) is own
        assert registry.names() == []
        with pytest.raises(UserError, match="'mine' is your own encoding: give the class itself, Mine, or its file"):
            registry["mine"]


class TestNumbers:
    """What only looks like a number, or is none that a model can compute with."""

    @pytest.mark.parametrize(
        ("wanted", "kind", "values"),
        [
            ("whole", int, ["1_000", "0x10", "١٢", "１２", "1e3", "nan", "", "-", [1], {"a": 1}, 3.0, True]),
            ("finite", float, ["1_0.5", "１.5", "nan", "inf", "-inf", "1e999", "1" + "0" * 400]),
            ("finite", float, [10**400, 10**5000, [1.0], False]),
        ],
    )
    def test_what_only_looks_like_one_is_refused(self, wanted: str, kind: type, values: list[Any]) -> None:
        for value in values:
            with pytest.raises(UserError, match=f"is not a {wanted} number") as refused:
                Parameter("theta", kind, kind(1)).convert(value, "all")
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
