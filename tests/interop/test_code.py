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


def code_for(encoding: str) -> dict[str, str]:
    """The code of a model with all extensions, by file."""
    model = Model(ModelConfig(vocab_size=10), encoding, {}, seq_len=16)
    return code_of(model, {type(model.encoding): encoding} | {extensions[name]: name for name in extensions.names()})


def test_files_need_torch_and_transformers_alone(tmp_path: Path) -> None:
    texts = {text for encoding in encodings.names() for text in code_for(encoding).values()}
    for number, text in enumerate(sorted(texts)):
        (tmp_path / f"{number}.py").write_text(text, encoding="utf-8")
    packages = {package for file in tmp_path.iterdir() for package in dynamic.get_imports(file)}
    assert packages - sys.stdlib_module_names == {"torch", "transformers"}
    assert not packages & {"fcntl", "pwd", "resource"}  # Windows lacks them


def test_transformers_finds_all_files_and_they_are_those_that_the_model_imports(tmp_path: Path) -> None:
    code = code_for("fope")
    for file, text in code.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    found = {Path(path).name for path in dynamic.get_relative_import_files(tmp_path / MAIN)}
    assert found | {MAIN} == set(code)
    assert {"encodings_fope.py", "encodings_rope.py"} <= code.keys()
    assert not {"encodings_alibi.py", "encodings_wrapper.py"} & code.keys()
