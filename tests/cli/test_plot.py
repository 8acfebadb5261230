"""`extrapolate encodings NAME --plot FILE`."""

import pytest

import extrapolate as xt
from extrapolate.runs import trust

OWN = (
    "from extrapolate.encodings.base import Encoding\n"
    "class Mine(Encoding):\n    '''Does. Source: here.'''\n    display = '$Mi_ne <b>'\n    source = 'here'\n"
    "    def bias(self, pos_T, pos_S): return -0.1 * (pos_T[:, None] - pos_S[None])[None]\n"
)


def test_several_are_drawn_side_by_side(cli, tmp_path, trained):
    (tmp_path / "mine.py").write_text(OWN)
    ended = cli(
        "encodings", "rope:theta=500000", "none", trained / "learned", "mine.py:Mine", "--plot", "made/looks.svg"
    ).succeeded()
    assert ended.err == "wrote made/looks.svg\n"
    assert not ended.out
    assert "<svg" in (tmp_path / "made/looks.svg").read_text()


def titles(figure):
    return [panel.get_title() for panel in figure.axes if panel.get_title()]


def curves(figure, column, columns):
    """Names of the lines of scores against distance, and their numbers."""
    panel = figure.axes[3 * columns + column] if columns > 1 else figure.axes[3]
    return {line.get_label(): line.get_ydata() for line in panel.lines if not line.get_label().startswith("_")}


def test_a_run_shows_its_own_parameters_and_length(trained):
    table = xt.load(trained / "learned").model.encoding.table_LD.detach()
    figure = xt.plot_encodings([trained / "learned", "none"])
    assert titles(figure) == ["Learned, run learned\nadded to the embedding", "NoPE"]
    (image,) = figure.axes[0].images
    assert image.get_array().tolist() == table.T.tolist()
    found = curves(figure, 0, 2)
    assert list(found) == ["window of 16 L: n/a", "window of L"]
    assert len(found["window of L"]) == 16


def test_scores_are_drawn_before_and_after_an_extension():
    found = curves(xt.plot_encodings("rope", extend="pi"), 0, 1)
    assert list(found) == ["window of 16 L", "16 L, PI", "window of L"]
    assert found["16 L, PI"][::16].tolist() == pytest.approx(found["window of 16 L"][:128].tolist(), abs=1e-4)


def test_what_cannot_be_drawn_is_refused(refused):
    for words, *arguments in (
        ("name at least one encoding", "--plot", "a.png"),
        (".png, .svg or .pdf", "rope", "--plot", "a.txt"),
        ("yarn does not apply to ALiBi", "rope", "alibi", "--extend", "yarn", "--plot", "a.png"),
        ("such as c=0.4", "rope", "--extend", "temperature", "--plot", "a.png"),
        ("--extend needs --plot FILE", "rope", "--extend", "pi"),
        ("give one of --plot and --json", "rope", "--plot", "a.png", "--json"),
        ("at most 8 columns", *["rope"] * 9, "--plot", "a.png"),
        ("is not a run", ".", "--plot", "a.png"),
    ):
        refused(["encodings", *arguments], words)


def test_code_that_came_with_a_run_does_not_run_unasked(cli, refused, tmp_path, tiny, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    cli("train", "--pe", "mine.py:Mine", *tiny, "--out", "run").succeeded()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr(trust, "_now", set())
    refused(["encodings", "run", "--plot", "a.png"], "--trust-code")
    cli("encodings", "run", "--plot", "a.png", "--trust-code").succeeded()
