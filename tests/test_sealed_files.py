"""A JSON file that carries a hash of itself: every change of its content is seen."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import files

RECORD = {"format": 2, "name": "é", "values": [1, 2.5, None, {"deep": True}]}


class TestSealedJson:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        files.write_sealed(tmp_path / "a.json", RECORD)
        assert files.read_sealed(tmp_path / "a.json") == RECORD

    @given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
    @settings(max_examples=100, deadline=None)
    def test_a_flipped_bit_is_refused_or_changes_nothing(
        self, place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "flipped.json"
        files.write_sealed(path, RECORD)
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1 << bit
        path.write_bytes(content)
        found = None
        with contextlib.suppress(files.UserError):
            found = files.read_sealed(path)
        # What is read is white space off, or lacks the seal by its name: then there is a key that nobody knows.
        assert found is None or found == RECORD or set(found) - set(RECORD)

    def test_brackets_of_any_depth_are_refused(self, tmp_path: Path) -> None:
        for depth in range(600, 1100):
            (tmp_path / "a.json").write_text('{"format": 2, "sha256": "0", "a": %s}' % ("[" * depth + "]" * depth))
            with pytest.raises(files.UserError, match=r"a\.json is damaged"):
                files.read_sealed(tmp_path / "a.json")

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "1" * 10_000, "[1, 2]", "null", "\udc80"])
    def test_what_is_no_object_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.json").write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(files.UserError, match=r"a\.json is damaged"):
            files.read_sealed(tmp_path / "a.json")
