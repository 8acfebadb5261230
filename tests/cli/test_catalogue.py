"""The lists of encodings and extensions, and the page of one."""

import inspect

import pytest

from extrapolate.encodings.base import FAMILIES, encodings
from extrapolate.extensions.base import extensions
from extrapolate.specs import parameters


@pytest.mark.parametrize(("command", "registry"), [("encodings", encodings), ("extensions", extensions)])
def test_a_list_has_everything(cli, command, registry, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # nothing is folded
    out = cli(command).succeeded().out
    words = out.split()
    for name in registry.names():
        assert name in words
        # Brackets are text, not markup: "x_i + E[i]".
        assert (inspect.getdoc(registry[name]) or "").partition("\n")[0] in out
        for argument in parameters(registry[name]):
            assert f"{argument}=" in out
    assert "…" not in out


def test_encodings_are_listed_by_family(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    lines = [line.split() for line in cli("encodings").succeeded().out.splitlines()]
    listed = [(line[0], line[1]) for line in lines if line and line[0] in FAMILIES and line[1] in encodings.names()]
    assert len(listed) == len(encodings.names())
    order = [FAMILIES.index(family) for family, _ in listed]
    assert order == sorted(order)


def test_one_encoding_is_shown_whole(cli):
    out = cli("encodings", "t5").succeeded().out
    words = " ".join(out.split())
    assert " ".join((inspect.getdoc(encodings["t5"]) or "").split()) in words
    assert "max_distance a whole number auto" in words
    applying = words.partition("Extensions that apply: ")[2].split(", ")
    assert [name for name in applying if name in ("dual-chunk", "lm-infinite", "yarn")] == ["dual-chunk", "lm-infinite"]


def test_one_extension_is_shown_whole(cli):
    out = cli("extensions", "yarn").succeeded().out
    words = " ".join(out.split())
    assert " ".join((inspect.getdoc(extensions["yarn"]) or "").split()) in words
    assert "ramp pairs or turns pairs" in words
    applying = words.partition("Applies to: ")[2].split(", ")
    assert [name for name in applying if name in ("alibi", "fope", "p-rope")] == ["fope", "p-rope"]


def test_an_unknown_encoding_is_refused_with_the_nearest(cli):
    assert "did you mean 'rope'" in cli("encodings", "rop").error()
    assert "did you mean 'yarn'" in cli("extensions", "yran").error()


def test_a_users_own_file_is_shown(cli, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from extrapolate.encodings.base import Encoding\n"
        "class Mine(Encoding):\n    '''Does nothing. Source: here.'''\n    display = 'Mine'\n    source = 'here'\n"
    )
    assert "Does nothing." in cli("encodings", "mine.py:Mine").succeeded().out


def test_arguments_are_not_taken_for_a_file(cli):
    assert "unknown encoding 'rope:theta=5'" in cli("encodings", "rope:theta=5").error()


def test_a_file_without_its_class_and_a_class_without_its_name_are_refused(cli, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from extrapolate.encodings.base import Encoding\nclass Mine(Encoding):\n    '''Nothing.'''\n"
    )
    assert "mine.py:MyEncoding" in cli("encodings", "mine.py").error()
    assert 'display = "Mine"' in cli("encodings", "mine.py:Mine").error()
