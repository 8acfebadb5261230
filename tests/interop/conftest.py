"""A finished run of any encoding, without training; and questions for lm-eval, without the network."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
import torch
from markupsafe import Markup
from tokenizers import Tokenizer

from extrapolate import specs
from extrapolate.extensions import stack as stacks
from extrapolate.model.config import ModelConfig
from extrapolate.runs import resolve
from extrapolate.runs.config import (
    DataConfig,
    EncodingConfig,
    ImportedConfig,
    ImportSource,
    OriginConfig,
    RunConfig,
    TrainedConfig,
)
from extrapolate.runs.run import Run
from extrapolate.runs.training_config import TrainingConfig

QUESTIONS = 12  # of each task in `copies`
L, VOCABULARY = 8, 300
SIZES = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_width": 48}


@pytest.fixture(scope="session")
def random_run(bpe: Tokenizer) -> Callable[..., Run]:
    """Makes a run of L = 8 with random weights, large enough that every part matters; `tuned_at` another length."""

    def make(
        path: Path,
        encoding: str,
        extension: str | None = None,
        changes: dict[str, Any] | None = None,
        tuned_at: int | None = None,
    ) -> Run:
        spec = specs.parse(encoding)
        stack = None if extension is None else stacks.parse(extension)
        known = {
            "encoding": EncodingConfig(name=spec.name, arguments=dict(spec.arguments)),
            "model": ModelConfig.model_validate(SIZES | {"vocab_size": VOCABULARY} | (changes or {})),
            "extension": stack.text if stack else None,
            "extension_sha256": stack.sha256() if stack else None,
        }
        config: RunConfig
        if tuned_at is None:
            source = ImportSource(name="random", source="random", sha256="0" * 64, seq_len=L)
            config = ImportedConfig(**known, imported=source)
        else:
            origin = OriginConfig(run="first", weights_sha256="0" * 64, config_hash="0", label="first", seq_len=L)
            training = TrainingConfig(seq_len=tuned_at, tokens=4096)
            data = DataConfig(path="store", source="corpus", corpus_hash="0")
            config = TrainedConfig(**known, preset="tiny", training=training, data=data, origin=origin)
        config, user_file = resolve.with_resolved_encoding(config)
        run = Run.create(path, config, bpe.to_str().encode(), user_file)
        run.keep_extensions(stack.files if stack else ())
        model = run.build_model(drawn=True)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(weight + 0.1 * noise if ".encoding." in name else 0.15 * noise + (weight.ndim == 1))
        model.constrain()
        run.save_weights(model, 0, 0, final=True)
        return Run.open(path)

    return make


@pytest.fixture(scope="session")
def copies(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of HellaSwag and ARC in their own formats, with questions made from the corpus."""
    words = " ".join(path.read_text() for path in sorted(corpus.glob("*.txt"))[:4]).split()
    rng = random.Random(0)
    folder = tmp_path_factory.mktemp("copies")
    datasets.config.HF_DATASETS_CACHE = folder / "cache"

    def text(count: int) -> str:
        start = rng.randrange(len(words) - count)
        return " ".join(words[start : start + count])

    swag = [
        {
            "ind": number, "activity_label": "Words", "ctx_a": text(rng.randint(3, 20)), "ctx_b": text(2), "ctx": "",
            "endings": [text(rng.randint(1, 2)) for _ in range(4)], "source_id": str(number), "split": "val",
            "split_type": "indomain", "label": str(rng.randrange(4)),
        }
        for number in range(QUESTIONS)
    ]  # fmt: skip
    arc = [
        {
            "id": str(number), "question": text(8), "answerKey": rng.choice("ABC"),
            "choices": {"text": [text(2) for _ in range(3)], "label": ["A", "B", "C"]},
        }
        for number in range(QUESTIONS)
    ]  # fmt: skip
    rows_of = {"Rowan/hellaswag": {"train": swag[:4], "validation": swag}}
    rows_of["allenai/ai2_arc"] = {f"ARC-Easy/{split}": arc for split in ("train", "validation", "test")}
    for name, splits in rows_of.items():
        for split, rows in splits.items():
            file = folder / name / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = "---\nconfigs:\n- config_name: ARC-Easy\n  data_files:\n"
    for split in ("train", "validation", "test"):
        config += f"  - split: {split}\n    path: ARC-Easy/{split}.jsonl\n"
    (folder / "allenai/ai2_arc/README.md").write_text(f"{config}---\n")
    return folder


@pytest.fixture
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits lm-eval to a few of its thousands of tasks, because finding all takes seconds."""
    from lm_eval import tasks as known

    folder = Path(known.__file__).parent
    own = [folder / name for name in ("hellaswag", "arc", "humaneval")]

    class Few(known.TaskManager):
        def __init__(self, include_path: Any = None, include_defaults: bool = True, **others: Any) -> None:
            super().__init__(include_path=[*include_path, *own], include_defaults=False, **others)

    monkeypatch.setattr(known, "TaskManager", Few)


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw nothing: tests/reports look at pictures."""
    monkeypatch.setattr("extrapolate.reports.plots.draw", lambda chart, path: path.touch())
    monkeypatch.setattr("extrapolate.reports.svg.drawn", lambda chart: Markup("<svg></svg>"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
