"""Code that came with data runs only where the user says so; what only reads runs none."""

import hashlib
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from extrapolate import files
from extrapolate.runs import trust
from extrapolate.runs.run import Run
from extrapolate.studies import local

FEW = ["--factors", "1", "--max-targets", "256", "--protocol", "windows"]
# An encoding, and an extension, that leave a mark where they are run.
CODE = """
from pathlib import Path
from extrapolate.encodings.base import POSITIONS, Encoding
from extrapolate.extensions.base import Extension
from extrapolate.encodings.plan import Plan
Path({marker!r}).touch()

class Mine(Encoding):
    display = "Mine"
    source = "the user"

class Half(Extension):
    display = "Half"
    slot = "positions"
    needs = POSITIONS
    def plan(self, encoding, seq_len, length):
        return Plan(position_scale=0.5)
"""


@pytest.fixture(scope="module")
def _marker(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("marker") / "the-code-has-run"


@pytest.fixture
def marker(_marker) -> Path:
    """Is there once the code has run."""
    _marker.unlink(missing_ok=True)
    return _marker


@pytest.fixture
def code(tmp_path, marker) -> Path:
    """A file of the user's own, which has not run in this process yet."""
    file = tmp_path / "mine.py"
    file.write_text(CODE.format(marker=str(marker)) + f"# {tmp_path}\n")
    return file


@pytest.fixture
def another_user(tmp_path, monkeypatch, marker):
    """From here on, somebody who has run nothing yet."""

    def call() -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
        monkeypatch.setattr(trust, "_now", set())
        marker.unlink(missing_ok=True)

    return call


@pytest.fixture(scope="module")
def _sent(quietly, trained, tiny, _marker, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sent")
    (folder / "mine.py").write_text(CODE.format(marker=str(_marker)))
    shutil.copytree(trained / "rope", folder / "ckpt/rope")
    quietly("train", "--pe", folder / "mine.py:Mine", *tiny, "--out", folder / "ckpt/mine")
    quietly("eval-lengths", folder / "ckpt", *FEW)
    return folder / "ckpt"


@pytest.fixture
def sent(_sent, ckpt, another_user) -> Path:
    """A trained run with a file of its own encoding, from another user; it is evaluated, and so is the run rope."""
    shutil.copytree(_sent, ckpt, dirs_exist_ok=True)
    another_user()
    return ckpt / "mine"


class TestACopyInARun:
    def test_it_runs_only_once_it_is_trusted(self, cli, sent, marker) -> None:
        message = cli("eval-lengths", sent.parent, *FEW).error(1)  # the other run is evaluated
        assert f"{sent / 'encoding.py'} is code that came with data" in message
        assert "--trust-code" in message
        assert not marker.exists()
        cli("eval-lengths", sent, *FEW, "--trust-code").succeeded()
        assert marker.exists()
        marker.unlink()
        cli("train", "--config", sent / "config.json", "--out", "again").succeeded()  # it is known now
        assert marker.exists()

    @pytest.mark.usefixtures("without_pictures")
    def test_what_only_reads_runs_nothing(self, cli, sent, marker, tmp_path) -> None:
        cli("report", sent.parent, "--out", tmp_path / "report").succeeded()
        cli("compare", sent.parent).succeeded()
        assert Run.open(sent).config.encoding.name == "mine.py:Mine"
        assert not marker.exists()

    @pytest.mark.parametrize("command", ["from", "config", "resume"])
    def test_trust_is_asked_by_every_command_that_runs_it(self, cli, sent, marker, command) -> None:
        if command == "resume":  # as if it had been stopped before its first state was saved
            for name in ("model.safetensors", "metrics.parquet"):
                (sent / name).unlink()
        arguments = {
            "from": ["--from", sent, "--out", "tuned", "--tokens", 512],
            "config": ["--config", sent / "config.json", "--out", "again"],
            "resume": ["--out", sent, "--resume"],
        }[command]
        assert "--trust-code" in cli("train", *arguments).error()
        assert not marker.exists()
        cli("train", *arguments, "--trust-code").succeeded()
        assert marker.exists()

    def test_a_home_that_cannot_be_written_is_no_failure(self, cli, sent, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", "/proc")
        cli("eval-lengths", sent, *FEW, "--trust-code").succeeded()

    def test_an_extension_of_the_runs_own(self, cli, ckpt, code, another_user, marker) -> None:
        tune = ["--from", ckpt / "rope", "--tokens", 512, "--out", "tuned"]
        cli("train", *tune, "--extend", f"{code}:Half").succeeded()
        another_user()
        message = cli("eval-lengths", "tuned", *FEW).error()
        assert f"tuned/extensions/{hashlib.sha256(code.read_bytes()).hexdigest()}.py is code that" in message
        assert not marker.exists()
        cli("eval-lengths", "tuned", *FEW, "--trust-code").succeeded()
        assert marker.exists()


class TestAPathInAConfiguration:
    def test_a_run_names_no_file_but_its_copies(self, cli, ckpt, code, marker) -> None:
        run = ckpt / "rope"
        shutil.copy(code, run / "encoding.py")
        whole = files.read_sealed(run / "config.json")
        both = f"{code}:Half + {code}:Half"
        for changed in (
            {"encoding": {"name": f"{code}:Mine", "arguments": {}, "file_sha256": None}},
            {"encoding": {"name": f"{run / 'encoding.py'}:Mine", "arguments": {}, "file_sha256": None}},
            {"extension": both, "extension_sha256": None},
            {"extension": both, "extension_sha256": "../../mine"},
        ):
            files.write_sealed(run / "config.json", whole | {"config": whole["config"] | changed})
            for arguments in (
                ["eval-lengths", run, *FEW],
                ["train", "--from", run, "--out", "tuned"],
                ["train", "--config", run / "config.json", "--out", "again"],
            ):
                assert "config.json is damaged: " in cli(*arguments, "--trust-code").error()
            assert not marker.exists()

    def test_a_file_of_settings_may_name_one_that_is_trusted(self, cli, tiny, code, marker, tmp_path) -> None:
        (tmp_path / "study.toml").write_text(f'[encoding]\nname = "{code}:Mine"\n')
        arguments = ["train", "--config", "study.toml", *tiny, "--out", "run"]
        assert f"{code} is code that came with data" in cli(*arguments).error()
        assert not marker.exists()
        cli(*arguments, "--trust-code").succeeded()
        assert marker.exists()


class TestWhatLiesBeside:
    """What comes with a folder, beside what is checked, runs or writes nothing."""

    def test_a_compiled_file_beside_the_copy_does_not_run(self, cli, sent, marker, tmp_path) -> None:
        cli("eval-lengths", sent, *FEW, "--trust-code").succeeded()
        marker.unlink()
        evil = tmp_path / "evil.py"
        evil.write_text(f"open({str(tmp_path / 'evil-ran')!r}, 'w')\n" + (sent / "encoding.py").read_text())
        (sent / "__pycache__").mkdir(exist_ok=True)
        compiled = sent / "__pycache__" / f"encoding.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(evil), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        cli("eval-lengths", sent, *FEW).succeeded()
        assert marker.exists()
        assert not (tmp_path / "evil-ran").exists()

    def test_no_process_of_a_command_imports_a_module_of_the_current_folder(self, process, tmp_path) -> None:
        """Python puts that folder first for `python -c`, by which torch and multiprocessing start processes."""
        (tmp_path / "struct.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        started = 'subprocess.run([sys.executable, "-c", "import struct"], check=True).returncode'
        program = f"import subprocess, sys; from extrapolate import cli; cli._run = lambda *_: {started}; cli.main()"
        process(program=[sys.executable, "-P", "-c", program]).succeeded()
        assert not (tmp_path / "ran").exists()

    def test_a_link_in_a_run_is_not_written_through(self, cli, tiny, ckpt, tmp_path) -> None:
        run, victim = ckpt / "rope", tmp_path / "rc"
        victim.write_text("mine")
        for file in ("model.safetensors", "metrics.jsonl"):
            (run / file).unlink()
        (run / "metrics.jsonl").symlink_to(victim)
        cli("train", "--pe", "rope", *tiny, "--out", run, "--resume", "--keep-every", 2048)
        assert victim.read_text() == "mine"

    def test_links_in_a_folder_of_runs_are_not_followed(self, cli, ckpt, tmp_path, contents) -> None:
        """A stranger's folder could lead to your runs, or through the whole disk."""
        (tmp_path / "mine").mkdir()
        mine = (ckpt / "none").rename(tmp_path / "mine/none")
        (ckpt / "yours").symlink_to(mine)
        (ckpt / "disk").symlink_to("/")
        (ckpt / "learned").rename(tmp_path / "learned")
        before = contents(mine)
        ended = cli("eval-lengths", ckpt / "rope", ckpt, *FEW).succeeded()
        told = f"left out, for they are links, which are not followed: {ckpt}/disk, {ckpt}/yours; name them"
        assert told in ended.err
        assert contents(mine) == before
        cli("eval-lengths", ckpt / "yours", *FEW).succeeded()  # named: the user means it
        assert contents(mine) != before

    @pytest.mark.parametrize("place", ["runs", "report", "runs/rope-s0"])
    def test_a_study_does_not_write_through_links(self, cli, tmp_path, place) -> None:
        (tmp_path / "study.toml").write_text('[axes]\nencoding = ["rope"]\n')
        (tmp_path / "victim").mkdir()
        (tmp_path / "out" / place).parent.mkdir(parents=True)
        (tmp_path / "out" / place).symlink_to(tmp_path / "victim")
        assert f"out/{place} is a link: replace it with a folder" in cli("sweep", "study.toml", "--out", "out").error()
        assert list((tmp_path / "victim").iterdir()) == []


TUNED = '[[fine_tune]]\nname = "tuned"\ntokens = 512\n'
STORE = '[[store]]\npath = "{path}"\nsource = "{source}"\nvocab_size = 300\nmin_heldout_tokens = 300\n'


class TestAStudy:
    """Whoever sends a study's file decides neither what runs nor what is written outside its folder."""

    @pytest.fixture
    def study(self, small_study, store, tmp_path):
        """Writes a study's file."""

        def write(old: str = "", new: str = "", data: object = store) -> Path:
            assert old in small_study
            text = small_study.replace(old, new, 1) if old else small_study + new
            (tmp_path / "study.toml").write_text(text.replace(str(store), str(data)))
            return tmp_path / "study.toml"

        return write

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('encoding = ["rope"]', 'encoding = ["rope", "mine.py:Mine"]'),
            ('encoding = ["rope"]', 'encoding = ["rope"]\n[[cell]]\nencoding = "mine.py:Mine"'),
            ('[axes]\nencoding = ["rope"]', 'encoding = "mine.py:Mine"\n[axes]\nseed = [0]'),
            ("", 'extend = ["pi + mine.py:Half"]'),
            ("", 'extend = [{extend = "mine.py:Half", of = {encoding = "rope"}}]'),
            ("", TUNED + 'extend = "mine.py:Half"'),
            ("", TUNED + 'encoding = "mine.py:Mine"'),
        ],
    )
    @pytest.mark.usefixtures("code")
    def test_what_it_names_runs_only_once_it_is_trusted(self, refused, study, marker, old, new) -> None:
        file = study(old, new)
        for flags in ([], ["--dry-run"]):
            refused(["sweep", file, "--jobs", 1, *flags], f"{file}, line ", "mine.py is code that", "--trust-code")
        assert not marker.exists()

    def test_what_is_trusted_needs_no_second_word_until_it_is_changed(
        self, cli, study, code, marker, tmp_path, monkeypatch
    ) -> None:
        """Changed while the command runs, too: a process of a cell reads the file anew."""
        sweep = ("sweep", study("", TUNED + 'extend = "mine.py:Half"'), "--jobs", 1, "--array", "0/1")
        run, ran = local.run, tmp_path / "the changed one ran"

        def change_and_run(*arguments) -> None:
            code.write_text(f"{code.read_text()}\nopen({str(ran)!r}, 'w')\n")
            run(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(local, "run", change_and_run)
            ended = cli(*sweep, "--trust-code")
        assert ended.code == 1
        assert "mine.py was changed since the command began: run the same command again" in ended.err
        assert not ran.exists()
        assert "--trust-code" in cli(*sweep).error()
        cli(*sweep, "--trust-code").succeeded()
        assert ran.exists()
        cli(*sweep).succeeded()

    def test_a_name_of_the_files_leads_nowhere_else(self, refused, study, tmp_path) -> None:
        file = study("", '[scale."../../elsewhere".base]\ntokens = 512\n')
        words = ("a folder in sweeps cannot be called '", "--out")
        refused(["sweep", file, "--dry-run", "--scale", "../../elsewhere"], *words)
        refused(["sweep", file.rename(tmp_path / "...toml"), "--dry-run"], *words)

    def test_a_dry_run_makes_no_store(self, refused, study, corpus) -> None:
        file = study("", STORE.format(path="data/new", source=f"{corpus}/*"), data="data/new")
        made = f"extrapolate tokenize '{corpus}/*' --out data/new --vocab-size 300 --min-heldout-tokens 300"
        refused(["sweep", file, "--dry-run"], "and a dry run writes nothing: make it with: " + made)

    @pytest.mark.parametrize("path", ["../new", "link/new", "dangling"])
    def test_a_store_elsewhere_is_not_made(self, cli, study, corpus, tmp_path, monkeypatch, path) -> None:
        outside, here = tmp_path / "outside", tmp_path / "here"
        outside.mkdir()
        here.mkdir()
        monkeypatch.chdir(here)
        Path("link").symlink_to(outside)
        Path("dangling").symlink_to(outside / "new")
        message = cli("sweep", study("", STORE.format(path=path, source=corpus), data=path)).error()
        assert f"{path} is neither in the study's folder sweeps/study nor in the current one: make it with: " in message
        assert {one.name for one in tmp_path.iterdir()} == {"outside", "here", "study.toml"}
        assert not list(outside.iterdir())

    def test_a_store_in_the_folder_of_the_study_is_made(self, cli, study, corpus, tmp_path, monkeypatch) -> None:
        path = tmp_path / "out" / "store"
        (tmp_path / "here").mkdir()
        file = study("", 'extend = ["yarm"]\n' + STORE.format(path=path, source=corpus), data=path)
        monkeypatch.chdir(tmp_path / "here")
        assert "unknown extension 'yarm'" in cli("sweep", file, "--out", tmp_path / "out").error()  # seen later
        assert (path / "manifest.json").is_file()
