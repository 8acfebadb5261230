"""Input of any kind: read and used, or refused with one UserError, soon. Nothing else is raised, and nothing hangs."""

import json
import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from extrapolate import specs
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.mixture import Mixture
from extrapolate.data.probes.base import Vocabulary, parse_probes, probes
from extrapolate.data.sources import open_source
from extrapolate.data.synthetic.base import parse_process, processes
from extrapolate.encodings.base import encodings
from extrapolate.errors import UserError
from extrapolate.extensions import recipe
from extrapolate.extensions.base import extensions
from extrapolate.interop import huggingface
from extrapolate.interop.huggingface.config import ARCHITECTURES, ONLY, TEXT_OF, Fields, completed
from extrapolate.interop.huggingface.rotary import OF_LAYERS, ROPE_FIELDS, ROPE_SHARED
from extrapolate.model import size
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.model.size import check_training, expected_shapes, parameter_count
from extrapolate.runs.config import ImportedConfig, read_config_file, validate, validate_as
from extrapolate.runs.resolve import read_file, with_resolved_encoding
from extrapolate.runs.training_config import TrainingConfig

SECONDS = 20  # of one example: most take milliseconds
FUZZING = settings(settings.get_profile("fuzzing"), suppress_health_check=[HealthCheck.function_scoped_fixture])
ENDS = [0, 1, -1, 2, 7, 257, 2**16, 2**24, 2**31, 2**32, 2**53, 2**53 + 1, 2**63, 2**64, 10**24, 10**400]
SCALARS = (
    st.none() | st.booleans() | st.sampled_from([*ENDS, math.inf, -math.inf, math.nan]) | st.integers()
    | st.integers(0, 64) | st.floats() | st.text(max_size=8)
)  # fmt: skip
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def tried(call: Callable[[], Any], longest: int = 1500) -> Any:
    """What a call gives; None where it is refused. Nothing but a UserError, which can be read, and no long wait."""
    began = time.monotonic()
    found, refusal = None, "accepted"
    try:
        found = call()
    except UserError as error:
        refusal = str(error)
    assert time.monotonic() - began < SECONDS
    assert 5 < len(refusal) < longest, refusal
    return found


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """A machine of 100 MB: what fits into more would be made, which takes its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(size, "memory_limit", lambda device: 10**8)
        yield


L = 8
SIZES = {"vocab_size": 20, "width": 16, "layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 8, "ff_width": 8}

WORDS = [
    "nan", "inf", "-inf", "-0", "1e308", "1e-320", "-1e308", "0.5", "1e9", "none", "None", "true", "false", "1_000",
    "0x10", "", " ", "()", "(", ")", "=", ":", ",", "+", "half", "log", "fixed", "scratch", "all", "first", "sample",
]  # fmt: skip
VALUES = (
    st.sampled_from(ENDS).map(str)
    | st.integers(-3, 40).map(str)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(WORDS)
    | st.text(max_size=8)
)


def specs_of(registry: specs.Registry[Any]) -> st.SearchStrategy[str]:
    """Specs with registered names and their own arguments, and now and then another."""

    def with_arguments(name: str) -> st.SearchStrategy[str]:
        known = list(specs.parameters(registry[name])) or ["theta"]
        value = VALUES | st.deferred(lambda: any_spec).map(lambda text: f"({text})")
        pairs = st.lists(st.tuples(st.sampled_from([*known, *known, "x"]), value), max_size=3)
        return pairs.map(lambda given: f"{name}:{','.join(f'{key}={value}' for key, value in given)}")

    any_spec = st.sampled_from(registry.names()).flatmap(with_arguments)
    return any_spec


ANYTHING = st.text(max_size=40) | st.text("()=:,+.ropy1e-", max_size=60)


@FUZZING
@given(specs_of(encodings) | ANYTHING)
@example("random:base=(random:base=(random:base=rope))")
@example("dape:base=(dape:base=(fire:width=4))")
@example("xpos:scale_base=1e-320")
def test_encodings(text: str) -> None:
    def use() -> None:
        spec = specs.parse(text)
        model = Model(ModelConfig(**SIZES), spec.name, spec.arguments, L).eval()
        assert model.label()
        again = Model(ModelConfig(**SIZES), spec.name, model.encoding.arguments(), L)
        assert again.encoding.arguments() == model.encoding.arguments()
        length = min(2 * L, model.encoding.max_length or 2 * L)
        with torch.inference_mode():
            assert model(torch.zeros(1, length, dtype=torch.int64)).shape == (1, length, 20)

    tried(use)


MODELS = {name: Model(ModelConfig(**SIZES), name, {}, L).eval() for name in ("rope", "expe", "learned", "alibi")}


@FUZZING
@given(
    st.lists(specs_of(extensions), min_size=1, max_size=3).map(" + ".join) | ANYTHING, st.sampled_from(sorted(MODELS))
)
@example("ntk:factor=1e-320", "rope")
@example("longrope:long=(1,1,1,1e-308)", "rope")
def test_extensions(text: str, name: str) -> None:
    model = MODELS[name]

    def use() -> None:
        made = recipe.parse(text)
        assert recipe.parse(made.text).text == made.text
        recipe.check_applies(made, model)
        whole = made if made.to_fit is None else made.fitted(0.1)
        assert whole.label()
        for length in (L, 4 * L):
            plan = whole.plan(model.encoding, L, length)
            assert math.isfinite(plan.position_scale)
            if model.defined_at(length, plan):
                with torch.inference_mode():
                    model.hidden(torch.zeros(1, length, dtype=torch.int64), plan)

    tried(use)


@FUZZING
@given(st.lists(specs_of(probes), min_size=1, max_size=3).map(",".join) | ANYTHING)
def test_probes(text: str) -> None:
    def use() -> None:
        for probe in parse_probes(text):
            assert parse_probes(f"({probe.text})") == (probe,)
            probe.check(64, Vocabulary(200, 0))

    tried(use)


@FUZZING
@given(st.lists(st.tuples(specs_of(probes), VALUES), min_size=1, max_size=3) | ANYTHING)
def test_mixtures(given_parts: str | list[tuple[str, str]]) -> None:
    if not isinstance(given_parts, str):
        given_parts = ",".join(f"({spec})={share}" for spec, share in given_parts)
    mixture = tried(lambda: Mixture.parse(given_parts))
    assert mixture is None or Mixture.parse(mixture.text).text == mixture.text


@FUZZING
@given(specs_of(processes) | ANYTHING)
def test_synthetic_text(text: str) -> None:
    process = tried(lambda: parse_process(text))
    if process is not None and process.documents * process.length < 10**5:
        tried(lambda: list(process))


BASE: dict[str, Any] = {
    "preset": "tiny",
    "encoding": {"name": "rope", "arguments": {"theta": 500.0}},
    "model": {"vocab_size": 30, "width": 16, "layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 8, "ff_width": 8},
    "training": {"seq_len": 16, "tokens": 512, "batch_tokens": 64},
    "data": {"path": "d", "source": "s", "corpus_hash": "c"},
}
FIELDS = {"model": list(ModelConfig.model_fields), "training": list(TrainingConfig.model_fields)}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """The base with up to four settings of another value, and now and then a section or a name of another kind."""
    made = deepcopy(BASE)
    for _ in range(draw(st.integers(1, 4))):
        section = draw(st.sampled_from(["model", "model", "training", "training", "encoding", "arguments", "whole"]))
        if section == "whole":
            made[draw(st.sampled_from([*BASE, "x"]))] = draw(ANY)
        elif section == "arguments":
            made["encoding"] = {"name": "rope", "arguments": draw(ANY)}
        elif section == "encoding":
            made["encoding"] = {"name": draw(st.sampled_from(["rope", "none", "expe"]) | st.text(max_size=9))}
        elif isinstance(made[section], dict):
            made[section][draw(st.sampled_from([*FIELDS[section], "x"]))] = draw(ANY)
    return made


@FUZZING
@given(configurations())
def test_configurations(content: dict[str, Any]) -> None:
    def use() -> None:
        config = validate(content, "fuzz")
        assert validate(json.loads(json.dumps(config.model_dump())), "fuzz") == config
        training = config.training
        check_training(
            config.model,
            step_tokens=training.batch_size * training.seq_len,
            pass_tokens=training.micro_batch_size * training.seq_len,
            device="cpu",
        )
        model = Model(config.model, config.encoding.name, config.encoding.arguments, config.seq_len)
        assert parameter_count(config.model) <= model.parameter_count()
        assert expected_shapes(config.model).keys() <= model.state_dict().keys()

    tried(use)


@FUZZING
@given(
    content=st.binary(max_size=60) | st.text('[]{}"=.,1e-_ntrue#\\', max_size=60).map(str.encode), toml=st.booleans()
)
def test_files_of_settings(content: bytes, toml: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a.toml" if toml else "a.json")
    path.write_bytes(content)
    tried(lambda: read_config_file(path))
    tried(lambda: read_file(path))


CHECKPOINT: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 16, "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}  # fmt: skip
CHECKPOINT_FIELDS = sorted(
    {*CHECKPOINT, *ONLY, *OF_LAYERS, *(name for one in ARCHITECTURES.values() for name in one.defaults)}
    | {"rope_local_base_freq", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act", "architectures"}
    | {"text_config", "no_rope_layer_interval"}
)
OF_ROPE = sorted({*ROPE_SHARED, *(name for sets in ROPE_FIELDS.values() for one in sets for name in one)})
LAYERS = st.lists(st.sampled_from(["full_attention", "sliding_attention", "x"]), max_size=4)
FIELD_VALUES = ANY | LAYERS | st.floats(0, 2) | st.lists(st.floats() | st.integers(), min_size=8, max_size=8)
ROPES = st.dictionaries(st.sampled_from(OF_ROPE), FIELD_VALUES | st.sampled_from(sorted(ROPE_FIELDS)), max_size=5)
ROPES |= st.dictionaries(st.sampled_from(["full_attention", "sliding_attention"]), ROPES, max_size=2)


@FUZZING
@given(
    name=st.sampled_from([*ARCHITECTURES, *TEXT_OF]),
    said=st.dictionaries(st.sampled_from(CHECKPOINT_FIELDS), FIELD_VALUES, max_size=4),
    rope=st.none() | ROPES,
    seq_len=st.none() | st.integers(2, 100),
)
def test_configurations_of_checkpoints(name: str, said: dict[str, Any], rope: Any, seq_len: int | None) -> None:
    text = CHECKPOINT | ({} if rope is None else {"rope_parameters": rope}) | said
    content = {"architectures": [name]} | ({"text_config": text} if name in TEXT_OF else text)

    def read() -> ImportedConfig:
        source = huggingface.Source(Path(), completed(Fields(Path("config.json"), content)), ())
        rotary = huggingface.rotary_of(source, seq_len)
        raw = {
            "encoding": {"name": rotary.encoding, "arguments": rotary.arguments},
            "model": huggingface.sizes_of(source).model_dump(),
            "extension": rotary.extension,
            "imported": {"name": "n", "source": "s", "sha256": "0", "seq_len": rotary.seq_len},
        }
        return with_resolved_encoding(validate_as(ImportedConfig, raw, "config.json"))[0]

    tried(read)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_sizes_of_these_tests_are_those_of_a_model(name: str) -> None:
    source = huggingface.Source(Path(), completed(Fields(Path(), CHECKPOINT | {"architectures": [name]})), ())
    assert huggingface.sizes_of(source).layers == 3
    assert huggingface.rotary_of(source).seq_len >= 64


ROWS = (st.fixed_dictionaries({"text": ANY}) | st.fixed_dictionaries({"text": st.text()}) | ANY).map(json.dumps)


@FUZZING
@given(lines=st.lists(ROWS.map(str.encode) | st.binary(max_size=30), max_size=5), ending=st.sampled_from(["", "\n"]))
def test_json_lines(lines: list[bytes], ending: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + ending.encode())
    for document in tried(lambda: list(open_source(str(path))), longest=3000) or []:
        document.text.encode()
        document.id.encode()


SUFFIXES = [".txt", ".md", ".parquet", ".html", ".rst", ".txt.gz", ".jsonl.zst", ".html.gz"]


@FUZZING
@given(content=st.binary(max_size=60), suffix=st.sampled_from(SUFFIXES))
def test_files_of_text(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    tried(lambda: list(open_source(str(path))), longest=3000)


@FUZZING
@given(
    content=st.text(st.sampled_from("ab \n.:*`_|=-<>/&;\"'"), max_size=200), suffix=st.sampled_from([".html", ".rst"])
)
def test_markup(content: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(content)
    tried(lambda: list(open_source(str(path))), longest=3000)


@FUZZING
@given(spec=st.text(max_size=30) | st.text("abc/~.*?[]:\0", max_size=30))
def test_names_of_sources(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not spec.strip().startswith(("hf:", "/", "~")) and ".." not in spec:  # a large folder takes its time
        tried(lambda: open_source(spec), longest=3000)


@pytest.fixture(scope="module")
def known(bpe: Tokenizer) -> dict[str, Any]:
    """A tokenizer of 300 tokens, as its file has it, with what else there may be in one."""
    content = json.loads(bpe.to_str())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    return content


@FUZZING
@given(data=st.data(), text=st.text(max_size=60))
def test_tokenizers(known: dict[str, Any], damage: Any, data: st.DataObject, text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data.draw(damage.mutated_json(known))))

    def use() -> None:
        loaded = tokenizers.load(str(path))
        loaded.no_truncation()
        loaded.no_padding()
        assert tokenizers.eos_id(loaded) is not None
        sizes = tokenizers.token_bytes(loaded)
        for encoding in tokenizers.encode(loaded, [text, text.upper()]):
            assert sizes is None or not encoding.ids or max(encoding.ids) < len(sizes)

    tried(use, longest=3000)
    tried(lambda: tokenizers.read(path), longest=3000)


@FUZZING
@given(content=st.binary(max_size=60) | st.text('[]{}":,truevocab0123456789', max_size=80).map(str.encode))
def test_tokenizer_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    tried(lambda: tokenizers.load(str(tmp_path / "tokenizer.json")), longest=3000)
