"""Remakes everything in docs/ that is made from code: make docs, or python docs/generate.py [FOLDER]"""

import sys
from pathlib import Path

import gpu_hours

from extrapolate.catalogue import encodings_page, extensions_page
from extrapolate.data.catalogue import data_page
from extrapolate.evaluation.catalogue import protocols_page
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.reports.protocol_picture import svg
from extrapolate.results.page import results_page

DOCS = Path(__file__).parent
PAGES = {
    "data.md": data_page,
    "encodings.md": encodings_page,
    "extensions.md": extensions_page,
    "protocol-list.md": protocols_page,
    "results.md": results_page,
}


def main(folder: Path) -> None:
    """Writes every page and picture into a folder."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    gpu_hours.main(DOCS, folder)
    for protocol in protocols.names():
        (folder / f"protocol-{protocol}.svg").write_text(svg(protocol), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else DOCS)
