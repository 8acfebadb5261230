"""Runs as transformers loads them: the same logits, short and long, and the same text with a cache and without."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import extrapolate as xt
from extrapolate.encodings.base import encodings
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN
from extrapolate.runs import resolve
from extrapolate.runs.config import EncodingConfig, ImportedConfig, ImportSource
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parent.parent.parent
L, VOCABULARY, PROMPT, NEW = 8, 300, 6, 6
SIZES = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_width": 48}
OWN, LLAMA, SMOLLM = "ExtrapolateForCausalLM", "LlamaForCausalLM", "SmolLM3ForCausalLM"
TWO_LISTS = "longrope:factor=4,long=(1,1.5,2,2,3,3,3,4),short=(1,1,1,1,1.1,1.2,1.3,1.4)"
ONE_LIST = "longrope:factor=4,long=(1,1.5,2,2,3,3,3,4),short=(1,1.5,2,2,3,3,3,4)"
MY_ENCODING = f"{ROOT}/examples/my_encoding.py:LogBias:strength=2"
MY_ROTARY = f"{ROOT}/examples/my_rotary.py:PhaseRoPE"
MY_EXTENSION = f"{ROOT}/examples/my_extension.py:RootScale"

# An encoding, what belongs to the run, changes of the sizes; the class that must load it, and whether it has a cache.
CASES: dict[str, tuple[str, str | None, dict[str, Any], str, bool]] = {
    **{
        name: (name, None, {}, {"rope": LLAMA, "none": SMOLLM, "rnope": SMOLLM}.get(name, OWN), name != "random")
        for name in encodings.names()
    },
    "interleaved": ("rope:pairing=interleaved,theta=300", None, {}, LLAMA, True),
    "interleaved-qk-norm": ("rope:pairing=interleaved", None, {"qk_norm": True}, "Qwen3ForCausalLM", True),
    "tied": ("rope", None, {"tied_embeddings": True}, LLAMA, True),
    "tied-own": ("alibi", None, {"tied_embeddings": True, "qk_norm": True, "ssmax": True}, OWN, True),
    "ssmax": ("rope", None, {"ssmax": True}, OWN, True),
    "no-multiple": ("rope", None, {"width": 30}, SMOLLM, True),
    "shared": ("fire:shared=true", None, {}, OWN, True),
    "learned-constants": ("expe:learned=fixed", None, {}, OWN, True),
    "same-names": ("random:base=sandwich", None, {}, OWN, False),
    "first": ("random:base=rope,evaluate=first", None, {}, OWN, True),
    "own-file": (MY_ENCODING, None, {}, OWN, True),
    "own-files": (MY_ROTARY, f"{MY_EXTENSION} + log-n", {}, OWN, False),
    **{
        f"{encoding}+{extension}": (encoding, extension, {}, cls, cache)
        for encoding, extension, cls, cache in [
            ("rope", "pi:factor=4", LLAMA, True),
            ("rope", "pi", OWN, False),
            ("rope", "ntk:factor=4", LLAMA, True),
            ("rope", "dynamic-ntk:factor=3", OWN, False),
            ("rope", "ntk-by-parts:factor=4,fast=2,slow=0.3", LLAMA, True),
            ("rope", "yarn:factor=4,fast=2,slow=0.3", LLAMA, True),
            ("rope", "yarn:factor=4,fast=2,slow=0.3,ramp=turns", OWN, True),
            ("rope", "yarn:factor=4 + log-n", OWN, True),
            ("rope", "longrope:factor=4", LLAMA, False),
            ("rope", TWO_LISTS, LLAMA, False),
            ("rope", ONE_LIST, LLAMA, True),
            ("rope", "llama3:factor=4,slow=0.2,fast=1", LLAMA, True),
            ("rope", "llama3", OWN, False),
            ("rope", "p-rope", OWN, True),
            ("rope", "temperature:c=0.4", OWN, False),
            ("rope", "window:size=5", SMOLLM, True),
            ("rope", "window:size=5 + pi:factor=2", SMOLLM, True),
            ("rope", "sinks:sinks=2", OWN, True),
            ("rope", "lm-infinite:sinks=2,window=5", OWN, True),
            ("rope", "rerope:window=3,k=2", OWN, True),
            ("rope", "self-extend", OWN, False),
            ("rope", "self-extend:group=4,window=3", OWN, True),
            ("rope", "dual-chunk", OWN, True),
            ("rnope", "yarn:factor=4", OWN, True),
            ("rnope", "pi:factor=4", SMOLLM, True),
            ("none", "window:size=5", SMOLLM, True),
            ("expe", "expe-scale:factor=0.5", OWN, True),
            ("learned", "table-resize", OWN, False),
        ]
    },
}


def run_of(path: Path, tokenizer: Tokenizer, encoding: str, extension: str | None, changes: dict[str, Any]) -> Run:
    """A finished run with random weights, large enough that every part matters. Nothing is trained."""
    from extrapolate import specs
    from extrapolate.extensions import recipe as recipes

    spec = specs.parse(encoding)
    recipe = None if extension is None else recipes.parse(extension)
    config = ImportedConfig(
        encoding=EncodingConfig(name=spec.name, arguments=dict(spec.arguments)),
        model=ModelConfig.model_validate(SIZES | {"vocab_size": VOCABULARY} | changes),
        extension=recipe.text if recipe else None,
        extension_sha256=recipe.sha256() if recipe else None,
        imported=ImportSource(name="random", source="random", sha256="0" * 64, seq_len=L),
    )
    config, user_file = resolve.with_resolved_encoding(config)
    run = Run.create(path, config, tokenizer.to_str().encode(), user_file)
    run.keep_extensions(recipe.files if recipe else ())
    model = run.build_model()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(weight + 0.1 * noise if ".encoding." in name else 0.15 * noise + (weight.ndim == 1))
    model.constrain()
    run.save_weights(model, 0, 0, final=True)
    return Run.open(path)


def expected_of(run: Run) -> dict[str, torch.Tensor]:
    """Tokens and logits by length, and what to generate."""
    model = run.model
    generator = torch.Generator().manual_seed(1)
    found = {"prompt": torch.randint(0, VOCABULARY, (2, PROMPT), generator=generator)}
    reach = L if model.encoding.max_length == L and run.config.extension is None else PROMPT + NEW
    found["new"] = torch.zeros(reach - PROMPT)
    for length in (L, 4 * L):
        tokens = torch.randint(0, VOCABULARY, (2, length), generator=generator)
        found[f"tokens{length}"] = tokens
        plan = PLAIN if run.own_extension is None else run.own_extension.plan(model.encoding, L, length)
        if model.defined_at(length, plan):
            with torch.no_grad():
                found[f"logits{length}"] = model(tokens, plan)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, bpe: Tokenizer) -> Path:
    """A folder with every case, exported."""
    folder = tmp_path_factory.mktemp("exported")
    for name, (encoding, extension, changes, _, _) in CASES.items():
        run = run_of(folder / "runs" / name, bpe, encoding, extension, changes)
        made = xt.export(run, folder / name)
        assert (made.folder, made.remote_code) == (folder / name, (folder / name / "modeling_extrapolate.py").exists())
        save_file(expected_of(run), folder / name / "expected.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What transformers makes of each, in a process where this package cannot be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path_factory.mktemp("modules"))}
    command = [sys.executable, str(Path(__file__).parent / "load_exported.py"), str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_transformers_computes_and_generates_the_same(loaded: dict[str, Any], exported: Path, name: str) -> None:
    _, _, _, architecture, cache = CASES[name]
    found, config = loaded[name], json.loads((exported / name / "config.json").read_text())
    assert (found["class"], config["architectures"]) == (architecture, [architecture])
    assert (found["unloaded"], found["unknown"]) == ([], [])
    assert found[str(L)] < 1e-5
    if name == "learned":
        assert found[str(4 * L)] == f"Learned is not defined for a text of {4 * L} tokens"
    else:
        assert found[str(4 * L)] < 1e-5
    assert (found["cache"], config["use_cache"]) == (cache, cache)
    assert found["generated"] < 1e-4


def test_the_logits_of_these_models_are_not_alike(exported: Path) -> None:
    """Weights are large enough for the encoding to matter, and the extension beyond L."""
    shown = {name: load_file(exported / name / "expected.safetensors") for name in CASES}
    for name, (encoding, extension, changes, _, _) in CASES.items():
        assert shown[name][f"logits{L}"].std() > 0.3, name
        if encoding == "rope" and extension is not None and not changes:
            assert (shown[name][f"logits{4 * L}"] - shown["rope"][f"logits{4 * L}"]).abs().max() > 1e-3, name
