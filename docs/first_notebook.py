"""Runs examples/quickstart.py as a notebook, and makes a page of its cells and of what they print."""

import ast
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

BEGINNING = """\
# A first notebook

This page is [examples/quickstart.py](examples/quickstart.py), run as [a notebook](quickstart.ipynb).

"""


def made(example: Path) -> tuple[str, dict[str, bytes], str]:
    """The page, its pictures by file name, and the notebook with its outputs, as JSON."""
    notebook = jupytext.read(example)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [part for cell in notebook.cells for part in described(cell)]
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, timeout=1200).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # progress is for who waits
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    text, resources = MarkdownExporter().from_notebook_node(notebook)
    return BEGINNING + text, resources["outputs"], jupytext.writes(notebook, fmt="ipynb")


def described(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """A cell below its title. The first, which is the file's docstring, becomes text."""
    if cell.source.startswith('"""'):
        return [nbformat.v4.new_markdown_cell(ast.literal_eval(cell.source))]
    title = cell.metadata.pop("title", None)
    return [nbformat.v4.new_markdown_cell(title), cell] if title else [cell]
