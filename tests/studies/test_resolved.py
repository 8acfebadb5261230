"""Cells made ready: which extensions each is evaluated with, and what is refused with its line."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.studies import sweep
from extrapolate.studies.resolved import _not_kept

EXAMPLES = Path(__file__).parents[2] / "examples"
AXES = '[axes]\nencoding = ["rope", "alibi"]\n'  # lines 13 and 14


def test_an_extension_is_for_the_cells_that_it_names_and_applies_to(small, resolved) -> None:
    extend = 'extend = ["yarn:factor=2", {extend = "pi", of = {encoding = "alibi"}}]\n'
    rope, alibi = resolved(small(extend + AXES))[1]
    assert rope.evaluation.extend == ("yarn:factor=2",)
    assert alibi.evaluation.extend == ("pi",)
    assert alibi.left_out.keys() == {"yarn:factor=2"}
    assert not rope.left_out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("factors = [1]", 'extend = ["pi",\n"yarm"]', "line 10: unknown extension 'yarm'"),
        ("factors = [1]", 'extend = [{extend = "ntk", of = {encoding = "alibi"}}]', "line 10: ntk applies to no cell"),
        ('"alibi"', '"alibo"', "line 14: cell alibo-s0: unknown encoding 'alibo'"),
        ("tokens = 1024", "tokens = 5", "line 4: cell rope-s0: configuration: training: `tokens=5` is less"),
        ("tokens = 1024", "tokens = 1024\nwidth = 24\nheads = 5", "line 5: cell rope-s0: `width=24` cannot be"),
        ("factors = [1]", "factors = [1, 5000]", "line 10: cell rope-s0: windows: the limit of 512 targets holds no"),
        ("max_targets = 512", "max_targets = 512\nprecisions = ['fp8']", "line 13: cell rope-s0: unknown precision"),
        ('["windows"]', '["window"]', "line 11: unknown protocol 'window'"),
        ("max_targets = 512", 'split = "train"', "line 12: cell rope-s0: there is no held-out split 'train'"),
    ],
)
def test_what_is_refused_has_its_line(small, resolved, old: str, new: str, message: str) -> None:
    file = small(AXES)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as raised:
        resolved(file)
    assert str(raised.value).startswith(f"{file}, {message}")


def test_a_dry_run_takes_a_file_that_the_user_names_and_keeps_no_record(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    nothing = SimpleNamespace(training_s=Counter(), evaluation_s=Counter())
    monkeypatch.setattr(sweep, "estimate", lambda *_: nothing)
    Path("mine.py").write_text((EXAMPLES / "my_encoding.py").read_text() + "# nobody has run this text\n")
    table, _ = sweep.estimate_sweep(small(AXES), encodings=["mine.py:LogBias:strength=2"], jobs=1)
    assert table["encoding"].tolist() == ["mine.py:LogBias:strength=2"]
    assert not (tmp_path / "settings").exists()


def test_checkpoints_are_where_keep_every_puts_them(store: Path, tmp_path: Path) -> None:
    """Steps of 512 tokens: the first checkpoint is kept after 1,024 of them, or there is none before the last."""
    sizes = {"layers": 1, "seq_len": 16, "batch_tokens": 512, "tokens": 2100, "precision": "fp32", "compile": False}
    kept = xt.train("rope", data=store, out=tmp_path / "kept", keep_every=1000, **sizes)
    none = xt.train("rope", data=store, out=tmp_path / "none", **sizes)
    assert [_not_kept(kept, keep_every) for keep_every in (None, 600, 1000, 1024)] == [[]] * 4
    assert _not_kept(kept, 512) == ["keep_every: its first checkpoint is at 1,024 tokens"]
    assert _not_kept(none, 1000) == ["keep_every: it kept no checkpoints"]
    assert [_not_kept(none, keep_every) for keep_every in (None, 2048, 9000)] == [[]] * 3
