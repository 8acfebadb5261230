"""HTML."""

import re
from collections.abc import Iterator

from extrapolate.data.documents import Document
from extrapolate.data.sources.local.base import FileKind, LocalFile, decoded_file, holds_text, kinds

_LEFT_OUT = ["head", "script", "style", "template", "noscript", "svg", "math", "iframe", "object", "textarea", "select"]
_BLOCKS = (
    "address,article,aside,blockquote,body,caption,dd,details,dialog,div,dl,dt,fieldset,figcaption,figure,footer,form,"
    "h1,h2,h3,h4,h5,h6,header,hr,legend,li,main,nav,ol,p,pre,section,summary,table,tr,ul"
)
# Control characters that stand for the end of a paragraph, the end of a line, and a space that must be kept.
_PARAGRAPH, _LINE, _SPACE = "\x1e", "\x1f", "\x1d"


@kinds.register(".html")
@kinds.register(".htm")
class Html(FileKind):
    """The file is one UTF-8 document: the text that a browser shows, extracted by selectolax."""

    needs = "selectolax"

    @classmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        yield Document(name, holds_text(_text(decoded_file(file)), file))


def _text(page: str) -> str:
    """Paragraphs separated by empty lines; white space as a browser shows it."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(re.sub(f"[{_PARAGRAPH}{_LINE}{_SPACE}]", "", page))
    tree.strip_tags(_LEFT_OUT)
    if tree.body is None:
        return ""
    for node in tree.css("pre"):
        written = node.text().replace("\n", _LINE).replace(" ", _SPACE)
        node.replace_with(f"{_PARAGRAPH}{written}{_PARAGRAPH}")
    for node in tree.css("br"):
        node.replace_with(_LINE)
    for node in tree.css("td,th"):
        node.insert_after(" ")
    for node in tree.css(_BLOCKS):
        node.insert_before(_PARAGRAPH)
        node.insert_after(_PARAGRAPH)
    shown = re.sub(r"[ \t\n\r\f]+", " ", tree.body.text())
    paragraphs = (re.sub(f" *{_LINE} *", "\n", one.strip(" ")) for one in shown.split(_PARAGRAPH))
    return "\n\n".join(one.replace(_SPACE, " ") for one in paragraphs if one.strip()) + "\n"
