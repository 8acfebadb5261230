"""What the tests of bad input and of damage share."""

import pytest

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


@pytest.fixture
def state_of_half(cli, tiny, tmp_path, monkeypatch):
    """A run that stopped on its way: it has a saved state and no weights."""
    from extrapolate.training import loop

    tell_row = loop.Training._tell_row

    def stop(self, values):
        tell_row(self, values)
        if self.step == 5:
            raise RuntimeError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(loop.Training, "_tell_row", stop)
        message = cli("train", "--pe", "rope", *tiny, "--save-every", 512, "--out", "half").error(FAILED)
    assert "the power is gone" in message
    assert (tmp_path / "half/state.safetensors").is_file()
    return tmp_path / "half"


@pytest.fixture(autouse=True)
def _causality_unasked(causality_unasked: None) -> None:
    """tests/training/test_causality.py asks."""
