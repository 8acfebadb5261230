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
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
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
    def test_a_run_names_no_file_but_its_copy(self, cli, ckpt, code, marker) -> None:
        run = ckpt / "rope"
        shutil.copy(code, run / "encoding.py")
        for name in (code, run / "encoding.py"):
            self.change(run, encoding={"name": f"{name}:Mine", "arguments": {}, "file_sha256": None})
            self.refused(cli, run, marker)

    def test_nor_for_its_extension(self, cli, ckpt, code, marker) -> None:
        for hashes in (None, "0" * 64, "../../mine", "../../mine+" + "0" * 64):
            self.change(ckpt / "rope", extension=f"{code}:Half + {code}:Half", extension_sha256=hashes)
            self.refused(cli, ckpt / "rope", marker)

    @staticmethod
    def change(run: Path, **changed: object) -> None:
        record = files.read_sealed(run / "config.json")
        record["config"] |= changed
        files.write_sealed(run / "config.json", record)

    @staticmethod
    def refused(cli, run: Path, marker: Path) -> None:
        for arguments in (
            ["eval-lengths", run, *FEW],
            ["train", "--from", run, "--out", "tuned"],
            ["train", "--config", run / "config.json", "--out", "again"],
        ):
            for trusting in ([], ["--trust-code"]):
                assert "config.json is damaged: " in cli(*arguments, *trusting).error()
        assert "config.json is damaged: " in cli("eval-lengths", run.parent, *FEW, "--trust-code").error(1)
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

    def test_a_hash_without_its_file_is_not_trusted(self, cli, sent, code) -> None:
        evil = hashlib.sha256(b"evil").hexdigest()
        record = files.read_sealed(sent / "config.json")
        record["config"] |= {"extension": "x.py:Ghost", "extension_sha256": evil}
        files.write_sealed(sent / "config.json", record)
        cli("eval-lengths", sent, *FEW, "--trust-code").error()
        for sha256 in (evil, hashlib.sha256(code.read_bytes()).hexdigest()):  # nor is the other one: it never ran
            with pytest.raises(files.UserError):
                trust.check(sha256, code)

    def test_a_folder_called_as_a_function_of_a_file_runs_nothing(self, cli, ckpt, code, marker, monkeypatch) -> None:
        monkeypatch.chdir(ckpt)
        shutil.copy(code, "evil.py")
        Path("evil.py:load").mkdir()
        cli("eval-lengths", "rope", "evil.py:load", *FEW).error()
        assert not marker.exists()

    def test_no_process_of_a_command_imports_a_module_of_the_current_folder(self, process, tmp_path) -> None:
        """Python puts that folder first for `python -c`, by which torch and multiprocessing start processes."""
        (tmp_path / "struct.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        started = 'subprocess.run([sys.executable, "-c", "import struct"], check=True).returncode'
        program = f"import subprocess, sys; from extrapolate import cli; cli._run = lambda *_: {started}; cli.main()"
        process(program=[sys.executable, "-P", "-c", program]).succeeded()
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints"])
    def test_a_link_in_a_run_is_not_written_through(self, cli, tiny, ckpt, tmp_path, name) -> None:
        run, victim = ckpt / "rope", tmp_path / "victim"
        victim.mkdir()
        (victim / "rc").write_text("mine")
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        for file in ("model.safetensors", "metrics.jsonl"):
            (run / file).unlink()
        (run / name).symlink_to(victim if name == "checkpoints" else victim / "rc")
        cli("train", "--pe", "rope", *tiny, "--out", run, "--resume", "--keep-every", 2048)
        assert [path.name for path in victim.iterdir()] == ["rc"]
        assert (victim / "rc").read_text() == "mine"

    def test_links_in_a_folder_of_runs_are_not_followed(self, cli, ckpt, tmp_path, contents) -> None:
        """A stranger's folder could lead to your runs, or through the whole disk."""
        (tmp_path / "mine").mkdir()
        mine = (ckpt / "none").rename(tmp_path / "mine/none")
        (ckpt / "yours").symlink_to(mine)
        (ckpt / "disk").symlink_to("/")
        before = contents(mine)
        ended = cli("eval-lengths", ckpt / "rope", ckpt, *FEW).succeeded()
        told = f"left out, for they are links, which are not followed: {ckpt}/disk, {ckpt}/yours; name them"
        assert told in ended.err
        assert contents(mine) == before
        assert told in cli("report", ckpt).succeeded().err
        cli("eval-lengths", ckpt / "yours", *FEW).succeeded()  # named: the user means it
        assert contents(mine) != before

    @pytest.mark.parametrize("place", ["runs", "state", "report", "runs/rope-s0"])
    def test_a_study_does_not_write_through_links(self, cli, tmp_path, place) -> None:
        (tmp_path / "study.toml").write_text('[axes]\nencoding = ["rope"]\n')
        (tmp_path / "victim").mkdir()
        (tmp_path / "out" / place).parent.mkdir(parents=True)
        (tmp_path / "out" / place).symlink_to(tmp_path / "victim")
        assert f"out/{place} is a link: replace it with a folder" in cli("sweep", "study.toml", "--out", "out").error()
        assert list((tmp_path / "victim").iterdir()) == []


STUDY = """
[base]
data = "{data}"
seq_len = 16
tokens = 1024
batch_tokens = 512
layers = 1
precision = "fp32"
compile = false
[axes]
encoding = ["rope"]
[evaluate]
factors = [1]
protocols = ["windows"]
max_targets = 256
"""
TUNED = '[[fine_tune]]\nname = "tuned"\ntokens = 512\n'
STORE = '[[store]]\npath = "{path}"\nsource = "{source}"\nvocab_size = 300\nmin_heldout_tokens = 300\n'


class TestAStudy:
    """Whoever sends a study's file decides neither what runs nor what is written outside its folder."""

    @pytest.fixture
    def study(self, store, tmp_path):
        """Writes a study's file."""

        def write(old: str = "", new: str = "", data: object = store) -> Path:
            assert old in STUDY
            file = tmp_path / "study.toml"
            file.write_text(STUDY.format(data=data).replace(old, new, 1) if old else STUDY.format(data=data) + new)
            return file

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
    def test_what_it_names_runs_only_once_it_is_trusted(self, cli, refused, study, marker, tmp_path, old, new) -> None:
        file = study(old, new)
        for flags in ([], ["--dry-run"], ["--array", "0/2"]):
            words = (f"{file}, line ", "mine.py is code that", "--trust-code")
            refused(["sweep", file, "--jobs", 1, *flags], *words)
        cli("status", tmp_path).succeeded()
        assert not marker.exists()

    def test_what_is_trusted_needs_no_second_word(self, cli, study, code, marker) -> None:
        file = study("", TUNED + 'extend = "mine.py:Half"')
        sweep = ("sweep", file, "--jobs", 1, "--array", "0/1")
        cli(*sweep, "--trust-code").succeeded()
        assert marker.exists()
        cli(*sweep).succeeded()
        code.write_text(code.read_text() + "# changed\n")
        assert "--trust-code" in cli(*sweep).error()

    @pytest.mark.parametrize(
        ("old", "new"),
        [('["rope"]', '["mine.py:Mine"]'), ("", 'extend = ["mine.py:Half"]'), ("", TUNED + 'extend = "mine.py:Half"')],
    )
    def test_what_is_changed_after_it_was_checked_does_not_run(
        self, cli, study, code, tmp_path, monkeypatch, old, new
    ) -> None:
        """A process of a cell reads the file anew."""
        run, ran = local.run, tmp_path / "the changed one ran"

        def change_and_run(*arguments) -> None:
            code.write_text(f"{code.read_text()}\nopen({str(ran)!r}, 'w')\n")
            run(*arguments)

        monkeypatch.setattr(local, "run", change_and_run)
        sweep = ("sweep", study(old, new), "--jobs", 1, "--array", "0/1", "--trust-code")
        ended = cli(*sweep)
        assert ended.code == 1
        assert "mine.py was changed since the command began: run the same command again" in ended.err
        assert not ran.exists()
        monkeypatch.setattr(local, "run", run)
        cli(*sweep).succeeded()
        assert ran.exists()

    @pytest.mark.parametrize(
        ("name", "scale"), [("...toml", []), ("..toml", []), ("study.toml", ["--scale", "../../elsewhere"])]
    )
    def test_its_name_leads_nowhere_else(self, refused, study, tmp_path, name, scale) -> None:
        file = study("", '[scale."../../elsewhere".base]\ntokens = 512\n').rename(tmp_path / name)
        refused(["sweep", file, "--dry-run", *scale], "a folder in sweeps cannot be called '", "--out")

    @pytest.mark.parametrize("path", ["data/new", "/new", None])
    def test_a_dry_run_writes_nothing(self, refused, study, corpus, path) -> None:
        file = study()
        if path is None:
            file.write_text(file.read_text().partition("\n")[2].replace('data = "', '# "'))
            made = "stdlib --out data/stdlib"
        else:
            file = study("", STORE.format(path=path, source=f"{corpus}/*"), data=path)
            made = f"'{corpus}/*' --out {path} --vocab-size 300 --min-heldout-tokens 300"
        refused(
            ["sweep", file, "--dry-run"], "and a dry run writes nothing: make it with: extrapolate tokenize " + made
        )

    @pytest.mark.parametrize("flags", [["--dry-run"], []])
    def test_what_lies_beside_a_store_elsewhere_stays(self, cli, study, tmp_path, monkeypatch, flags) -> None:
        (tmp_path / "here").mkdir()
        path = tmp_path / "books"
        path.mkdir()
        (tmp_path / ".books.partial").mkdir()
        (tmp_path / ".books.lock").touch()
        file = study("", STORE.format(path=path, source="stdlib"), data=path)
        monkeypatch.chdir(tmp_path / "here")
        assert f"{path} already exists and is not a token store" in cli("sweep", file, *flags).error()
        assert {".books.partial", ".books.lock"} <= {one.name for one in tmp_path.iterdir()}

    @pytest.mark.parametrize("path", ["{outside}/new", "../new", "link/new", "dangling"])
    def test_a_store_elsewhere_is_not_made(self, cli, study, corpus, tmp_path, monkeypatch, path) -> None:
        outside, here = tmp_path / "outside", tmp_path / "here"
        outside.mkdir()
        here.mkdir()
        monkeypatch.chdir(here)
        Path("link").symlink_to(outside)
        Path("dangling").symlink_to(outside / "new")
        path = path.format(outside=outside)
        file = study("", STORE.format(path=path, source=corpus), data=path)
        message = cli("sweep", file).error()
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
