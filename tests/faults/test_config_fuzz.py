"""Settings of any kind, in TOML and in JSON: a valid configuration whose model is built, or one UserError, soon.

The same holds for the configurations of checkpoints, as far as their weights are not needed.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extrapolate.errors import UserError
from extrapolate.interop import huggingface
from extrapolate.interop.huggingface.config import ARCHITECTURES, ONLY, TEXT_OF, Fields, completed
from extrapolate.interop.huggingface.rotary import OF_LAYERS
from extrapolate.interop.huggingface.scaling import ROPE_FIELDS, ROPE_SHARED
from extrapolate.model import size
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.model.size import check_training, expected_shapes, parameter_count
from extrapolate.runs.config import ImportedConfig, read_config_file, validate, validate_as
from extrapolate.runs.resolve import read_file, with_resolved_encoding
from extrapolate.runs.training_config import TrainingConfig

SECONDS = 20
FUZZING = settings(settings.get_profile("fuzzing"), suppress_health_check=[HealthCheck.function_scoped_fixture])
BASE: dict[str, Any] = {
    "preset": "tiny",
    "encoding": {"name": "rope", "arguments": {"theta": 500.0}},
    "model": {"vocab_size": 30, "width": 16, "layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 8, "ff_width": 8},
    "training": {"seq_len": 16, "tokens": 512, "batch_tokens": 64},
    "data": {"path": "d", "source": "s", "corpus_hash": "c"},
}
FIELDS = {"model": list(ModelConfig.model_fields), "training": list(TrainingConfig.model_fields)}
ENDS = [0, 1, -1, 2, 3, 2**24, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**24, 10**400, math.inf, -math.inf, math.nan]
SCALARS = (
    st.none() | st.booleans() | st.sampled_from(ENDS) | st.integers() | st.integers(0, 64) | st.floats()
    | st.text(max_size=8)
)  # fmt: skip
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def tried(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it is refused. Nothing but a UserError, which can be read, and no long wait."""
    began = time.monotonic()
    found, refusal = None, "accepted"
    try:
        found = call()
    except UserError as error:
        refusal = str(error)
    assert time.monotonic() - began < SECONDS
    assert 5 < len(refusal) < 1500, refusal
    return found


@pytest.fixture(scope="module", autouse=True)
def little_memory() -> Iterator[None]:
    """A machine of 100 MB: what fits into more would be made, which takes its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(size, "memory_limit", lambda device: 10**8)
        yield


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
def test_files(content: bytes, toml: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a.toml" if toml else "a.json")
    path.write_bytes(content)
    tried(lambda: read_config_file(path))
    tried(lambda: read_file(path))


@pytest.mark.parametrize("bracket", ["[", "{", '{"a":', "a=[", "[[", "a.", "a = {b = ", '"""'])
def test_nesting(bracket: str, tmp_path: Path) -> None:
    for name in ("a.toml", "a.json"):
        (tmp_path / name).write_text(bracket * 10**5)
        tried(lambda path=tmp_path / name: read_file(path))


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
VALUES = ANY | LAYERS | st.floats(0, 2) | st.lists(st.floats() | st.integers(), min_size=8, max_size=8)
ROPES = st.dictionaries(st.sampled_from(OF_ROPE), VALUES | st.sampled_from(sorted(ROPE_FIELDS)), max_size=5)
ROPES |= st.dictionaries(st.sampled_from(["full_attention", "sliding_attention"]), ROPES, max_size=2)


@FUZZING
@given(
    name=st.sampled_from([*ARCHITECTURES, *TEXT_OF]),
    said=st.dictionaries(st.sampled_from(CHECKPOINT_FIELDS), VALUES, max_size=4),
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
