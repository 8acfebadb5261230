"""An extension of the user's own file, in evaluations."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.extensions import stack
from extrapolate.runs.run import Run
from extrapolate.training.loop import own_plan

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "my_extension.py"
SPEC = f"{EXAMPLE}:RootScale"
FEWER = ["--factors", "1,4", "--max-targets", "256", "--protocol", "windows"]


def test_it_is_evaluated_and_its_file_is_kept(cli, ckpt: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    digest = hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    own, joined = "mine.py:RootScale:factor=4", "mine.py:RootScale:factor=4 + log-n"
    flags = [word for extend in (own, joined, "pi:factor=2") for word in ("--extend", extend)]
    assert "RootScale(4) + log-n" in cli("eval-lengths", "ckpt/rope", *FEWER, *flags).succeeded().out
    rows = xt.rows(ckpt / "rope").set_index(["extension", "factor"])
    assert set(rows.loc[[own, joined], "extension_sha256"]) == {digest}
    assert rows.loc[["as-trained", "pi:factor=2"], "extension_sha256"].isna().all()
    assert (ckpt / "rope" / "extensions" / f"{digest}.py").read_bytes() == EXAMPLE.read_bytes()
    # The root of 4 is 2: the same plan as interpolation by 2.
    assert rows.loc[own, "loss"].tolist() == rows.loc["pi:factor=2", "loss"].tolist()


WARM = """
from extrapolate.extensions.base import Extension
from extrapolate.encodings.plan import Plan
class Warm(Extension):
    display, source, slot, needs = "Warm", "here", "scale", "logits"
    def plan(self, encoding, seq_len, length): return Plan(logit_scale=1.1)
"""


@pytest.mark.usefixtures("without_pictures")
def test_rows_of_an_edited_file_replace_those_of_before(cli, ckpt: Path, tmp_path: Path) -> None:
    """Also for an extension from two files. What is not evaluated again keeps its rows, under the old version."""
    own, other, flags = tmp_path / "pos ext.py", tmp_path / "logit ext.py", ["--max-targets", "256"]
    own.write_text(EXAMPLE.read_text() + '\n\nclass Second(RootScale):\n    display = "Second"\n')
    other.write_text(WARM)
    alone, both, second = f"{own.name}:RootScale", f"{own.name}:RootScale + {other.name}:Warm", f"{own.name}:Second"
    extend = [word for text in (alone, both, second) for word in ("--extend", text)]
    cli("eval-lengths", "ckpt/rope", "ckpt/expe", "--factors", "1,4", *flags, *extend).succeeded()
    cli("report", "ckpt/rope", "ckpt/expe").succeeded()
    assert "@" not in (tmp_path / "report/report.md").read_text()
    before, now = hashlib.sha256(own.read_bytes()).hexdigest()[:8], own.read_text().replace("factor**-0.5", "0.7")
    own.write_text(now)
    cli("eval-lengths", "ckpt/rope", "--factors", "4", *flags, *extend[:4]).succeeded()
    after, rows = hashlib.sha256(own.read_bytes()).hexdigest()[:8], xt.rows(ckpt / "rope")
    factors = rows.groupby("extension")["factor"].apply(set).to_dict()
    assert factors == {"as-trained": {1, 4}, alone: {4}, both: {4}, second: {1, 4}}
    cli("report", "ckpt/rope", "ckpt/expe").succeeded()
    page = (tmp_path / "report/report.md").read_text()
    for name in (f"RoPE + RootScale ({alone}@{after})", f"RoPE + Second ({second}@{before})",
                 f"ExPE + RootScale ({alone}@{before})"):  # fmt: skip
        assert name in page


def test_it_is_refused_with_the_reason(cli, ckpt: Path, tmp_path: Path) -> None:
    (tmp_path / "my_extension.py").write_text(EXAMPLE.read_text() + "\n")
    for extend, reason in (
        (f"{SPEC} + pi", "RootScale and PI both change the positions"),
        (f"{SPEC} + {SPEC}:factor=2", "RootScale is there twice"),
        (f"{SPEC}:facter=2", "did you mean 'factor'?"),
        (str(EXAMPLE), "name the class in it too"),
    ):
        assert reason in cli("eval-lengths", "ckpt/rope", *FEWER, "--extend", extend).error()
    both = ["--extend", SPEC, "--extend", "my_extension.py:RootScale:factor=2"]
    assert "two different files are called my_extension.py" in cli("eval-lengths", "ckpt/rope", *FEWER, *both).error()


def test_it_can_belong_to_a_run_which_keeps_the_file(cli, ckpt: Path, tmp_path: Path) -> None:
    """Trained, stopped and resumed, evaluated, and continued, from the run's copy: the user's own file is gone."""
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    digest = hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    tune = ["--from", "ckpt/rope", "--seq-len", 32, "--tokens", 512, "--out", "ckpt/tuned"]
    cli("train", *tune, "--extend", "mine.py:RootScale:factor=4").succeeded()
    run = Run.open(ckpt / "tuned")
    assert (run.config.extension, run.config.extension_sha256) == ("mine.py:RootScale:factor=4", digest)
    assert (run.path / "extensions" / f"{digest}.py").read_bytes() == EXAMPLE.read_bytes()
    (tmp_path / "mine.py").unlink()
    assert own_plan(run, run.build_model()).position_scale == 0.5
    cli("eval-lengths", "ckpt/tuned", *FEWER, "--extend", "without-own").succeeded()
    rows = xt.rows(run.path)
    assert set(rows["model"]) == {"RoPE + RootScale(4), tuned at 32", "RoPE, tuned at 32 with RootScale(4), taken off"}
    cli("train", "--from", "ckpt/tuned", "--tokens", 512, "--out", "ckpt/again").succeeded()
    again = Run.open(ckpt / "again")
    assert again.config.extension_sha256 == digest
    assert (again.path / "extensions" / f"{digest}.py").exists()
    assert again.config.config_hash() != run.config.config_hash()
    # The same steps with the extension of the package that makes the same plan give the same weights.
    cli("train", *tune[:-1], "ckpt/pi", "--extend", "pi:factor=2").succeeded()
    assert Run.open(ckpt / "pi").checkpoints("last")[0].sha256 == run.checkpoints("last")[0].sha256
    copy = run.path / "extensions" / f"{digest}.py"
    copy.write_text(copy.read_text() + "#")
    assert "was changed since training" in cli("eval-lengths", "ckpt/tuned", *FEWER).error()


def test_several_files_are_kept_in_their_order(cli, ckpt: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    (tmp_path / "other.py").write_text(WARM)
    hashes = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("other.py", "mine.py")]
    extend = "other.py:Warm + log-n + mine.py:RootScale:factor=4"
    cli("train", "--from", "ckpt/rope", "--tokens", 512, "--out", "ckpt/tuned", "--extend", extend).succeeded()
    run = Run.open(ckpt / "tuned")
    assert run.config.extension_sha256 == "+".join(hashes)
    for name in ("other.py", "mine.py"):
        (tmp_path / name).unlink()
    plan = own_plan(run, run.build_model())
    assert (plan.position_scale, plan.logit_scale) == (0.5, 1.1)
    assert [path.stem for path in sorted((run.path / "extensions").iterdir())] == sorted(hashes)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("return 3", "Mine: plan returned 3; expected Plan"),
        ("return Plan(window=-3)", "Mine: plan at 64 tokens has window=-3: give at least 1"),
        ("return Plan(scale=2)", "plan at 64 tokens failed: TypeError: "),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, plan: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(WARM.replace("return Plan(logit_scale=1.1)", plan).replace("Warm", "Mine"))
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(f"{tmp_path / 'mine.py'}:Mine").plan(None, 16, 64)
