"""One file made from several modules: what is in it, and that names of different modules stay apart."""

import sys
import types
from pathlib import Path

import pytest

from extrapolate.errors import UserError
from extrapolate.interop.bundle import Bundle


def load(text: str) -> types.ModuleType:
    """The file, as Python reads it."""
    module = types.ModuleType("bundled")
    sys.modules["bundled"] = module  # dataclasses look it up
    exec(compile(text, "bundled.py", "exec"), vars(module))
    return module


def of_user(folder: Path, source: str) -> Bundle:
    (folder / "mine.py").write_text(source, encoding="utf-8")
    return Bundle({"mine": folder / "mine.py"})


def test_it_has_what_a_name_needs_and_nothing_else() -> None:
    bundle = Bundle({})
    bundle.need("extrapolate.encodings.alibi", "slopes")
    text = bundle.text()
    assert "def slopes" in text
    assert "class" not in text
    assert load(text).slopes(2) == [2**-4, 2**-8]


def test_what_decorates_and_what_is_called_by_an_alias_comes_along() -> None:
    """`@register` needs a registry, of `specs.Registry`; `@circle.register_fake` decorates a function called `_`."""
    bundle = Bundle({})
    bundle.need("extrapolate.encodings.rope", "RoPE")
    bundle.need("extrapolate.encodings.base", "encodings")
    text = bundle.text()
    assert "import extrapolate" not in text
    assert "from extrapolate" not in text
    assert text.count("@circle.register_fake") == 1
    assert "load_user_class" not in text
    assert "BaseModel" not in text
    module = load(text.replace("extrapolate::circle", "extrapolate_test::circle"))
    assert module.encodings["rope"] is module.RoPE


def test_two_modules_with_one_name_stay_apart() -> None:
    """Both registries have a `register`, and both of these encodings a LARGEST."""
    bundle = Bundle({})
    for module, name in [
        ("extrapolate.encodings.sandwich", "Sandwich"), ("extrapolate.encodings.random", "Random"),
        ("extrapolate.extensions.positions", "PositionInterpolation"), ("extrapolate.encodings.base", "encodings"),
        ("extrapolate.extensions.base", "extensions"), ("extrapolate.encodings.base", "Dims"),
    ]:  # fmt: skip
        bundle.need(module, name)
    module = load(bundle.text().replace("extrapolate::circle", "extrapolate_test::circle"))
    assert module.extensions.names() == ["pi"]
    assert module.encodings.names() == ["random", "sandwich"]
    dims = module.Dims(8, 2, 4, 16)
    with pytest.raises(ValueError, match="size must be at most 65536 channels"):
        module.Sandwich(dims, size=2**17)
    with pytest.raises(ValueError, match="max must be at most 16777216"):
        module.Random(dims, base="sandwich", max=2**25)


def test_a_users_file_is_there_whole(tmp_path: Path) -> None:
    bundle = of_user(
        tmp_path,
        "# of the user\nfrom extrapolate.encodings import alibi as theirs\nimport math\n\nused = []\nused.append(1)\n"
        "if used:\n    def slopes(heads):\n        return theirs.slopes(heads), math.floor(1.5), 'slopes'\n",
    )
    module = load(bundle.text())
    assert module.used == [1]
    own = bundle.called("mine", "slopes")
    assert own != "slopes" or bundle.called("extrapolate.encodings.alibi", "slopes") != "slopes"
    assert getattr(module, own)(1) == ([2**-8], 1, "slopes")


@pytest.mark.parametrize(
    "source",
    [
        "first = 1\n\x0c\ndef f():\n    return 'of the user'\n",
        "note = 'a\u2028b'\ndef f():\n    return 'of the user'\n",
        "\ufeffdef f():\n    return 'of the user'\n",
        "if True:\n    async def slopes():\n        pass\nfrom extrapolate.encodings import alibi\n"
        "def f():\n    return alibi.slopes(2) and 'of the user'\n",
    ],
)
def test_a_users_file_may_have_characters_and_names_of_all_kinds(tmp_path: Path, source: str) -> None:
    """A form feed and a line separator end no line, a mark of the byte order is no text, and ours is not theirs."""
    assert load(of_user(tmp_path, source).text()).f() == "of the user"


def test_imports_of_one_name_that_differ_are_refused(tmp_path: Path) -> None:
    bundle = of_user(
        tmp_path, "from extrapolate.encodings.alibi import slopes\nfrom cmath import pi as math\nx = slopes, math\n"
    )
    with pytest.raises(UserError, match=r"mine\.py: import math under another name"):
        bundle.text()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import extrapolate.errors\n", "import extrapolate.errors as base"),
        ("def f():\n    from extrapolate import errors\n", "put its imports of extrapolate at the top"),
        ("from extrapolate.nowhere import Thing\nThing()\n", "no module extrapolate.nowhere"),
        ("from extrapolate.errors import Thing\nThing()\n", r"errors\.py has no Thing"),
        (
            "from extrapolate.encodings.alibi import slopes as mine\nmine(1)\ndef slopes(slopes):\n    pass\n",
            "argument",
        ),
        (
            "from extrapolate.encodings.alibi import slopes as mine\nmine(1)\nslopes = 1\n"
            "class A:\n    slopes = slopes\n",
            "as the name of an argument, of a part of a class",
        ),
        ("from extrapolate.encodings.alibi import *\n", r"in place of the \*"),
        ("seen = []\nseen.append(1); seen.append(2)\n", r"mine\.py, line 2: give each statement a line"),
    ],
)
def test_what_cannot_be_put_into_one_file_is_refused(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        of_user(tmp_path, source).text()
