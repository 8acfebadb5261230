"""Exported runs give the same logits in transformers, at short and long lengths, and the same text with a cache."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import extrapolate as xt
from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import PLAIN
from extrapolate.interop.imported import import_checkpoint
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parent.parent.parent
L, VOCABULARY = 8, 300  # of `random_run`
PROMPT, NEW = 6, 4
OWN, LLAMA, SMOLLM = "ExtrapolateForCausalLM", "LlamaForCausalLM", "SmolLM3ForCausalLM"
TWO_LISTS = "longrope:factor=4,long=(1,1.5,2,2,3,3,3,4),short=(1,1,1,1,1.1,1.2,1.3,1.4)"
ONE_LIST = "longrope:factor=4,long=(1,1.5,2,2,3,3,3,4),short=(1,1.5,2,2,3,3,3,4)"
MY_ENCODING = f"{ROOT}/examples/my_encoding.py:LogBias:strength=2"
MY_ROTARY = f"{ROOT}/examples/my_rotary.py:PhaseRoPE"
MY_EXTENSION = f"{ROOT}/examples/my_extension.py:RootScale"

COMBINED = ("qkv_bias", "qk_norm", "post_norms", "sinks", "output_gate", "differential")

# The encoding, the extension of the run, changed sizes, the class that must load it, and whether it has a cache.
CASES: dict[str, tuple[str, str | None, dict[str, Any], str, bool]] = {
    **{
        name: (
            name,
            None,
            {},
            {"rope": LLAMA, "none": SMOLLM, "rnope": SMOLLM}.get(name, OWN),
            name not in ("random", "rfs", "retention", "kda", "hype", "pattern"),
        )
        for name in encodings.names()
    },
    "interleaved": ("rope:pairing=interleaved,theta=300", None, {}, LLAMA, True),
    "interleaved-qk-norm": ("rope:pairing=interleaved", None, {"qk_norm": True}, "Qwen3ForCausalLM", True),
    "biased": ("rope:pairing=interleaved", None, {"qkv_bias": True}, "Qwen2ForCausalLM", True),
    "gelu": ("rope", None, {"activation": "gelu_tanh"}, LLAMA, True),
    "all-settings": ("expe", None, {"activation": "gelu_tanh", **dict.fromkeys(COMBINED, True)}, OWN, True),
    "tied": ("rope", None, {"tied_embeddings": True}, LLAMA, True),
    "tied-own": ("alibi", None, {"tied_embeddings": True, "qk_norm": True, "ssmax": True}, OWN, True),
    "ssmax": ("rope", None, {"ssmax": True}, OWN, True),
    "learned-sinks": ("rope", None, {"sinks": True}, OWN, True),
    "output-gate": ("rope", None, {"output_gate": True}, OWN, True),
    "differential": ("rope", None, {"differential": True, "qkv_bias": True}, OWN, True),
    "canon": ("rope", None, {"canon": True}, OWN, False),
    "no-multiple": ("rope", None, {"width": 30}, SMOLLM, True),
    "shared": ("fire:shared=true", None, {}, OWN, True),
    "learned-constants": ("expe:learned=fixed", None, {}, OWN, True),
    "same-names": ("random:base=sandwich", None, {}, OWN, False),
    "first": ("random:base=rope,evaluate=first", None, {}, OWN, True),
    "tuned+pi": ("rope", "pi", {}, OWN, False),
    "tuned+yarn": ("rope", "yarn:factor=4,fast=2,slow=0.05", {}, LLAMA, True),
    "tuned+window": ("rope", "window", {}, SMOLLM, True),
    "own-file": (MY_ENCODING, None, {}, OWN, True),
    "own-files": (MY_ROTARY, f"{MY_EXTENSION} + log-n", {}, OWN, False),
    **{
        f"{encoding}+{extension}": (encoding, extension, {}, cls, cache)
        for encoding, extension, cls, cache in [
            ("rope", "pi:factor=4", LLAMA, True),
            ("rope", "pi", OWN, False),
            ("rope", "dynamic-ntk:factor=3", OWN, False),
            ("rope", "ntk-by-parts:factor=4,fast=2,slow=0.3", LLAMA, True),
            ("rope", "yarn:factor=4,fast=2,slow=0.3", LLAMA, True),
            ("rope", "yarn:factor=4,fast=2,slow=0.3,ramp=turns", OWN, True),
            ("rope", "longrope:factor=4", LLAMA, False),
            ("rope", TWO_LISTS, LLAMA, False),
            ("rope", ONE_LIST, LLAMA, True),
            ("rope", "llama3:factor=4,slow=0.2,fast=1", LLAMA, True),
            ("rope", "p-rope", OWN, True),
            ("rope", "temperature:c=0.4", OWN, False),
            ("rope", "window:size=5", SMOLLM, True),
            ("rope", "sinks:sinks=2", OWN, True),
            ("rope", "lm-infinite:sinks=2,window=5", OWN, True),
            ("rope", "rerope:window=3,k=2", OWN, True),
            ("rope", "self-extend:group=4,window=3", OWN, True),
            ("rope", "dual-chunk", OWN, True),
            ("rope", "mrrope:factor=4", OWN, True),
            ("rope", "resonance:base=(yarn:factor=4)", OWN, True),
            ("rope", "clipped-rope:pairs=3", OWN, True),
            ("rope", "critical-band:first=2,width=3,factor=4", OWN, True),
            ("rope", "jet-long", OWN, False),
            ("rope", "jet-long-freq:window=2", OWN, False),
            ("rope", "string:shift=5,window=2", OWN, True),
            ("rnope", "llama4", OWN, True),
            ("rnope", "yarn:factor=4,layers=rotated", OWN, True),
            ("rnope", "window:size=5,layers=global", OWN, True),
            ("rnope", "pi:factor=4", SMOLLM, True),
            ("expe", "expe-scale:factor=0.5", OWN, True),
            ("learned", "table-resize", OWN, False),
        ]
    },
}


def expected_of(run: Run) -> dict[str, torch.Tensor]:
    """Tokens and logits by length, and what to generate."""
    model = run.model
    generator = torch.Generator().manual_seed(1)
    found = {"prompt": torch.randint(0, VOCABULARY, (2, PROMPT), generator=generator)}
    reach = L if model.encoding.max_length == L and run.config.extension is None else PROMPT + NEW
    found["new"] = torch.zeros(reach - PROMPT)
    if any(encoding.attends() for encoding in model.encodings):
        found["attention"] = xt.attention(run, found["prompt"][0].tolist()).weights
    for length in (L, 4 * L):
        tokens = torch.randint(0, VOCABULARY, (2, length), generator=generator)
        found[f"tokens{length}"] = tokens
        plan = PLAIN if run.own_extension is None else run.own_extension.plan(model.encoding, L, length)
        if model.defined_at(length, plan):
            with torch.no_grad():
                found[f"logits{length}"] = model(tokens, plan)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, random_run: Callable[..., Run]) -> Path:
    """A folder with every case, exported."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # thousands of them take seconds
        for name, (encoding, extension, changes, _, _) in CASES.items():
            tuned_at = 2 * L if name.startswith("tuned+") else None
            run = random_run(folder / "runs" / name, encoding, extension, changes, tuned_at)
            made = xt.export(run, folder / name)
            code = folder / name / "modeling_extrapolate.py"
            assert (made.folder, made.remote_code) == (folder / name, code.exists())
            save_file(expected_of(run), folder / name / "expected.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What transformers computes for each, in a process where this package cannot be imported."""
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
    assert found["attention"] < 1e-5


@pytest.mark.parametrize(
    ("name", "theta"),
    [
        ("interleaved", 300.0), ("rnope", 10_000.0), ("rope+pi:factor=4", 10_000.0), ("tuned+yarn", 10_000.0),
    ],
)  # fmt: skip
def test_readers_from_before_version_5_find_the_rotation(
    exported: Path, tmp_path: Path, name: str, theta: float
) -> None:
    """They know no rope_parameters, and take a theta of 10,000 and no scaling if they find none in its place."""
    again = shutil.copytree(exported / name, tmp_path / "again")
    config = json.loads((again / "config.json").read_text())
    del config["rope_parameters"]
    (again / "config.json").write_text(json.dumps(config))
    assert config["rope_theta"] == pytest.approx(theta)
    expected = load_file(again / "expected.safetensors")
    with torch.no_grad():
        logits = transformers.AutoModelForCausalLM.from_pretrained(again)(expected[f"tokens{4 * L}"]).logits
    torch.testing.assert_close(logits, expected[f"logits{4 * L}"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", encodings.names())
def test_encodings_are_made_where_init_functions_are_skipped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of transformers before 5 replace them while loading by a function that returns nothing."""
    for function in ("normal_", "uniform_", "constant_", "xavier_normal_", "xavier_uniform_", "zeros_", "ones_"):
        monkeypatch.setattr(torch.nn.init, function, lambda *_, **__: None)
    encodings[name](Dims(32, 4, 8, L))


def test_the_logits_of_these_models_are_not_alike(exported: Path) -> None:
    """Weights are large enough for the encoding to matter, and the extension beyond L."""
    shown = {name: load_file(exported / name / "expected.safetensors") for name in CASES}
    for name, (encoding, extension, changes, _, _) in CASES.items():
        assert shown[name][f"logits{L}"].std() > 0.3, name
        if encoding == "rope" and extension is not None and not changes:
            assert (shown[name][f"logits{4 * L}"] - shown["rope"][f"logits{4 * L}"]).abs().max() > 1e-3, name


class TestInProcess:
    """With `import extrapolate.transformers`, and without the code in the folder."""

    @pytest.fixture(autouse=True)
    def _registered(self) -> None:
        import extrapolate.transformers  # noqa: F401

    @pytest.fixture
    def load(self, exported: Path) -> Callable[..., Any]:
        return lambda name, **options: transformers.AutoModelForCausalLM.from_pretrained(
            exported / name, **options
        ).eval()

    @pytest.mark.parametrize("name", ["alibi", "same-names", "rope+pi"])
    def test_it_needs_no_trust(self, load: Callable[[str], Any], exported: Path, name: str) -> None:
        model = load(name)
        assert type(model).__module__ == "extrapolate.transformers"
        expected = load_file(exported / name / "expected.safetensors")
        with torch.no_grad():
            logits = model(expected[f"tokens{L}"]).logits
        torch.testing.assert_close(logits, expected[f"logits{L}"], rtol=0, atol=1e-5)

    @pytest.mark.parametrize("name", ["t5", "tied-own", "shared", "rope+dynamic-ntk:factor=3"])
    def test_what_is_saved_is_whole(
        self, load: Callable[[str], Any], exported: Path, tmp_path: Path, name: str
    ) -> None:
        """With its code, and layers share what they shared before."""
        model = load(name)
        shared = {"t5": "table_RH", "shared": "c"}.get(name)
        model.save_pretrained(tmp_path / "again")
        code = "modeling_extrapolate.py"  # for those who do not have this package
        assert (tmp_path / "again" / code).read_text() == (exported / name / code).read_text()
        config = json.loads((tmp_path / "again" / "config.json").read_text())
        assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_extrapolate.ExtrapolateForCausalLM"
        again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")
        for one in (model, again):
            first, second = one.decoder.encodings
            assert shared is None or getattr(first, shared) is getattr(second, shared)
            assert (one.decoder.head.weight is one.decoder.embedding.weight) == (name == "tied-own")
        tokens = torch.arange(L)[None]
        with torch.no_grad():
            torch.testing.assert_close(model(tokens).logits, again(tokens).logits, rtol=0, atol=0)

    def test_it_has_a_loss_and_gradients(self, load: Callable[[str], Any]) -> None:
        model = load("kerple")
        tokens = torch.arange(2 * L).reshape(2, L)
        output = model(tokens, labels=tokens)
        logits = output.logits[:, :-1].flatten(0, 1).log_softmax(-1)
        expected = -logits.gather(1, tokens[:, 1:].reshape(-1, 1)).mean()
        torch.testing.assert_close(output.loss, expected)
        output.loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_what_other_libraries_pass_is_taken(self, load: Callable[[str], Any]) -> None:
        """`generate` wants only the last logits, `Trainer(bf16=True)` uses autocast, and PEFT names all arguments."""
        model, tokens = load("alibi"), torch.arange(L)[None]
        with torch.no_grad():
            torch.testing.assert_close(model(tokens, logits_to_keep=2).logits, model(tokens).logits[:, -2:])
            with torch.autocast("cpu", torch.bfloat16):
                assert model(tokens).logits.dtype == torch.bfloat16
        model(tokens, inputs_embeds=None, output_attentions=None, output_hidden_states=False)
        with pytest.raises(ValueError, match="has no other inputs and outputs"):
            model(tokens, output_hidden_states=True)

    def test_padding_on_the_right_changes_nothing_and_on_the_left_is_refused(self, load: Callable[[str], Any]) -> None:
        model, tokens = load("alibi"), torch.arange(L)[None]
        mask = torch.ones_like(tokens)
        mask[:, -3:] = 0
        with torch.no_grad():
            padded = model(tokens, attention_mask=mask).logits[:, :-3]
            torch.testing.assert_close(padded, model(tokens[:, :-3]).logits)
        with pytest.raises(ValueError, match="no padding may stand before a token"):
            model(tokens, attention_mask=mask.flip(1))

    def test_positions_of_one_text_are_taken_and_those_of_packed_texts_refused(self, load: Callable[..., Any]) -> None:
        """Collators of transformers and TRL pass them."""
        model, tokens = load("alibi"), torch.arange(2 * L).reshape(2, L)
        mask = torch.ones_like(tokens)
        mask[0, -3:] = 0
        with torch.no_grad():
            expected = model(tokens, attention_mask=mask).logits
            counted = mask.cumsum(1) - 1  # TRL's, which stop at the end of a text
            for positions in (torch.arange(L), torch.arange(L)[None], counted, counted.masked_fill(mask == 0, 1)):
                found = model(tokens, attention_mask=mask, position_ids=positions).logits
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
            past = model(tokens[:, :5], use_cache=True).past_key_values
            last = model(tokens[:, 5:], position_ids=torch.arange(5, L)[None], past_key_values=past).logits
            torch.testing.assert_close(last, model(tokens).logits[:, 5:], rtol=0, atol=1e-5)
        flat = transformers.DataCollatorWithFlattening()([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
        wrong = {"packed": flat["position_ids"], "later": torch.arange(1, 6)[None], "too many": torch.arange(6)[None]}
        for positions in wrong.values():
            with pytest.raises(ValueError, match=r"position_ids must be 0 to 4 in every row: .*TRL: "):
                model(flat["input_ids"], position_ids=positions)
        packed = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)([{"input_ids": [1, 2, 3]}] * 2)
        with pytest.raises(ValueError, match=r"several texts in one row are not supported: turn packing off"):
            model(**packed)
        one = transformers.DataCollatorWithFlattening()([{"input_ids": [1, 2, 3]}])
        assert model(**one).loss > 0

    def test_more_tokens_find_room(self, load: Callable[[str], Any]) -> None:
        model, tokens = load("tied-own"), torch.arange(L)[None]
        before = model(tokens).logits
        model.resize_token_embeddings(VOCABULARY + 2, mean_resizing=False)
        assert model.decoder.head.weight is model.decoder.embedding.weight
        torch.testing.assert_close(model(tokens).logits[..., :VOCABULARY], before)

    @pytest.mark.parametrize("name", ["fox", "all-settings"])
    def test_attention_of_each_new_token_is_a_row_of_the_whole(
        self, load: Callable[[str], Any], exported: Path, name: str
    ) -> None:
        prompt = torch.arange(1, 5)[None]
        options = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True}
        text = load(name).generate(prompt, output_attentions=True, **options)
        whole = xt.attention(exported / "runs" / name, text.sequences[0, :-1].tolist()).weights
        assert [step[0].shape[-2] for step in text.attentions] == [4, 1, 1, 1]
        for length, step in enumerate(text.attentions, 4):
            rows = torch.cat(step)
            torch.testing.assert_close(rows, whole[:, :, length - rows.shape[2] : length, :length], rtol=0, atol=1e-5)

    def test_a_cache_that_would_mean_nothing_is_refused(self, load: Callable[[str], Any]) -> None:
        with pytest.raises(ValueError, match="use it with use_cache=False"):
            load("rope+pi").generate(torch.arange(1, 5)[None], max_new_tokens=2, use_cache=True)
        with pytest.raises(ValueError, match="keeps its past in a DynamicCache, not in a StaticCache"):
            load("alibi").generate(torch.arange(1, 5)[None], max_new_tokens=2, cache_implementation="static")

    @pytest.mark.filterwarnings("ignore:Mismatch dtype")  # a fused kernel is not used
    @pytest.mark.parametrize("name", ["learned+table-resize", "expe", "fox", "same-names", "canon"])
    def test_in_few_bits_positions_stay_in_float32(self, load: Callable[..., Any], exported: Path, name: str) -> None:
        model = load(name, dtype=torch.bfloat16)
        state = model.state_dict()
        assert {tensor.dtype for key, tensor in state.items() if "encoding" in key} <= {torch.float32}
        assert state["decoder.head.weight"].dtype == torch.bfloat16
        expected = load_file(exported / name / "expected.safetensors")
        with torch.no_grad():
            logits = model(expected[f"tokens{4 * L}"]).logits
        assert 0 < (logits - expected[f"logits{4 * L}"]).abs().max() < 0.2
        model.generate(expected["prompt"], max_new_tokens=2, do_sample=False)
        later = load(name).to(torch.bfloat16)
        with torch.no_grad():
            assert torch.equal(later(expected[f"tokens{4 * L}"]).logits, logits)


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("rope", None), ("interleaved", None), ("interleaved-qk-norm", None), ("biased", None), ("gelu", None),
        ("tied", None), ("none", None),
        ("rnope", None), ("rope+window:size=5", "window:size=5"), ("rope+pi:factor=4", "pi:factor=4"),
        ("rope+yarn:factor=4,fast=2,slow=0.3", "yarn:factor=4,fast=2,slow=0.3"),
        ("rope+llama3:factor=4,slow=0.2,fast=1", "llama3:factor=4,slow=0.2,fast=1"),
        (f"rope+{TWO_LISTS}", "longrope:factor=4"),
    ],
)  # fmt: skip
def test_what_a_class_of_transformers_computes_can_be_imported_again(
    exported: Path, tmp_path: Path, name: str, extension: str | None
) -> None:
    again = import_checkpoint(str(exported / name), folder=tmp_path)
    assert again.config.seq_len == L
    assert again.config.extension == extension or str(again.config.extension).startswith(f"{extension},long=")
    expected = load_file(exported / name / "expected.safetensors")
    plan = PLAIN if again.own_extension is None else again.own_extension.plan(again.model.encoding, L, 4 * L)
    with torch.no_grad():
        logits = again.model(expected[f"tokens{4 * L}"], plan)
    torch.testing.assert_close(logits, expected[f"logits{4 * L}"], rtol=0, atol=1e-5)
