"""tools/site.py finds what is wrong with a page, on pages that have what it uses of MkDocs ReportData."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "site.py"
PAGE = """\
<!doctype html><html lang="en"><head><title>a page</title><link rel="icon" href="data:,"></head><body>
<input type="radio" name="__palette" data-md-color-scheme="default">
<input type="radio" name="__palette" data-md-color-scheme="slate">
<input data-md-component="search-query"><div class="md-content">CONTENT</div><script>
  const shown = (theme) => { document.body.dataset.mdColorScheme = localStorage.theme = theme; };
  shown(KEPT);
  for (const input of document.querySelectorAll("[name=__palette]"))
    input.onclick = () => shown(input.dataset.mdColorScheme);
  document.querySelector("[data-md-component=search-query]").onkeyup = (event) => {
    const word = event.target.value;
    document.body.insertAdjacentHTML("beforeend", `<a class="md-search-result__link" href="${word}.html">found</a>`);
  };
</script></body></html>
"""
PICTURE = '<img alt="a square" src="data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E">'
RIGHT = PAGE.replace("CONTENT", f"<h1>One</h1><h2>Two</h2>{PICTURE}").replace("KEPT", 'localStorage.theme ?? "slate"')
WRONG = PAGE.replace(
    "CONTENT", '<h2>Two</h2><h4>Four</h4><img src="nowhere.png"><div style="width: 2000px">wide</div>'
).replace("KEPT", '"default"')


def checked(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium and chromedriver are not installed: apt-get install chromium chromium-driver",
)
def test_it_says_what_is_wrong_with_which_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(RIGHT, encoding="utf-8")
    assert checked(tmp_path) == (0, ["pages, each opened twice: 1; faults: 0"])
    (tmp_path / "wrong.html").write_text(WRONG, encoding="utf-8")
    code, lines = checked(tmp_path)
    assert code == 1
    assert lines[-1] == f"pages, each opened twice: 2; faults: {len(lines) - 1}"
    found = [line.split(": ")[:2] for line in lines[:-1]]
    each = ["headings", "errors", "broken pictures", "pictures without a text", "too wide"]
    assert sorted(found) == sorted(
        [["wrong.html, 390 px", "another theme"]]
        + [[f"wrong.html, {width} px", fault] for width in (1280, 390) for fault in each]
    )


def test_a_folder_without_pages_is_not_right(tmp_path: Path) -> None:
    assert checked(tmp_path) == (1, [f"{tmp_path} has no pages: make them with `make site`"])
