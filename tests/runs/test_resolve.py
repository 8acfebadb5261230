"""From preset, file and flags to a run's configuration: who wins, what is filled in, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.losses import ignored, scores_at
from extrapolate.machine import devices
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, operations, resolve, run_name, token_operations
from extrapolate.runs.run import Run
from extrapolate.runs.training_config import TrainingConfig

USER_FILE = """
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
    source = "ours"

    def __init__(self, dims, *, size: int = 3, base: str | None = None):
        super().__init__(dims)
        self.size, self.base = size, base
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """What resolving asks of a store is in its manifest."""
    return Store(tmp_path / "store", {"source": "made up", "corpus_hash": "0123456789abcdef", "vocab_size": 300})


@pytest.fixture(autouse=True)
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUDA or fast bfloat16, whatever runs the tests."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, plain_cpu: None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)


def request(file: Path | None = None, pe: str | None = "rope", **training: Any) -> TrainingRequest:
    return TrainingRequest(pe=pe, file=file, training={"seq_len": 64} | training)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def config(store: Store, asked: TrainingRequest) -> TrainedConfig:
    return resolve(asked, store)[0]


class TestPrecedence:
    def test_flags_win_over_the_file_which_wins_over_the_preset(self, store: Store, tmp_path: Path) -> None:
        file = write(
            tmp_path / "a.toml",
            'preset = "expe-35m"\n[model]\nlayers = 3\nwidth = 96\n[training]\nlr = 0.5\nseed = 5\nseq_len = 32\n',
        )
        asked = TrainingRequest("rope", None, file, {"layers": 2, "width": None}, {"seed": 9, "lr": None})
        resolved = config(store, asked)
        assert resolved.preset == "expe-35m"
        assert (resolved.model.layers, resolved.training.seed) == (2, 9)  # flags
        assert (resolved.model.width, resolved.training.lr, resolved.training.seq_len) == (96, 0.5, 32)  # the file
        assert (resolved.model.dropout, resolved.training.batch_tokens) == (0.1, 32_768)  # the preset
        assert (resolved.model.norm_eps, resolved.training.beta2) == (1e-5, 0.95)  # the defaults

    @pytest.mark.parametrize(
        ("given", "rate"), [({}, 1e-3), ({"optimizer": "adamw"}, 1e-3), ({"optimizer": "muon"}, 0.02)]
    )
    def test_a_presets_rate_is_that_of_its_optimizer(self, store: Store, given: dict[str, str], rate: float) -> None:
        assert config(store, TrainingRequest("rope", "expe-35m", training=given)).training.lr == rate
        assert config(store, TrainingRequest("rope", "expe-35m", training={**given, "lr": 0.5})).training.lr == 0.5

    @pytest.mark.parametrize(
        ("preset", "given", "sizes"),  # width, heads, kv_heads, head_dim, ff_width
        [
            ("tiny", {}, (128, 4, 4, 32, 384)),
            ("tiny", {"width": 64}, (64, 4, 4, 16, 192)),
            ("expe-35m", {"width": 96, "heads": 3}, (96, 3, 3, 32, 256)),
            ("tiny", {"width": 64, "heads": 8, "kv_heads": 2, "head_dim": 32, "ff_width": 10}, (64, 8, 2, 32, 10)),
        ],
    )
    def test_what_is_not_given_follows_from_the_width_and_heads(
        self, store: Store, preset: str, given: dict[str, int], sizes: tuple[int, ...]
    ) -> None:
        model = config(store, TrainingRequest("rope", preset, None, given, {"seq_len": 64, "lr": 1e-3})).model
        assert (model.width, model.heads, model.kv_heads, model.head_dim, model.ff_width) == sizes

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"width": 130}, "`width=130` cannot be divided among 4 heads"),
            ({"width": 132}, "rope needs an even head size, not 33"),
        ],
    )
    def test_sizes_that_make_no_model_are_refused(self, store: Store, given: dict[str, int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            config(store, TrainingRequest("rope", None, None, given, {"seq_len": 64}))

    def test_the_encoding_given_replaces_that_of_the_file_with_its_arguments(
        self, store: Store, tmp_path: Path
    ) -> None:
        file = write(tmp_path / "a.toml", '[encoding]\nname = "rope"\narguments = {theta = 500}\n')
        from_file = config(store, request(file, pe=None)).encoding
        assert (from_file.name, from_file.arguments) == ("rope", {"theta": 500.0, "pairing": "half"})
        given = config(store, request(file, pe="rope:pairing=interleaved")).encoding
        assert given.arguments == {"theta": 10_000.0, "pairing": "interleaved"}

    def test_a_runs_own_configuration_gives_the_same_again(self, store: Store, tmp_path: Path) -> None:
        first = config(store, request(pe="expe:size=3", lr=0.1))
        Run.create(tmp_path / "run", first, b"{}")
        assert config(store, TrainingRequest(file=tmp_path / "run/config.json")) == first

    def test_a_file_of_another_corpus_is_refused(self, store: Store, tmp_path: Path) -> None:
        file = write(tmp_path / "a.toml", '[data]\ncorpus_hash = "x"')
        with pytest.raises(ValueError, match="is of corpus x, and"):
            config(store, request(file))

    def test_values_that_depend_on_the_length_are_resolved(self, store: Store) -> None:
        arguments = config(store, request(pe="expe", seq_len=40, batch_tokens=400)).encoding.arguments
        derived = {name: arguments[name] for name in ("size", "start", "step", "slope")}
        assert derived == {"size": 128 // 8, "start": -1.0, "step": 2 / 40, "slope": 2 / 40}


class TestAutomatic:
    def test_on_a_plain_cpu(self, store: Store) -> None:
        training = config(store, request(device="auto", precision="auto")).training
        assert (training.device, training.precision) == ("cpu", "fp32")
        assert training.micro_batch_tokens == 4096

    def test_fast_bfloat16_is_used_unless_told_otherwise(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
        assert config(store, request()).training.precision == "bf16"
        assert config(store, request(precision="fp32")).training.precision == "fp32"

    @pytest.mark.usefixtures("gpu")
    def test_a_gpu_is_used_unless_told_otherwise(self, store: Store) -> None:
        training = config(store, request()).training
        assert (training.device, training.precision) == ("cuda", "bf16")
        assert config(store, request(device="cpu")).training.device == "cpu"

    @pytest.mark.usefixtures("gpu")
    def test_a_gpu_that_emulates_bfloat16_computes_in_float32(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a T4 or V100: with emulation counted, torch says that they support it."""
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
        assert config(store, request()).training.precision == "fp32"
        assert config(store, request(precision="bf16")).training.precision == "bf16"

    def test_a_gpu_that_is_not_there_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="no CUDA device that torch can use; use `device='cpu'`"):
            resolve(request(device="cuda"), store)

    @pytest.mark.parametrize(("vocab_size", "tokens"), [(8192, 4096), (8193, 2048)])
    def test_a_large_vocabulary_takes_smaller_forward_passes(
        self, tmp_path: Path, vocab_size: int, tokens: int
    ) -> None:
        store = Store(tmp_path, {"source": "x", "corpus_hash": "x", "vocab_size": vocab_size})
        assert config(store, request()).training.micro_batch_tokens == tokens
        assert config(store, request(micro_batch_tokens=128)).training.micro_batch_tokens == 128

    def test_compiling_is_for_long_trainings_with_a_compiler(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The tiny model: 4 layers of 4 x 128 x 128 + 3 x 128 x 384, and 64 x 128 for scores, and a head of 300 x 128,
        # 6 operations each a token.
        pays = int(5e13 / (6 * (4 * (4 * 128 * 128 + 3 * 128 * 384 + 64 * 128) + 300 * 128)))
        monkeypatch.setattr(devices.shutil, "which", lambda name: f"/usr/bin/{name}")
        assert config(store, request(tokens=int(1.01 * pays))).training.compile
        assert not config(store, request(tokens=int(0.99 * pays))).training.compile
        assert config(store, request(tokens=10_000, compile=True)).training.compile
        monkeypatch.setattr(devices.shutil, "which", lambda name: None)
        assert not config(store, request(tokens=2 * pays)).training.compile


class TestRefusals:
    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (TrainingRequest("rope"), "name the training length in tokens: `seq_len=512`"),
            (request(pe=None), r"name an encoding: `encoding='rope'` \(extrapolate encodings lists them\)"),
            (request(pe="roep"), "unknown encoding 'roep'; did you mean 'rope'"),
            (request(pe="rope:thata=1"), "rope has no argument 'thata'; did you mean 'theta'"),
            (TrainingRequest("rope", "tinny"), "unknown preset 'tinny'; did you mean 'tiny'"),
            (request(seq_len=9999, batch_tokens=99), "`batch_tokens=99` holds no window of 9999: give at least 9999"),
            (request(pe="absent.py:Mine"), r"absent\.py: no such file"),
        ],
    )  # fmt: skip
    def test_the_message_says_what_is_wrong(self, store: Store, asked: TrainingRequest, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            resolve(asked, store)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[modle]\nlayers = 3", "unknown section 'modle'; did you mean 'model'"),
            ("[model]\nlayrs = 3", r"a\.toml: model.layrs: unknown setting; did you mean 'layers'"),
            ("model = 3", "model must be a section of settings, not 3"),
        ],
    )
    def test_mistakes_in_a_file_are_named(self, store: Store, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            resolve(request(write(tmp_path / "a.toml", text)), store)

    @pytest.mark.parametrize(
        "text",
        [
            "[encoding]\nname = 'rope'\ntheta = 500"  # arguments belong in their own table
        ],
    )
    def test_an_encoding_argument_in_the_wrong_place_is_never_ignored(
        self, store: Store, tmp_path: Path, text: str
    ) -> None:
        with pytest.raises(ValueError, match="encoding"):
            resolve(request(write(tmp_path / "a.toml", text), pe=None), store)

    def test_an_encoding_in_a_file_may_be_spelled_as_on_the_command_line(self, store: Store, tmp_path: Path) -> None:
        file = write(tmp_path / "a.toml", "[encoding]\nname = 'rope:theta=500'")
        assert config(store, request(file, pe=None)) == config(store, request(pe="rope:theta=500"))

    @pytest.mark.parametrize("text", ["[1, 2]", '{"config": 3}'])
    def test_a_json_file_that_is_no_object_is_refused(self, store: Store, tmp_path: Path, text: str) -> None:
        with pytest.raises(ValueError, match=r"a\.json"):
            resolve(request(write(tmp_path / "a.json", text)), store)

    def test_another_vocabulary_is_refused_with_both_sizes(self, store: Store, tmp_path: Path) -> None:
        file = write(tmp_path / "a.toml", "[model]\nvocab_size = 301\n")
        with pytest.raises(ValueError, match=r"model.vocab_size is 301, and the tokenizer of .*store has 300 tokens"):
            resolve(request(file), store)

    def test_the_vocabulary_of_a_preset_gives_way_to_the_stores(self, store: Store, tmp_path: Path) -> None:
        file = write(tmp_path / "a.toml", "[model]\nvocab_size = 300\n")
        assert config(store, TrainingRequest("rope", "expe-35m", file)).model.vocab_size == 300
        assert config(store, TrainingRequest("rope", "expe-35m")).model.vocab_size == 300


class TestUserEncoding:
    @pytest.fixture
    def mine(self, tmp_path: Path) -> Path:
        return write(tmp_path / "mine.py", USER_FILE)

    def test_its_file_and_hash_are_part_of_the_configuration(self, store: Store, mine: Path) -> None:
        resolved, file = resolve(request(pe=f"{mine}:Mine:size=7"), store)
        assert file == mine
        assert resolved.encoding.name == "mine.py:Mine"
        assert resolved.encoding.arguments == {"size": 7, "base": None}
        before = resolved.encoding.file_sha256
        assert before is not None
        assert len(before) == 64
        write(mine, USER_FILE + "\n# changed\n")
        assert config(store, request(pe=f"{mine}:Mine:size=7")).encoding.file_sha256 not in (before, None)


class TestRunNames:
    @pytest.mark.parametrize(
        ("asked", "name"),
        [
            (request(), "rope-L64-s0"),
            (request(seed=3, seq_len=32), "rope-L32-s3"),
            (request(pe="rope:theta=10000"), "rope-L64-s0"),
            (request(pe="rope:theta=500"), "rope-theta=500.0-L64-s0"),
            (request(pe="expe:start=-1,size=8"), "expe-size=8-L64-s0"),
            (TrainingRequest("none", "gpt-256"), "gpt-256-none-L256-s0"),
        ],
    )
    def test_what_is_not_usual_is_in_the_name(self, store: Store, asked: TrainingRequest, name: str) -> None:
        assert run_name(config(store, asked)) == name

    def test_a_user_encoding_is_named_by_its_class(self, store: Store, tmp_path: Path) -> None:
        mine = write(tmp_path / "mine.py", USER_FILE)
        name = run_name(config(store, request(pe=f"{mine}:Mine:size=7,base=a/b c")))
        assert name == "Mine-size=7-base=a-b-c-L64-s0"

    def test_a_name_fits_into_a_file_system(self, store: Store, tmp_path: Path) -> None:
        asked = [request(pe=f"rope:theta=50{last}", probes=",".join(
            f"(mqar:pairs={pairs},symbols=32)=0.0{pairs:02}" for pairs in range(2, 17)
        )) for last in (1, 2)]  # fmt: skip
        names = {run_name(resolve(one, store)[0]) for one in asked}
        assert len(names) == 2
        for name in names:
            assert name.startswith("rope-theta=50")
            (tmp_path / f".{name}.{2**22}.partial").touch()


@pytest.mark.parametrize("seq_len", [16, 64])
def test_operations_are_those_that_torch_counts_of_a_step(seq_len: int) -> None:
    """Attention computes whole squares of scores at these lengths, of which half are of the past."""
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=4, kv_heads=2, head_dim=16, ff_width=48)
    training = TrainingConfig(seq_len=seq_len, tokens=2 * seq_len, batch_tokens=2 * seq_len)
    model = Model(sizes, "rope", {}, seq_len).train()
    tokens_BT = torch.randint(0, 61, (2, seq_len + 1))
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens_BT[:, :-1], tokens_BT[:, 1:]).backward()
    counted = counter.get_flop_counts()["Global"]
    expected = counted[torch.ops.aten.mm] + counted[torch.ops.aten.bmm] / 2
    found = operations(TrainedConfig.model_construct(model=sizes, training=training))
    assert found == pytest.approx(expected, rel=0.01)


def test_operations_of_windows_with_few_targets_are_those_that_torch_counts() -> None:
    sizes = ModelConfig(vocab_size=61, width=32, layers=2, heads=4, kv_heads=2, head_dim=16, ff_width=48)
    model, places_P = Model(sizes, "rope", {}, 64).eval(), np.arange(60, 64)
    tokens = np.random.default_rng(0).integers(0, 61, (8, 65))
    with FlopCounterMode(display=False) as counter:
        scores_at(model, tokens.__getitem__, 8, 64, places_P, PLAIN, precision="fp32", progress=ignored)
    counted = counter.get_flop_counts()["Global"]
    expected = counted[torch.ops.aten.mm] + counted[torch.ops.aten.bmm] / 2
    assert token_operations(sizes, 64, 4) * 8 * 64 == pytest.approx(expected, rel=0.02)
