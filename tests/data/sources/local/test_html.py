"""HTML: the text that a browser shows."""

import importlib.util
from pathlib import Path

import pytest

from extrapolate.data.documents import Document
from extrapolate.errors import UserError

PAGE = """<!DOCTYPE html><html><head><title>Not shown</title><style>p { color: red }</style></head>
<body><h1>Salt &amp; <em>pepper</em></h1>
<p>A sentence that
   goes on in the <a href="#">next</a> line,<br>and in a new one.</p><script>var x = "<p>no</p>"</script>
<ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr><tr><td>c</table>
<pre>def f():
    return <i>1</i></pre><!-- nothing -->The end.</body></html>"""


def test_paragraphs_are_apart_and_markup_is_gone(tmp_path: Path, documents) -> None:
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.htm").write_text("no tag, café\n\n")
    text = (
        "Salt & pepper\n\nA sentence that goes on in the next line,\nand in a new one.\n\none\n\ntwo\n\na b\n\nc\n\n"
        "def f():\n    return 1\n\nThe end.\n"
    )
    assert documents(tmp_path) == [Document("a.html", text), Document("b.htm", "no tag, café\n")]


def test_a_page_without_text_is_refused(tmp_path: Path, documents) -> None:
    (tmp_path / "a.html").write_text("<script>x</script>")
    with pytest.raises(UserError, match=r"a\.html has no text in it; remove it"):
        documents(tmp_path)


@pytest.mark.parametrize(("name", "package"), [("a.html", "selectolax"), ("a.rst.gz", "docutils")])
def test_without_the_package_it_says_what_to_install(
    name: str, package: str, tmp_path: Path, documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("text")
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked, *_: None if asked == package else 0)
    with pytest.raises(UserError, match=rf"{name}: .* takes {package}; .* pip install 'extrapolate\[texts\]'"):
        documents(tmp_path)
