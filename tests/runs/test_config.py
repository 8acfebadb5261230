"""The run's configuration: presets, validation, files, differences."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.config import TrainedConfig, differences, read_config_file, validate
from extrapolate.runs.presets import PRESETS, preset
from extrapolate.runs.training_config import TrainingConfig


def raw(**sections: Any) -> dict[str, Any]:
    """A valid configuration, with sections replaced."""
    return {
        "preset": "tiny",
        "encoding": {"name": "rope", "arguments": {"theta": 10_000.0, "pairing": "half"}},
        "model": {"vocab_size": 2048},
        "training": {"seq_len": 64},
        "data": {"path": "/store", "source": "stdlib", "corpus_hash": "0123456789abcdef"},
    } | sections


def config(**sections: Any) -> TrainedConfig:
    return validate(raw(**sections), "test")


class TestPresets:
    @pytest.mark.parametrize(("name", "millions"), [("expe-35m", 35.2), ("expe-135m", 135.3)])
    def test_sizes_are_those_of_the_paper(self, name: str, millions: float) -> None:
        sizes = ModelConfig.model_validate(preset(name)["model"])
        with torch.device("meta"):  # no memory for the weights
            count = Model(sizes, "none", {}, seq_len=512).parameter_count()
        assert round(count / 1e6, 1) == millions
        # Llama's parts by hand: attention, gate, up and down, two norms a layer; the last norm; one or two tables.
        attention = 2 * sizes.width * (sizes.heads + sizes.kv_heads) * sizes.head_dim
        layer = attention + 3 * sizes.width * sizes.ff_width + 2 * sizes.width
        tables = (1 if sizes.tied_embeddings else 2) * sizes.vocab_size * sizes.width
        assert count == sizes.layers * layer + sizes.width + tables

    @pytest.mark.parametrize("name", PRESETS)
    def test_every_preset_is_valid_and_pays_for_many_steps(self, name: str) -> None:
        sections = preset(name)
        training = {"seq_len": 64} | sections["training"]
        resolved = config(preset=name, model=sections["model"], training=training).training
        assert resolved.steps > 100

    def test_a_preset_is_a_copy(self) -> None:
        preset("tiny")["model"]["vocab_size"] = 3
        preset("tiny")["training"]["lr"] = 3
        assert preset("tiny") == {"model": {"vocab_size": 2048}, "training": {}}


class TestBudget:
    @pytest.mark.parametrize(
        ("seq_len", "batch_tokens", "micro", "tokens", "windows", "micro_windows", "steps"),
        [
            (64, 4096, 4096, 1_000_000, 64, 64, 244),
            (100, 4096, 1000, 8000, 40, 10, 2),
            (100, 4096, 50, 4000, 40, 1, 1),
            (512, 1024, 10**9, 10_000, 2, 2, 9),
        ],
    )
    def test_windows_and_steps(
        self, seq_len: int, batch_tokens: int, micro: int, tokens: int, windows: int, micro_windows: int, steps: int
    ) -> None:
        training = TrainingConfig(seq_len=seq_len, batch_tokens=batch_tokens, micro_batch_tokens=micro, tokens=tokens)
        assert (training.batch_size, training.micro_batch_size, training.steps) == (windows, micro_windows, steps)


class TestValidation:
    @pytest.mark.parametrize(
        ("sections", "message"),
        [
            ({"training": {"seq_len": 64, "lr": float("nan")}}, "test: training.lr: "),
            ({"training": {"seq_len": 64, "weigth_decay": 1}}, "unknown setting; did you mean 'weight_decay'"),
            ({"modle": {}}, "test: modle: unknown setting; did you mean 'model'"),
            ({"training": {}}, "training.seq_len: Field required"),
            ({"training": {"seq_len": 64, "device": "tpu"}}, "training.device: Input should be 'cpu' or 'cuda'"),
            (
                {"training": {"seq_len": 64, "batch_tokens": 32}},
                "`batch_tokens=32` holds no window of 64: give at least 64",
            ),
            (
                {"training": {"seq_len": 64, "tokens": 99}},
                "training: `tokens=99` is less than one batch: give at least 2048",
            ),
            ({"model": {"vocab_size": 9, "heads": 4, "kv_heads": 3}}, r"heads \(4\) must be a multiple of kv_heads"),
            ({"model": {"vocab_size": 9, "dropout": 1}}, "model.dropout: Input should be less than 1"),
            ({"training": {"seq_len": 64, "clip": float("inf")}}, "training.clip: Input should be a finite number"),
        ],
    )
    def test_the_message_names_the_place_and_what_is_wrong(self, sections: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            validate(raw(**sections), "test")
        assert "\n" not in str(caught.value)
        assert "Value error" not in str(caught.value)

    @pytest.mark.parametrize("value", [float("nan"), {"a": [float("nan")]}])
    def test_an_argument_that_is_no_number_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"test: encoding\.arguments: an argument is NaN"):
            config(encoding={"name": "rope", "arguments": {"theta": value}})


class TestFiles:
    def test_toml_and_json_say_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_text(
            'preset = "tiny"\n[training]\nlr = 1e-3\nseq_len = 64\n[encoding]\nname = "é"\n'
        )
        expected = {"preset": "tiny", "training": {"lr": 0.001, "seq_len": 64}, "encoding": {"name": "é"}}
        (tmp_path / "a.json").write_text(json.dumps(expected), encoding="utf-8")
        assert read_config_file(tmp_path / "a.toml") == expected
        assert read_config_file(tmp_path / "a.json") == expected
        for file in (tmp_path / "a.toml", tmp_path / "a.json"):
            file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # a byte-order mark, as Windows' editors write it
            assert read_config_file(file) == expected

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.toml", b"lr == 1", r"a\.toml is not valid TOML: .*line 1"),
            ("a.json", b'{"lr": }', r"a\.json is not valid JSON: .*line 1"),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_what_is_neither_is_refused(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_config_file(tmp_path / name)

    def test_what_is_no_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"a\.toml: no such file"):
            read_config_file(tmp_path / "a.toml")
        with pytest.raises(ValueError, match=tmp_path.name):  # a run's folder in place of the config.json in it
            read_config_file(tmp_path)


class TestDifferences:
    def test_where_the_store_lies_is_none(self) -> None:
        moved = raw()["data"] | {"path": "/elsewhere"}
        assert differences(config(), config(data=moved)) == []

    def test_every_setting_that_differs_is_listed_with_both_values(self) -> None:
        new = config(
            encoding={"name": "rope", "arguments": {"theta": 500.0, "size": 3}},
            training={"seq_len": 64, "lr": 0.001},
            data=raw()["data"] | {"corpus_hash": "other"},
        )
        assert differences(config(), new) == [
            "data.corpus_hash: 0123456789abcdef in the run, other now",
            "encoding.arguments.pairing: half in the run, None now",
            "encoding.arguments.size: None in the run, 3 now",
            "encoding.arguments.theta: 10000.0 in the run, 500.0 now",
            "training.lr: 0.02 in the run, 0.001 now",
        ]
