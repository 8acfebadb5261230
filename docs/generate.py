"""Remakes everything in docs/ that is made from code: make docs, or python docs/generate.py [FOLDER]

Into another folder than docs/ it draws no pictures of encodings.
"""

import re
import sys
from pathlib import Path

import gpu_hours
import looks

from extrapolate.catalogue.data import data_page
from extrapolate.catalogue.encodings import encodings_page
from extrapolate.catalogue.extensions import extensions_page
from extrapolate.catalogue.measurements import measurements_page
from extrapolate.catalogue.printed import json_page
from extrapolate.catalogue.protocols import protocols_table
from extrapolate.catalogue.tables import results_page
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.reports.protocol_picture import svg

DOCS = Path(__file__).parent
PAGES = {
    "data.md": data_page,
    "encodings.md": encodings_page,
    "extensions.md": extensions_page,
    "json.md": json_page,
    "measurements.md": measurements_page,
    "results.md": results_page,
}
TABLE = re.compile(r"(?<=<!-- made from code by `make docs` -->\n).*?(?=<!-- end -->)", re.DOTALL)


def main(folder: Path) -> None:
    """Writes every page into a folder, and the pictures of the protocols."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    page = (DOCS / "protocols.md").read_text(encoding="utf-8")  # the rest of it is written by hand
    (folder / "protocols.md").write_text(TABLE.sub(lambda _: f"\n{protocols_table()}\n", page), encoding="utf-8")
    gpu_hours.main(DOCS, folder)
    for protocol in protocols.names():
        (folder / f"protocol-{protocol}.svg").write_text(svg(protocol), encoding="utf-8")
    looks.pages(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else DOCS)
    if not sys.argv[1:]:  # they take half a minute
        looks.draw(DOCS)
