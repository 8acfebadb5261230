"""What the tests of several commands share."""

import contextlib
import shutil

import pytest

from extrapolate.cli import main
from extrapolate.training import loop


@pytest.fixture
def refused(cli, contents, leftovers, tmp_path):
    """Runs a command that must fail with one message, these words in it, and every file as it was before."""

    def call(arguments, *words):
        before = contents(tmp_path)
        message = cli(*arguments).error()
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
def _dying_after(steps):
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
    """Trainings inside a `with` of it fail after this step."""
    return _dying_after


@pytest.fixture(scope="session")
def _half(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("half") / "half"
    with _dying_after(5):
        _quietly("train", "--pe", "rope", *tiny, "--save-every", 512, "--out", folder, code=1)
    assert (folder / "state.safetensors").is_file()
    return folder


@pytest.fixture
def state_of_half(_half, tmp_path):
    """`half` in the test's own folder: a run that failed on its way, with a saved state and no weights."""
    return shutil.copytree(_half, tmp_path / "half")


STUDY = """
[base]
data = "{store}"
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


@pytest.fixture(scope="session")
def small_study(store):
    """The text of a study of one cell."""
    return STUDY.format(store=store)
