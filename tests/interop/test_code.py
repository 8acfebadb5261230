"""The files of code in an exported folder. `test_export.py` runs them, `test_exported_folder.py` has users' files."""

import sys
from pathlib import Path

import pytest

from extrapolate.encodings.base import encodings
from extrapolate.extensions.base import extensions
from extrapolate.interop.code import code_of
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

dynamic = pytest.importorskip("transformers.dynamic_module_utils")

MAIN = "modeling_extrapolate.py"


def files_of(folder: Path, encoding: str, *with_extensions: str) -> set[str]:
    """Writes the code of a model, and returns the names of its files."""
    model = Model(ModelConfig(vocab_size=10), encoding, {}, seq_len=16)
    classes = {type(model.encoding): encoding} | {extensions[name]: name for name in with_extensions}
    code = code_of(model, classes)
    for file, text in code.items():
        (folder / file).write_text(text, encoding="utf-8")
    return set(code)


@pytest.mark.parametrize("encoding", encodings.names())
def test_transformers_finds_all_files_and_they_need_torch_and_transformers_alone(encoding: str, tmp_path: Path) -> None:
    files = files_of(tmp_path, encoding, *extensions.names())
    found = {Path(path).name for path in dynamic.get_relative_import_files(tmp_path / MAIN)}
    assert found | {MAIN} == files
    packages = {package for file in files for package in dynamic.get_imports(tmp_path / file)}
    assert packages - sys.stdlib_module_names == {"torch", "transformers"}
    assert not packages & {"fcntl", "pwd", "resource"}  # Windows lacks them


def test_the_files_are_those_that_the_model_imports(tmp_path: Path) -> None:
    files = files_of(tmp_path, "fope")
    assert {"encodings_fope.py", "encodings_rope.py"} <= files
    assert not {"encodings_alibi.py", "encodings_wrapper.py", "extensions_positions.py"} & files
