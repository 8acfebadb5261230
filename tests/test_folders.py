"""Finding folders, and naming them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from extrapolate.folders import below, join_names, unique_names


def made(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    return root


def test_folders_are_found_all_the_way_down_but_not_inside_a_run(tmp_path: Path) -> None:
    made(tmp_path, "a/b/c/config.json", "a/b/c/checkpoints/config.json", "d/config.json", ".git/e/config.json")
    folders, (within, hidden) = below(tmp_path)
    assert f"{tmp_path}/.git/e" in hidden
    assert within.startswith(f"left out, for they lie in the folder of another run: {tmp_path}/a/b/c/checkpoints; ")
    found = [str(path.relative_to(tmp_path)) for path in folders]
    assert found == [".", "a", "a/b", "a/b/c", "d"]


def test_tables_where_nobody_looks_are_named(tmp_path: Path) -> None:
    made(tmp_path, "rope/config.json", "rope/merged/evals.parquet", ".kept/evals.parquet", ".run/config.json")
    assert below(tmp_path)[1] == [
        f"left out, for they are hidden, by a name that begins with a dot: {tmp_path}/.run; name them"
    ]
    within, hidden = below(tmp_path, tables=True)[1]
    assert f"they lie in the folder of another run: {tmp_path}/rope/merged; name them" in within
    assert sorted(hidden.partition(": ")[2].removesuffix("; name them").split(", ")) == [
        f"{tmp_path}/.kept", f"{tmp_path}/.run",
    ]  # fmt: skip


def test_weights_without_a_configuration_are_named(tmp_path: Path) -> None:
    made(tmp_path, "a/config.json", "a/model.safetensors", "lost/model.safetensors", "begun/state.safetensors")
    made(tmp_path, "copied/evals.parquet", "copied/model.safetensors")
    what = f"left out, for they have weights, but no config.json: {tmp_path}/begun, "
    assert below(tmp_path)[1] == [f"{what}{tmp_path}/copied, {tmp_path}/lost"]
    assert below(tmp_path, tables=True)[1] == [f"{what}{tmp_path}/lost"]


def test_runs_in_a_folder_of_a_hidden_one_and_behind_a_link_of_a_run_are_named(tmp_path: Path) -> None:
    made(tmp_path, "all/rope/config.json", "all/.old/alibi/config.json", "elsewhere/fox/config.json")
    (tmp_path / "all/rope/fox").symlink_to(tmp_path / "elsewhere/fox")
    (tmp_path / "all/rope/latest").symlink_to(tmp_path)  # holds no run
    folders, left_out = below(tmp_path / "all")
    assert [path.name for path in folders] == ["all", "rope"]
    links, hidden = left_out
    assert f"not followed: {tmp_path}/all/rope/fox; " in links
    assert f"{tmp_path}/all/.old/alibi; " in hidden


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "rope/config.json", "closed/alibi/config.json")
    scandir = os.scandir

    def refusing(path: Path) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)  # the superuser may read everything
    assert below(tmp_path)[1] == [f"left out, for they cannot be read: {tmp_path}/closed"]


def test_links_lead_nowhere_but_the_folder_itself_may_be_one(tmp_path: Path) -> None:
    made(tmp_path, "elsewhere/run/config.json", "study/own/config.json")
    (tmp_path / "study/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "study/run").symlink_to(tmp_path / "elsewhere/run")
    (tmp_path / "study/root").symlink_to("/")
    (tmp_path / "named").symlink_to(tmp_path / "study")
    folders, (left_out,) = below(tmp_path / "named")
    assert [str(path.relative_to(tmp_path / "named")) for path in folders] == [".", "own"]
    assert "not followed: " + ", ".join(f"{tmp_path}/named/{name}" for name in ("linked", "root", "run")) in left_out


def test_names_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    paths = [Path(path) for path in ("/x/s0/rope", "/x/s1/rope", "/x/expe", "/a/one/t/pi", "/a/two/t/pi")]
    names = unique_names(paths)
    assert list(names.values()) == ["s0/rope", "s1/rope", "expe", "one/t/pi", "two/t/pi"]
    assert unique_names([]) == {}


def test_long_lists_are_cut_and_counted() -> None:
    assert join_names([Path("a"), Path("b")]) == "a, b"
    assert join_names([Path(str(n)) for n in range(9)]) == "0, 1, 2, 3, 4, 5, and 3 more"
