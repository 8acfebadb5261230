"""extrapolate export: the folder, what it says, and what it refuses."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "export.md"


def test_the_commands_of_the_page_run(cli, ckpt: Path, tmp_path: Path) -> None:
    lines = re.findall(r"^extrapolate (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        ended = cli(*shlex.split(line)).succeeded()
        assert ended.err == "wrote exported/rope/: LlamaForCausalLM, of transformers\n"
    assert sorted(path.name for path in (tmp_path / "exported" / "rope").iterdir()) == [
        "README.md", "config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json",
        "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


def test_it_says_where_the_code_is(cli, ckpt: Path, tmp_path: Path) -> None:
    ended = cli("export", ckpt / "expe", "--out", "out").succeeded()
    assert "ExtrapolateForCausalLM, the code is in the folder: load it with trust_remote_code=True" in ended.err
    assert (tmp_path / "out" / "modeling_extrapolate.py").is_file()


def test_what_cannot_be_exported_is_refused(cli, ckpt: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "there already exists; choose another folder" in cli("export", ckpt / "rope", "--out", "there").error()
    assert "nowhere is not a run" in cli("export", "nowhere", "--out", "out").error()
    (ckpt / "rope" / "model.safetensors").unlink()
    assert "is not finished" in cli("export", ckpt / "rope", "--out", "out").error()
    assert not (tmp_path / "out").exists()
