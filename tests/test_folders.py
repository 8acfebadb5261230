"""Finding folders, and naming them."""

from pathlib import Path

from extrapolate.folders import below, listed, unique_names


def made(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    return root


def test_folders_are_found_all_the_way_down_but_not_inside_a_run(tmp_path: Path) -> None:
    made(tmp_path, "a/b/c/config.json", "a/b/c/checkpoints/config.json", "d/config.json", ".git/e/config.json")
    folders, (left_out,) = below(tmp_path)
    assert left_out.startswith(f"left out, for they lie in the folder of another run: {tmp_path}/a/b/c/checkpoints; ")
    found = [str(path.relative_to(tmp_path)) for path in folders]
    assert found == [".", "a", "a/b", "a/b/c", "d"]


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
    assert listed([Path("a"), Path("b")]) == "a, b"
    assert listed([Path(str(n)) for n in range(9)]) == "0, 1, 2, 3, 4, 5, and 3 more"
