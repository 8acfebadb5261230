"""How far a study is, from files that are damaged."""

from pathlib import Path

import pytest

from extrapolate.errors import UserError
from extrapolate.studies.status import status_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text('[axes]\nencoding = ["rope"]\n')
    (tmp_path / "runs/rope-s0").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("damage", [b"3\n", b"\xff\xfe{}\n", b'{"tokens": 10'])
def test_a_damaged_line_of_a_log_is_left_out(folder: Path, damage: bytes) -> None:
    (folder / "runs/rope-s0/metrics.jsonl").write_bytes(b'{"tokens": 512, "loss": 4.5}\n' + damage)
    (found,) = status_of(folder)
    assert (found.status, found.tokens, found.loss) == ("begun", 512, 4.5)


@pytest.mark.parametrize("damage", ["{}", "[]", '{"scale": 3}', "{"])
def test_a_damaged_scale_is_named(folder: Path, damage: str) -> None:
    (folder / "scale.json").write_text(damage)
    with pytest.raises(UserError, match=r"scale\.json is damaged"):
        status_of(folder)
