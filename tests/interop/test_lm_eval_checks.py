"""Benchmarks check what a user's code sees in windows as long as theirs, and know what was asked and how."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import extrapolate as xt
from extrapolate.runs.run import Run

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
RunLM = pytest.importorskip("extrapolate.interop.lm_eval").RunLM

HEAD = """
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
    def embed(self, x, p):
        return x * p[:, None].cos() + (x.roll(-1, 1) if x.shape[1] > 32 else 0)
"""
ANSWER = [None, [1] * 20, [2] * 20]  # 39 inputs


def test_windows_as_long_as_those_of_the_task_are_checked_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(HEAD)
    run = xt.train(
        f"{tmp_path / 'mine.py'}:Mine", data=store, out=tmp_path / "run", seq_len=16, tokens=512, batch_tokens=256,
        width=32, layers=1, heads=2, precision="fp32",
    )  # fmt: skip
    model, asked = RunLM(run, length=8192), []
    with pytest.raises(xt.UserError, match=r"run: embed lets token .* at 39 tokens"):
        model._loglikelihood_tokens([ANSWER])
    monkeypatch.setattr("extrapolate.interop.lm_eval.check_longest", lambda *given: asked.extend(given[2]))
    for _ in range(2):
        model._loglikelihood_tokens([ANSWER, [None, [1], [2] * 8]])
    assert asked == [39]


TASKS = {
    "questions.jsonl": """
{"q": "one", "choices": [" a", " b"], "gold": 0}
{"q": "two", "choices": [" a", " b"], "gold": 1}
""",
    "base.yaml": """
dataset_path: json
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
    "plain.yaml": "task: plain\ninclude: base.yaml\n",
    "helped.yaml": "task: helped\ninclude: base.yaml\nprocess_results: !function utils.results\n",
    "both.yaml": """
group: both
task: [plain, helped]
aggregate_metric_list:
  - {metric: acc, weight_by_size: true}
""",
    "utils.py": """
from parts.best import best

def results(doc, found):
    return {"acc": float(best(found) == doc["gold"])}
""",
    "parts/best.py": """
def best(found):
    return max(range(len(found)), key=lambda at: found[at][0])
""",
}  # fmt: skip
CHANGES = {
    "a helper in a folder below": ("parts/best.py", "return max", "return min", {"helped", "both"}),
    "how a group is averaged": ("both.yaml", "weight_by_size: true", "weight_by_size: false", {"both"}),
}


@pytest.mark.parametrize(("file", "was", "now", "others"), CHANGES.values(), ids=CHANGES)
def test_ones_own_tasks_are_known_by_all_their_code(
    file: str, was: str, now: str, others: set[str], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = xt.train(
        "rope", data=store, out=tmp_path / "run", seq_len=16, tokens=512, batch_tokens=256, width=32, layers=1, heads=2,
        precision="fp32",
    )  # fmt: skip
    hashes = []
    for folder, changed in (("a", {}), ("b", {file: TASKS[file].replace(was, now)})):
        (tmp_path / folder / "parts").mkdir(parents=True)
        for name, text in {**TASKS, **changed}.items():
            at = f"dataset_kwargs: {{data_files: {{test: {tmp_path / folder / 'questions.jsonl'}}}}}\n"
            (tmp_path / folder / name).write_text((at if name == "base.yaml" else "") + text.lstrip())
        sys.modules.pop("utils", None)
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        table = xt.evaluate_tasks(run, ["both"], include_path=tmp_path / folder, device="cpu", trust_code=True)
        hashes.append(table.drop_duplicates("task").set_index("task")["targets_hash"])
    assert set(hashes[0].index) == {"plain", "helped", "both"}
    assert {task for task in hashes[0].index if hashes[0][task] != hashes[1][task]} == others


def test_a_folder_of_data_has_no_modules(store: Path, tmp_path: Path) -> None:
    evil = tmp_path / "data" / "evaluate"
    evil.mkdir(parents=True)
    (evil / "__init__.py").write_text("open('ran', 'w')\n")
    lines = f"""
import extrapolate as xt
run = xt.train("rope", data={str(store)!r}, out="run", seq_len=16, tokens=512, batch_tokens=256, layers=1)
xt.evaluate_tasks(run, "extrapolate_needle", limit=1, length=256, data_dir="data")
"""
    ended = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(xt.__file__).parents[1])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.rglob("ran"))


def test_a_task_that_scores_otherwise_is_another_one() -> None:
    """Its name, version and questions may be the same."""
    benchmarks = pytest.importorskip("extrapolate.interop.benchmarks")
    samples = [{"doc_id": 0, "doc_hash": "a", "arguments": [], "target_hash": "b"}]
    filters = [{"name": "strict", "filter": [{"function": "regex", "fallback": "none"}]}]
    configs = [
        {"filter_list": filters},
        {"filter_list": [{"name": "strict", "filter": [{"function": "regex", "fallback": "import"}]}]},
        {"filter_list": filters, "process_results": "def process_results(doc, found): return {'acc': 1.0}"},
    ]
    found = [benchmarks._hash_of(samples, 1.0, config | {"description": str(i)}) for i, config in enumerate(configs)]
    assert len(set(found)) == len(configs)
    assert benchmarks._hash_of(samples, 1.0, {"filter_list": filters}) == found[0]


def test_a_length_that_an_encoding_does_not_reach_is_refused(ckpt: Path) -> None:
    with pytest.raises(xt.UserError, match="not defined at 17 tokens"):
        xt.evaluate_tasks(ckpt / "learned", "hellaswag", length=17)
    lm = RunLM(Run.open(ckpt / "learned"), device="cpu")
    with pytest.raises(xt.UserError, match=r"an answer .* has 17 tokens"):
        lm._loglikelihood_tokens([(("a", "b"), [1], list(range(17)))])
    assert np.isfinite(lm._loglikelihood_tokens([(None, [1] * 30, [2] * 16)])[0][0])
