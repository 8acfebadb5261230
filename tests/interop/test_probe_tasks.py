"""Our probes as tasks of lm-eval: their questions, and that a model that looks up the answers is always right."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import extrapolate as xt
from extrapolate.data.probes.base import probes
from extrapolate.data.probes.without_text import WithoutText
from extrapolate.interop import benchmarks, probe_tasks

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
RunLM = pytest.importorskip("extrapolate.interop.lm_eval").RunLM


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 2,500 words, each ten times: the standard library's files take seconds to list."""
    rng, path = random.Random(0), tmp_path_factory.mktemp("words") / "words.txt"
    known = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2500)]
    path.write_text(" ".join(rng.sample(known * 10, 25_000)))
    return path


def test_what_is_asked_can_be_looked_up_and_a_run_is_asked_it(ckpt: Path, words: Path) -> None:
    asked = probe_tasks.documents("passkey:length=3", 64, 2, str(words))
    assert len(asked) == 10
    for question in asked:
        window = question["context"].split()
        marker = window[-1]
        assert len(window) + 3 == 65
        place = window.index(marker)
        assert window[place + 1 : place + 4] == question["answer"].split()
        assert window.count(marker) == 2
    table = xt.evaluate_tasks(ckpt / "rope", "extrapolate_needle", length=512, limit=4, device="cpu")
    assert table["metric"].tolist() == ["acc"]
    assert 0 <= table["value"].iloc[0] <= 1
    assert set(table["n_questions"]) == {4}


def repeated(words: list[str], count: int) -> list[str]:
    """What followed the earlier occurrence of the longest ending."""
    pairs = ((size, end) for end in range(1, len(words)) for size in range(1, end + 1))
    _, place = max((size, end) for size, end in pairs if words[end - size : end] == words[-size:])
    return words[place : place + count]


def tracked(words: list[str], count: int) -> list[str]:
    """The final value of the last word, from the two chains of three assignments."""
    place, name = words.index(words[-2]) + 1, words[-1]
    given = dict(zip(words[place : place + 12 : 2], words[place + 1 : place + 12 : 2], strict=True))
    while name in given:
        name = given[name]
    return [name]


def most_frequent(words: list[str], count: int) -> list[str]:
    """The most common words of the list, which fills half of the window, without those already given."""
    said = 0 if words.count(words[-1]) == 2 else 1  # the marker comes twice
    place = words.index(words[-1 - said]) + 1
    commonest = Counter(words[place : place + 24]).most_common()
    return [word for word, _ in commonest[said : said + count]]


def flipped(words: list[str], count: int) -> list[str]:
    """The value after the last occurrence of the rarer command."""
    pairs = [*zip(words[-2::-2], words[-3::-2], strict=False)]  # values and commands, the last pair first
    rarer = Counter(command for _, command in pairs).most_common()[-1][0]
    return [next(value for value, command in pairs if command == rarer)]


def test_the_probes_tasks_are_those_of_lm_evals_own_command(words: Path) -> None:
    """A model that looks up the answer is always right."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Oracle(LM):
        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            return [(0.0, self.found(request.task_name, *request.args)) for request in requests]

        def found(self, task: str, context: str, answer: str) -> bool:
            wanted = answer.split()
            words = context.split("\n\n")[-1].split()
            own = {"tracking": tracked, "frequent": most_frequent, "flip-flop": flipped}
            look_up = own.get(task.removeprefix("extrapolate_"), repeated)
            return look_up(words, len(wanted)) == wanted

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    small = {"words": 48, "trials": 1, "text": str(words)}
    manager = TaskManager(include_path=str(benchmarks.OWN_TASKS), include_defaults=False, metadata=small)
    names = manager.all_tasks
    assert names == [f"extrapolate_{name}" for name in probes.names() if not issubclass(probes[name], WithoutText)]
    found = simple_evaluate(Oracle(), tasks=names, task_manager=manager, bootstrap_iters=0)
    assert {name: found["results"][name]["acc,none"] for name in names} == dict.fromkeys(names, 1.0)
    asked = {name.removeprefix("extrapolate_"): found["n-samples"][name]["effective"] for name in names}
    one = dict.fromkeys(("digression", "flip-flop", "needle", "passkey", "tracking"), 5)
    assert asked == {"copy": 60, "frequent": 10, "mqar": 10} | one
    described = [name for name in names if found["configs"][name]["description"]]
    unclear = ["extrapolate_flip-flop", "extrapolate_frequent", "extrapolate_tracking"]
    assert described == unclear  # what the window itself does not tell


def test_lm_eval_finds_the_class_by_its_name(ckpt: Path, words: Path) -> None:
    from lm_eval.tasks import TaskManager

    small = {"words": 48, "trials": 1, "text": str(words)}
    manager = TaskManager(include_path=str(benchmarks.OWN_TASKS), include_defaults=False, metadata=small)
    arguments = {"run": str(ckpt / "rope"), "length": 512, "extend": "pi:factor=2", "device": "cpu"}
    found = lm_eval.simple_evaluate(
        "extrapolate", arguments, tasks=["extrapolate_needle"], task_manager=manager, num_fewshot=0
    )
    lm = RunLM(ckpt / "rope", length=512, extend="pi:factor=2", device="cpu")
    tasks = manager.load(["extrapolate_needle"])["tasks"]
    ours = benchmarks.Tasks(tasks, {}).questions(lm, None, None)
    assert found["results"] == ours["results"]
    assert found["n-samples"]["extrapolate_needle"]["effective"] == 5
