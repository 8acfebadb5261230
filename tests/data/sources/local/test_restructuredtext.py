"""reStructuredText: its text without its markup."""

from pathlib import Path

import pytest

from extrapolate.data.documents import Document

PAGE = """
Title
=====

.. A comment.

Some *emphasis*, ``code``, a `link <https://example.org>`_ and a role that is unknown, :func:`f`.

.. function:: f(x)

   What only Sphinx knows.

.. note:: Take care.

- one
- two

Code::

    def f():
        return 1
"""


def test_paragraphs_are_apart_and_markup_is_gone(tmp_path: Path, documents, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.rst").write_text(PAGE)
    text = (
        "Title\n\nSome emphasis, code, a link and a role that is unknown, :func:`f`.\n\n"
        ".. function:: f(x)\n\n   What only Sphinx knows.\n\nTake care.\n\none\n\ntwo\n\nCode:\n\n"
        "def f():\n    return 1\n"
    )
    assert documents(tmp_path) == [Document("a.rst", text)]
    assert capfd.readouterr() == ("", "")


def test_no_other_file_is_read(tmp_path: Path, documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.cfg").write_text("a secret")
    (tmp_path / "docutils.conf").write_text("[general]\nfile_insertion_enabled: yes\nraw_enabled: yes\n")
    (tmp_path / "a.rst").write_text(
        "Text.\n\n.. include:: secret.cfg\n\n.. raw:: html\n   :file: secret.cfg\n\n"
        ".. csv-table::\n   :file: secret.cfg\n"
    )
    text = documents(tmp_path)[0].text
    assert text.startswith("Text.")
    assert "a secret" not in text


def test_a_file_with_errors_is_read(tmp_path: Path, documents) -> None:
    (tmp_path / "a.rst").write_text("*a **b `c |d\n\na\n--\n\n.. _x: y_\n.. _y: x_\n\nx_ |z|_")
    assert documents(tmp_path)[0].text.strip()
