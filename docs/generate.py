"""Remakes everything in docs/ that is made from code: make docs, or python docs/generate.py [FOLDER]

Into another folder than docs/ it draws no pictures of encodings, and the package stays as it is.
"""

import re
import sys
from pathlib import Path

import expe_table_2
import gpu_hours
import listed
import looks
import python_calls
import settings
import tables

from extrapolate.evaluation.protocols.base import protocols
from extrapolate.reports.protocol_picture import svg

DOCS = Path(__file__).parent
PARTS = {  # what stands between two comments of a page that is otherwise written by hand
    ("data.md", "sources"): listed.source_sections,
    ("encodings.md", "contents"): listed.encoding_contents,
    ("encodings.md", "encodings"): lambda: looks.with_notes(listed.encoding_sections()),
    ("extensions.md", "contents"): listed.extension_contents,
    ("extensions.md", "extensions"): listed.extension_sections,
    ("inspection.md", "measurements"): listed.measurement_sections,
    ("probes.md", "probes"): listed.probe_sections,
    ("protocols.md", "protocols"): listed.protocol_rows,
    ("python-api.md", "calls"): python_calls.table,
    ("results.md", "columns"): tables.columns,
    ("results.md", "json"): tables.json_keys,
    ("results/expe-table-2.md", "losses"): expe_table_2.losses,
    ("results/expe-table-2.md", "agreement"): expe_table_2.agreement,
    ("scaling.md", "gpu hours"): gpu_hours.table,
    ("setting-up.md", "settings"): settings.table,
    ("synthetic.md", "processes"): listed.process_sections,
}


def fill(page: str, name: str, text: str) -> str:
    """A page's text, with `text` between its comments `<!-- name -->` and `<!-- end of name -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    filled, found = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)
    assert found == 1, f"a page needs {begin} and {end} once, not {found} times"
    return filled


def main(folder: Path) -> None:
    """Writes every page into a folder, and the pictures of the protocols."""
    made: dict[str, str] = {}
    for (name, part), text in PARTS.items():
        made[name] = fill(made.get(name) or (DOCS / name).read_text(encoding="utf-8"), part, text())
    for name, page in made.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(page, encoding="utf-8")
    for protocol in protocols.names():
        (folder / f"protocol-{protocol}.svg").write_text(svg(protocol), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else DOCS)
    if not sys.argv[1:]:  # the pictures take half a minute
        settings.FILE.write_text(settings.typed(), encoding="utf-8")
        looks.draw(DOCS)
