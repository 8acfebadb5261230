"""The files of a checkpoint: missing ones, damaged ones, and those of the Hub."""

import json
from typing import Any

import pytest
import torch

from extrapolate.errors import UserError
from extrapolate.interop import huggingface


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(saved, name: str) -> None:
    checkpoint = saved()
    (checkpoint.folder / name).unlink()
    with pytest.raises(ValueError, match=f"has n.*{name}"):
        assert checkpoint.source().weights


def test_a_missing_shard_is_named(saved) -> None:
    checkpoint = saved(options={"max_shard_size": "60KB"})
    shard = sorted(checkpoint.folder.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=f"lacks {shard.name}"):
        assert checkpoint.source().weights


OUTSIDE = json.dumps({"weight_map": {"a": "../b.safetensors"}})


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", "{"), ("model.safetensors.index.json", "[]"), ("model.safetensors.index.json", OUTSIDE)],
)
def test_a_damaged_file_is_named(saved, name: str, content: str) -> None:
    checkpoint = saved()
    (checkpoint.folder / "model.safetensors").unlink()
    (checkpoint.folder / name).write_text(content)
    with pytest.raises(UserError, match=rf"{name} is damaged"):
        assert checkpoint.source().weights


def test_damaged_weights(saved) -> None:
    checkpoint = saved()
    path = checkpoint.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:3000])
    source = checkpoint.source()
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        huggingface.weights_of(source, huggingface.sizes_of(source))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "a b"])
def test_what_is_neither_a_folder_nor_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="no such folder, and not a name on the Hugging Face Hub"):
        huggingface.find(name)


def test_what_the_hub_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(name: str, **options: Any) -> str:
        assert name == "nobody/nothing"
        raise OSError("the line is dead")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=r"hf:nobody/nothing: there is no folder nobody/nothing.*line is dead"):
        huggingface.find("nobody/nothing")


def test_only_what_is_needed_is_downloaded_and_weights_last(saved, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    checkpoint = saved()
    wanted = ["config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"]
    wanted.append("model-00001-of-00002.safetensors")
    there = [*wanted, "pytorch_model.bin", "consolidated.safetensors", "original/model-1.safetensors", "README.md"]
    asked: list[str] = []

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert revision == (checkpoint.folder.name if asked else None)  # a snapshot's folder has the commit's name
        asked.extend(filter_repo_objects(there, allow_patterns=allow_patterns))
        return str(checkpoint.folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = huggingface.find("some/model")
    assert (found.folder, asked) == (checkpoint.folder, wanted[:2])
    assert found.weights == (checkpoint.folder / "model.safetensors",)
    assert asked == wanted


def test_the_hash_tells_checkpoints_apart(saved) -> None:
    checkpoint = saved()
    before = checkpoint.source().sha256()
    assert checkpoint.source().sha256() == before
    checkpoint.rewrite(rms_norm_eps=1e-4)
    other = checkpoint.source().sha256()
    with torch.no_grad():
        next(checkpoint.model.parameters())[0, 0] += 1
    checkpoint.model.save_pretrained(checkpoint.folder)
    assert len({before, other, checkpoint.source().sha256()}) == 3
