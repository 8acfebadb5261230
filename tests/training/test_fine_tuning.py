"""The configuration of a run that continues another: what it takes over, and which lengths it counts from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.runs.resolve import TrainingRequest
from extrapolate.runs.run import Run
from extrapolate.training.fine_tuning import resolve_fine_tuning
from extrapolate.training.loop import own_plan


@pytest.fixture
def first(store: Store, tmp_path: Path, config_of) -> Path:
    """A finished run of L = 16 with weights of no training, none of whose settings is a default."""
    config = config_of(
        "rope:theta=500", {"layers": 1}, precision="auto", tokens=40_960, batch_tokens=512, lr=2e-3, min_lr_ratio=0.2,
        warmup_ratio=0.1, weight_decay=0.3, beta1=0.8, beta2=0.99, clip=0.5, seed=3,
    )  # fmt: skip
    return finished(tmp_path / "first", store, config)


def finished(path: Path, store: Store, config) -> Path:
    run = Run.create(path, config, store.tokenizer_json())
    run.save_weights(run.build_model(drawn=True), config.training.steps, config.training.tokens, final=True)
    return path


@pytest.fixture
def tune(store: Store, tmp_path: Path) -> Callable[..., Path]:
    """Continues a run, as `resolve_fine_tuning` configures it; weights are those of no training."""

    def call(start: Path, name: str, extend: str | None = None, **training: object) -> Path:
        config, *_ = resolve_fine_tuning(start, TrainingRequest(training=training, extend=extend), store)
        return finished(tmp_path / name, store, config)

    return call


def test_it_takes_over_every_setting_but_the_learning_rate_and_the_budget(first: Path, tune) -> None:
    before, after = Run.open(first).config, Run.open(tune(first, "second")).config
    changed = {
        name: value for name, value in after.training.model_dump().items() if value != getattr(before.training, name)
    }
    assert changed == {"lr": pytest.approx(2e-4), "tokens": 4096}
    assert (after.model, after.encoding, after.data) == (before.model, before.encoding, before.data)
    assert Run.open(tune(first, "short", tokens=1024, lr=1e-5)).config.training.tokens == 1024
    other = Run.open(tune(first, "other", optimizer="adamw")).config.training
    assert (other.optimizer, other.lr) == ("adamw", pytest.approx(3e-4))  # a tenth of its own rate


def test_every_step_of_a_chain_counts_from_the_l_it_began_with(first: Path, tune) -> None:
    """So does an extension of its own without a factor, which the next step takes over."""
    long = tune(first, "long", "pi", seq_len=64)
    longer = tune(long, "longer", seq_len=128)
    off = tune(longer, "off", "without-own", seq_len=32)
    expected = ((long, 64, "pi", 1 / 4), (longer, 128, "pi", 1 / 8), (off, 32, None, 1))
    for path, length, extension, scale in expected:
        config = Run.open(path).config
        assert config.origin is not None
        assert (config.origin.seq_len, config.seq_len, config.trained_length) == (16, 16, length)
        assert config.extension == extension
        plan = own_plan(Run.open(path), Run.open(path).build_model())
        assert plan == (PLAIN if extension is None else Plan(position_scale=scale))
    assert Run.open(longer).config.origin.run == "long"
    assert Run.open(longer).config.origin.label == "RoPE(theta=500) + PI, tuned at 64"


def test_as_trained_changes_nothing(first: Path, store: Store, tune) -> None:
    long = tune(first, "long", "pi", seq_len=64)
    for pe, own in ((None, "pi"), ("rope", None)):  # another encoding does not take the extension over
        asked = [TrainingRequest(pe=pe, training={"seq_len": 64}, extend=extend) for extend in (None, "as-trained")]
        configs = [resolve_fine_tuning(long, request, store)[0] for request in asked]
        assert configs[0] == configs[1]
        assert configs[0].extension == own


def test_a_plan_that_cannot_be_is_refused_before_training(first: Path, store: Store) -> None:
    request = TrainingRequest(training={"seq_len": 64}, extend="self-extend:window=16")
    with pytest.raises(ValueError, match="no group keeps 64 tokens within 16"):
        resolve_fine_tuning(first, request, store)


def test_another_encoding_has_the_arguments_that_were_given(first: Path, store: Store) -> None:
    config, *_ = resolve_fine_tuning(first, TrainingRequest(pe="p-rope:p=0.5,theta=700"), store)
    assert config.encoding.name == "p-rope"
    assert (config.encoding.arguments["p"], config.encoding.arguments["theta"]) == (0.5, 700)
