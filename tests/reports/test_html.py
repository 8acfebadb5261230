"""The HTML page as text: it is whole, it asks for nothing, and names in it are only names."""

import base64
import hashlib
import html as entities
import re
from html.parser import HTMLParser

from extrapolate.reports import escaping
from extrapolate.reports.page import Cell, Grid, html, markdown


class Read(HTMLParser):
    """Tags with the names of their attributes, texts, and where links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.addresses: list[str] = []
        self.within = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset")]
        self.within = tag

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", ()))
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within not in ("script", "style"):
            self.text += data


def test_a_hostile_name_is_shown_and_read_as_nothing(hostile_names, page) -> None:
    harmless = Read(html(page("Llama"), "Llama"))
    for hostile in hostile_names:
        mine = Read(html(page(hostile), hostile))
        assert mine.tags == harmless.tags, hostile
        text = mine.text
        for form in (hostile, escaping.one_line(hostile), escaping.short(hostile)):  # short in pictures
            text = text.replace(form, "Llama")
        assert text == harmless.text
    assert [address for address in harmless.addresses if not address.startswith(("data:", "#"))] == []


def test_only_its_own_scripts_may_run(page) -> None:
    made = html(page("RoPE"), "a report")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert len(scripts) == 1
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert re.findall(r"'sha256-([^']*)'", entities.unescape(policy[1])) == hashes
    assert "default-src 'none'" in entities.unescape(policy[1])
    assert "unsafe-eval" not in policy[1]
    assert " on" not in {f" {name[:2]}" for _, held in Read(made).tags for name in held}


def test_markdown_has_the_marks_of_cells_too() -> None:
    cells = [Cell("NoPE"), Cell("4.12", kind="best"), Cell("4.13", kind="undecided"), Cell("4.50", harm=0.5)]
    assert (
        markdown([Grid(["Model", "1x", "2x", "4x"], [cells])]).splitlines()[-1] == "| NoPE | **4.12** | 4.13 ? | 4.50 |"
    )
