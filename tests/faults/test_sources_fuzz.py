"""Text and tokenizers of any kind: read and tokenised, or one UserError that names the file, soon."""

import json
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.sources import open_source
from extrapolate.errors import UserError

SECONDS = 20
FUZZING = settings(settings.get_profile("fuzzing"), suppress_health_check=[HealthCheck.function_scoped_fixture])
ENDS = [0, 1, -1, 257, 2**16, 2**24, 2**31, 2**32 - 1, 2**32, 2**53, 2**63, 10**400]
SCALARS = st.none() | st.booleans() | st.sampled_from(ENDS) | st.integers() | st.floats() | st.text(max_size=8)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def tried(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it is refused. Nothing but a UserError, which can be read, and no long wait."""
    began = time.monotonic()
    found, refusal = None, "accepted"
    try:
        found = call()
    except UserError as error:
        refusal = str(error)
    assert time.monotonic() - began < SECONDS
    assert 5 < len(refusal) < 3000, refusal
    return found


ROWS = (st.fixed_dictionaries({"text": ANY}) | st.fixed_dictionaries({"text": st.text()}) | ANY).map(json.dumps)


@FUZZING
@given(lines=st.lists(ROWS.map(str.encode) | st.binary(max_size=30), max_size=5), ending=st.sampled_from(["", "\n"]))
def test_json_lines(lines: list[bytes], ending: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + ending.encode())
    for document in tried(lambda: list(open_source(str(path)))) or []:
        document.text.encode()
        document.id.encode()


SUFFIXES = [".txt", ".md", ".parquet", ".html", ".rst", ".txt.gz", ".jsonl.zst", ".html.gz"]


@FUZZING
@given(content=st.binary(max_size=60), suffix=st.sampled_from(SUFFIXES))
def test_files(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    tried(lambda: list(open_source(str(path))))


@FUZZING
@given(
    content=st.text(st.sampled_from("ab \n.:*`_|=-<>/&;\"'"), max_size=200), suffix=st.sampled_from([".html", ".rst"])
)
def test_markup(content: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(content)
    tried(lambda: list(open_source(str(path))))


@FUZZING
@given(spec=st.text(max_size=30) | st.text("abc/~.*?[]:\0", max_size=30))
def test_names(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not spec.strip().startswith(("hf:", "/", "~")) and ".." not in spec:  # a large folder takes its time
        tried(lambda: open_source(spec))


@pytest.fixture(scope="module")
def known(bpe: Tokenizer) -> dict[str, Any]:
    """A tokenizer of 300 tokens, as its file has it, with what else there may be in one."""
    content = json.loads(bpe.to_str())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    return content


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Up to three entries: with another value, another name, or missing."""
    value = deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        inside = value
        while isinstance(inside, dict | list) and inside:
            key = draw(st.sampled_from(list(inside) if isinstance(inside, dict) else list(range(len(inside)))))
            if isinstance(inside[key], dict | list) and inside[key] and draw(st.booleans()):
                inside = inside[key]
                continue
            how = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
            if how == "replace":
                inside[key] = draw(ANY)
            elif how == "rename" and isinstance(inside, dict):
                inside[draw(st.text(max_size=6))] = inside.pop(key)
            else:
                del inside[key]
            break
    return value


@FUZZING
@given(data=st.data(), text=st.text(max_size=60))
def test_tokenizers(known: dict[str, Any], data: st.DataObject, text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data.draw(changed(known))))

    def use() -> None:
        loaded = tokenizers.load(str(path))
        loaded.no_truncation()
        loaded.no_padding()
        assert tokenizers.eos_id(loaded) is not None
        sizes = tokenizers.token_bytes(loaded)
        for encoding in tokenizers.encode(loaded, [text, text.upper()]):
            assert sizes is None or not encoding.ids or max(encoding.ids) < len(sizes)

    tried(use)
    tried(lambda: tokenizers.read(path))


@FUZZING
@given(content=st.binary(max_size=60) | st.text('[]{}":,truevocab0123456789', max_size=80).map(str.encode))
def test_tokenizer_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    tried(lambda: tokenizers.load(str(tmp_path / "tokenizer.json")))
