"""What the tests of several commands share."""

import contextlib
import shutil

import pytest

from extrapolate.cli import main
from extrapolate.results import kept
from extrapolate.training import loop

BAD_INPUT, FAILED = 2, 1


@pytest.fixture
def refused(cli, contents, leftovers, tmp_path):
    """Runs a command that must fail with one message, these words in it, and every file as it was before."""

    def call(arguments, *words, code=BAD_INPUT):
        before = contents(tmp_path)
        message = cli(*arguments).error(code)
        for word in words:
            assert word in message, message
        assert contents(tmp_path) == before
        assert not leftovers(tmp_path)
        return message

    return call


def _quietly(*arguments, code=0):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    assert (ended.value.code or 0) == code, arguments


@pytest.fixture(scope="session")
def quietly():
    """Runs a command that ends with this code, 0 if none is named. For fixtures that several tests share."""
    return _quietly


@contextlib.contextmanager
def dying_after(steps):
    """Trainings inside the `with` fail after this step."""
    tell_row = loop.Training._tell_row

    def stop(self, values):
        tell_row(self, values)
        if self.step == steps:
            raise RuntimeError("the power is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Training, "_tell_row", stop)
        yield


@pytest.fixture(scope="session")
def dies_after():
    """dying_after."""
    return dying_after


@pytest.fixture(scope="session")
def _half(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("half") / "half"
    with dying_after(5):
        _quietly("train", "--pe", "rope", *tiny, "--save-every", 512, "--out", folder, code=FAILED)
    assert (folder / "state.safetensors").is_file()
    return folder


@pytest.fixture
def state_of_half(_half, tmp_path):
    """`half` in the test's own folder: a run that failed on its way, with a saved state and no weights."""
    return shutil.copytree(_half, tmp_path / "half")


@pytest.fixture(scope="session")
def damage_rows():
    """Puts a damaged file where a run keeps the rows of one setting as trained, and returns what is said of it."""

    def damage(run, asked):
        path = kept.folder_of(run, (kept.weights_in(run) or [""])[0]) / asked / "as-trained.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1 and then nothing")
        return f"{path} is damaged"

    return damage
