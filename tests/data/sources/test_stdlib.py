"""The running interpreter's own sources."""

import sysconfig
from pathlib import Path

from extrapolate.data.sources import open_source


def test_documents_are_the_sources_without_tests_and_packages(documents) -> None:
    found = documents("stdlib")
    root = Path(sysconfig.get_path("stdlib"))
    by_id = {document.id: document.text for document in found}
    assert next(iter(open_source("stdlib"))) == found[0]
    assert len({document.id for document in found}) == len(found)
    assert list(by_id) == sorted(by_id, key=lambda name: Path(name))
    assert by_id["argparse.py"] == (root / "argparse.py").read_text(encoding="utf-8")
    assert "json/decoder.py" in by_id
    unwanted = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib-dynload"}
    assert not [name for name in by_id if unwanted & set(Path(name).parts)]
    assert all(by_id.values())
