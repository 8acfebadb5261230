"""What `make site` adds to the pages of docs/: those that lie beside it, and the first notebook with what it prints."""

import re
from pathlib import Path

import first_notebook
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(?<=\]\()(?:\.\./|docs/)+")  # from docs/ to what lies beside it, and the other way round
FILE_NAME = re.compile(r"\[[\w/.-]+\.md\]\(([\w-]+\.md)")  # a link that shows the name of its file
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
PICTURE = re.compile(r'<img [^>]*src="([^"]+)"[^>]*>')
FLAG = re.compile(r"(?<![\w-])--?\w[\w-]*")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README as the first page, the pages beside it, the examples, and the notebook."""
    for source, target in BESIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in (ROOT / "examples").rglob("*.*"):
        if path.suffix in {".py", ".toml"}:
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    page, pictures, notebook = first_notebook.made(ROOT / "examples" / "quickstart.py")
    made = {"quickstart.md": page, "quickstart.ipynb": notebook, **pictures}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the site, docs/ and what lies beside it are one folder, and a link shows a page's title."""
    if "/" in page.file.src_uri:  # a page of docs/results/
        return markdown.replace("](../../", "](../")
    markdown = LINK.sub("", markdown).replace("](README.md", "](index.md")
    return FILE_NAME.sub(lambda link: f"[{files.src_uris[link[1]].page.title}]({link[1]}", markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """No line ends within a flag in the text, and a picture leads to itself: on a phone, its words are small."""
    html = PICTURE.sub(r'<a href="\1">\g<0></a>', html)
    return CODE.sub(lambda code: FLAG.sub(r'<span class="flag">\g<0></span>', code[0]), html)
