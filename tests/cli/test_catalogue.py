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
    if command == "encodings":
        first = [line.split()[0] for line in out.splitlines() if line.strip()]
        order = [FAMILIES.index(word) for word in first if word in FAMILIES]
        assert order == sorted(order)


@pytest.mark.parametrize(
    ("command", "name", "words", "applies", "some"),
    [
        (
            "encodings",
            "t5",
            "a whole number auto",
            "Extensions that apply: ",
            ("dual-chunk", "lm-infinite"),
        ),
        ("extensions", "yarn", "ramp pairs or turns pairs", "Applies to: ", ("fope", "p-rope")),
    ],
)
def test_one_is_shown_whole(cli, command, name, words, applies, some):
    shown = " ".join(cli(command, name).succeeded().out.split())
    described = {"encodings": encodings, "extensions": extensions}[command][name]
    assert " ".join((inspect.getdoc(described) or "").split()) in shown
    assert words in shown
    applying = shown.partition(applies)[2].split(", ")
    assert [one for one in applying if one in (*some, "yarn", "alibi")] == list(some)


def test_a_users_own_file_is_shown_and_what_is_unknown_refused(cli, tmp_path):
    code = "from extrapolate.encodings.base import Encoding\nclass Mine(Encoding):\n    '''Does nothing.'''\n"
    (tmp_path / "mine.py").write_text(code + "    display = 'Mine'\n    source = 'here'\n")
    assert "Does nothing." in cli("encodings", "mine.py:Mine").succeeded().out
    for words, *arguments in (
        ("did you mean 'rope'", "encodings", "rop"),
        ("did you mean 'yarn'", "extensions", "yran"),
        ("mine.py:MyEncoding", "encodings", "mine.py"),
    ):
        assert words in cli(*arguments).error()
