"""Which source a spec opens."""

from pathlib import Path

import pytest

from extrapolate.data.documents import Document
from extrapolate.data.sources import open_source
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.huggingface import HuggingFace
from extrapolate.data.sources.stdlib import StandardLibrary
from extrapolate.data.synthetic.markov import Markov


def test_a_name_opens_its_source() -> None:
    assert isinstance(open_source("stdlib"), StandardLibrary)
    assert isinstance(open_source("synthetic:markov:states=6"), Markov)
    assert isinstance(open_source("hf:owner/name:config:split"), HuggingFace)


def test_a_name_that_lacks_its_argument_may_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "hf"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{name}: names no"):
        open_source(name)
    (tmp_path / name).mkdir()
    (tmp_path / name / "a.txt").write_text("text")
    assert list(open_source(name)) == [Document("a.txt", "text")]
    with pytest.raises(ValueError, match=f"{name}: names no"):
        open_source(f"{name}:")


def test_what_is_nowhere_is_refused_with_every_source_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no source '.*absent\.txt'") as refused:
        open_source(str(tmp_path / "absent.txt"))
    assert {"hf:NAME", "stdlib", "synthetic:NAME"} <= {form(name) for name in sources.names()}
    assert f"not {', '.join(map(form, sources.names()))}, a file, a folder, or a glob" in str(refused.value)
