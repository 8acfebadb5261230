"""reStructuredText."""

import re
from collections.abc import Iterator

from extrapolate.data.documents import Document
from extrapolate.data.sources.local.base import FileKind, LocalFile, decoded_file, holds_text, kinds
from extrapolate.errors import UserError

# Read no other file, ignore the user's settings, and print no errors.
_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "report_level": 5,
    "halt_level": 5,
}


@kinds.register(".rst")
class RestructuredText(FileKind):
    """The file is one UTF-8 document: the text without its markup, extracted by docutils."""

    needs = "docutils"

    @classmethod
    def documents(cls, file: LocalFile, name: str, text_field: str) -> Iterator[Document]:
        yield Document(name, holds_text(_text(decoded_file(file), file), file))


def _text(source: str, file: LocalFile) -> str:
    """Paragraphs and titles, separated by empty lines. Unknown markup stays as it is."""
    from docutils import nodes
    from docutils.core import publish_doctree

    try:
        tree = publish_doctree(source, settings_overrides=_SETTINGS)
    except Exception as error:  # of any type, depending on the text
        raise UserError(f"{file}: docutils cannot read it: {type(error).__name__}: {error}") from error
    for node in list(tree.findall(nodes.system_message)):
        # An unknown directive, such as Sphinx's: the message about it quotes it in full.
        node.parent.replace(node, [block for block in node.children if isinstance(block, nodes.literal_block)])
    for node in list(tree.findall(lambda node: isinstance(node, nodes.comment | nodes.substitution_definition))):
        node.parent.remove(node)
    return re.sub(r"\n{3,}", "\n\n", tree.astext()).strip() + "\n"
