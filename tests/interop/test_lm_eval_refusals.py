"""What `eval-tasks` refuses: mistyped settings, damaged tables, and code that nobody trusted."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.results import kept

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
pytestmark = pytest.mark.usefixtures("offline")

KNOWN = Path(lm_eval.__file__).parent / "tasks"
HELLASWAG, ARC = KNOWN / "hellaswag", KNOWN / "arc"


@pytest.mark.usefixtures("few_tasks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "hellaswagg"], "lm-eval has no task 'hellaswagg'"),
        (["--tasks", "hellaswag", "--include-path", "nowhere"], "--include-path nowhere is no folder"),
        (["--tasks", "hellaswag", "--include-path", HELLASWAG, "--trust-code"], r"cannot be loaded: .*--data-dir"),
        (["--tasks", "hellaswag", "--extend", "yran"], "unknown extension 'yran'"),
        (["--tasks", "hellaswag", "--extend", "expe-scale"], "expe-scale does not apply to RoPE"),
        (["--tasks", "hellaswag", "--extend", "temperature", "--length", "64"], "leaves a constant out"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments: list[Any], message: str, ckpt: Path, cli: Any) -> None:
    assert re.search(message, cli("eval-tasks", ckpt / "rope", *arguments).error())
    assert not (ckpt / "rope/results").exists()


def test_a_task_that_runs_what_a_model_writes_is_refused(tmp_path: Path, copies: Path, ckpt: Path) -> None:
    shutil.copytree(ARC, tmp_path / "tasks")
    with (tmp_path / "tasks/arc_easy.yaml").open("a") as file:
        file.write("unsafe_code: true\n")
    with pytest.raises(xt.UserError, match="the task arc_easy runs what a model writes"):
        xt.evaluate_tasks(ckpt / "rope", "arc_easy", include_path=tmp_path / "tasks", data_dir=copies, trust_code=True)


@pytest.mark.usefixtures("few_tasks")
@pytest.mark.parametrize("by", ["a function", "a template"])
def test_a_folder_of_tasks_runs_only_once_it_is_trusted(by: str, ckpt: Path, tmp_path: Path, cli: Any) -> None:
    """A YAML file needs no Python file beside it: it can call any function, and its templates reach all of Python."""
    ran, own = tmp_path / "ran", tmp_path / "own"
    own.mkdir()
    (own / "sky.jsonl").write_text(json.dumps({"text": "The sky is"}) + "\n")
    (own / "marks.py").write_text(f"open({str(ran)!r}, 'w')\ndef text(doc): return doc['text']\n")
    template = "{{ cycler.__init__.__globals__.os.makedirs('" + str(ran) + "', exist_ok=True) or text }}"
    text = "!function marks.text" if by == "a function" else json.dumps(template)
    (own / "sky.yaml").write_text(
        f"task: sky\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {own}/sky.jsonl}}}}\ntest_split: test\n"
        f"output_type: multiple_choice\ndoc_to_text: {text}\ndoc_to_choice: [blue, red]\ndoc_to_target: 0\n"
    )
    if by == "a template":
        (own / "marks.py").unlink()
    asked = ["eval-tasks", ckpt / "rope", "--tasks", "sky", "--include-path", own, "--length", 48, "--device", "cpu"]
    assert "is code that came with data" in cli(*asked).error()
    assert not ran.exists()
    cli(*asked, "--trust-code").succeeded()
    assert ran.exists()


def test_a_damaged_table_is_refused_before_anything_is_asked(ckpt: Path, cli: Any) -> None:
    (weights,) = xt.load(ckpt / "rope").checkpoints("last")
    damaged = kept.folder_of(ckpt / "rope", weights.sha256) / "tasks/hellaswag/as-trained.parquet"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"PAR1 and then nothing")
    assert f"{damaged} is damaged" in cli("eval-tasks", ckpt / "rope", "--tasks", "hellaswag").error()


def test_without_lm_eval_the_error_says_what_to_install(ckpt: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert "pip install 'extrapolate[lm-eval]'" in cli("eval-tasks", ckpt / "rope", "--tasks", "hellaswag").error()


@pytest.mark.parametrize("given", ["data_dir", "the current folder"])
def test_no_script_runs_in_place_of_a_metric(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_tasks: None, given: str
) -> None:
    """`evaluate` prefers a folder with the name of a metric; humaneval loads code_eval."""
    (tmp_path / "code_eval").mkdir()
    (tmp_path / "code_eval/code_eval.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path if given != "data_dir" else trained)
    with pytest.raises(xt.UserError, match="the metric code_eval would be the Python file in"):
        xt.evaluate_tasks(trained / "rope", ["humaneval"], data_dir=tmp_path if given == "data_dir" else None)
    assert not (tmp_path / "ran").exists()
