"""xt.train"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from extrapolate.api.settings import TrainingArguments
from extrapolate.model.config import ModelConfig
from extrapolate.progress import QUIET, Progress
from extrapolate.runs.presets import PRESETS
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.runs.trust import decided
from extrapolate.specs.settings import AUTO, Flag, flags_of, public

if TYPE_CHECKING:  # importing these takes seconds, and the command line reads the signature
    from extrapolate.api.own_class import EncodingClass, ExtensionClass
    from extrapolate.data.store import Store
    from extrapolate.runs.run import Run


@public(TrainingConfig, ModelConfig)
@decided
def train(
    encoding: Annotated[
        "str | EncodingClass | None",
        Flag("the encoding: rope, expe:size=16, my_file.py:MyEncoding", "Model", "--pe"),
    ] = None,
    *,
    preset: Annotated[str | None, Flag(", ".join(PRESETS), "Model", usual="tiny")] = None,
    data: Annotated[
        "str | Path | Store | None",
        Flag("token store", "Data", usual="data/stdlib, made on first use", envvar="EXTRAPOLATE_DATA"),
    ] = None,
    out: Annotated[str | Path | None, Flag("the run's folder", "The run", usual="ckpt/<name>")] = None,
    label: Annotated[
        str | None, Flag("the model's name in tables and pictures", "The run", usual="the encoding's")
    ] = None,
    resume: Annotated[bool, Flag("continue the run in `out`, with its own settings", "The run")] = False,
    save_every: Annotated[int | None, Flag("tokens between saved states", "The run", usual="30 s", least=1)] = None,
    keep_every: Annotated[
        int | None, Flag("tokens between checkpoints that are kept for evaluation", "The run", usual="none", least=1)
    ] = None,
    half: Annotated[
        bool | None,
        Flag(
            "also keep a model of half the budget, for 10 % more training",
            "The run",
            off=True,
            usual="below 50 million parameters",
        ),
    ] = None,
    tracker: Annotated[
        Literal["trackio", "wandb", "tensorboard"] | None,
        Flag("also send the training log to this tracker", "The run", usual="none", envvar="EXTRAPOLATE_TRACKER"),
    ] = None,
    config: Annotated[
        str | Path | None, Flag("read settings from a TOML file, or a run's config.json", "From settings or a run")
    ] = None,
    start: Annotated[
        "str | Path | Run | None",
        Flag(
            "start from the weights of this run, or of hf:NAME_OR_FOLDER, as another run",
            "From settings or a run",
            "--from",
        ),
    ] = None,
    extend: Annotated[
        "str | ExtensionClass | None",
        Flag(
            "with `start`: the extension that belongs to the new run: pi:factor=4; without-own: it has none",
            "From settings or a run",
        ),
    ] = None,
    trust_code: Annotated[
        bool,
        Flag("run Python files that came with a run or `config`; read them first", "From settings or a run"),
    ] = False,
    progress: Progress = QUIET,
    **settings: Unpack[TrainingArguments],
) -> "Run":
    """Trains one model and returns its run.

    An argument that is None takes its value from the configuration file or the preset, or is computed from L.

    encoding: a spec, such as `rope`, `expe:size=16` or `my_file.py:MyEncoding`, or a class; to pass arguments to a
    class, use `functools.partial(MyEncoding, theta=500.0)`. The run keeps the source code of your class, whether it is
    defined in a module, a script or a notebook. seq_len: the training length L in tokens. data: a token store (default:
    data/stdlib, made from the standard library on first use). preset: sizes and budget by name (default `tiny`).
    tokens, batch_tokens: the budget, and the size of a step, in tokens. optimizer: `muon` for the blocks' matrices, or
    `adamw` for all parameters (see docs/training.md). lr: the peak learning rate. layers: the number of blocks. width,
    heads: channels D and attention heads; each head has D / heads channels, and the feed-forward width keeps the
    preset's ratio. ssmax: multiply the scores of query i by s ln(i + 1) (arXiv 2501.19399). qk_norm: normalise queries
    and keys per head. qkv_bias: add biases to queries, keys and values, as in Qwen 2. sinks: add one learned score per
    head to every softmax, whose weight is discarded, as in gpt-oss. output_gate: gate the output of each head by the
    sigmoid of a projection (arXiv 2505.06708). differential: give each head a second query, and subtract a learned
    share of its output from that of the first. canon: add causal convolutions of 4 tokens at four places of each block
    (arXiv 2512.17351). probes: the share of training windows that are probes of each kind, `needle=0.25,mqar=0.25`.
    seed: the seed of weights, order and dropout (default 0).

    out: the run's folder (default: in ckpt/, with a name made from the settings). label: the
    model's name in tables and pictures, such as `full` in an ablation (default: that of the encoding). resume: continue
    the run in `out`, if there is one, with its settings; arguments that are given must agree with them. save_every:
    tokens between saved states (default: every 30 s). keep_every: tokens between checkpoints to keep for evaluation
    (default: none).
    half: also keep a model of half the budget, with a learning rate that falls to its end, so that a report can say
    whether its answer still changes. The run's own weights stay the same. The default is to keep it below 50 million
    parameters, in trainings of at least 200 steps that start from fresh weights.

    device: `cpu`, `cuda` or `auto`. precision: `fp32`, `bf16` or `auto`, which is bf16 if the hardware supports it
    natively. compile: use torch.compile (default: if the run is long enough to make up for the compilation). config: a
    TOML file, or a run's config.json; arguments override it. start: start a new run from the weights of this run, or of
    a Hugging Face checkpoint `hf:NAME_OR_FOLDER`. extend: with `start`, an extension that belongs to the new run, such
    as `pi:factor=4`, or a class. tracker: `trackio`, `wandb` or `tensorboard`, which also receives
    each row of the log (default: none); if it fails, there is a warning and training continues. trust_code: allow
    Python files that come with `config`, `start` or the run in `out` to run, even if you have not run them before; see
    docs/trust.md.

    Raises UserError if a setting is unknown or out of range, the tracker is not installed, or `out` holds another run;
    RuntimeError if the loss is no longer finite; Interrupted if the user stops the training, after its state is saved.
    """
    from extrapolate.api.own_class import spec_of
    from extrapolate.api.training import path_of, train_with
    from extrapolate.interop import trackers
    from extrapolate.interop.trackers import Tracking
    from extrapolate.machine.limits import stay_within_quota
    from extrapolate.machine.memory import keep_freed_memory
    from extrapolate.runs.resolve import TrainingRequest
    from extrapolate.runs.run import Run

    keep_freed_memory()
    stay_within_quota()
    trackers.check(tracker)
    automatic = {one.name for one in flags_of(train) if one.flag.auto}
    given = {name: one for name, one in settings.items() if not (name in automatic and one == AUTO)}
    given |= {"encoding": spec_of(encoding), "preset": preset, "label": label, "extend": spec_of(extend)}
    given |= {"start": start.path if isinstance(start, Run) else path_of("start", start)}
    given |= {"save_every": save_every, "keep_every": keep_every, "half": half}
    request = TrainingRequest.of(given, path_of("config", config))
    return train_with(request, data, path_of("out", out), resume, tracking=Tracking(tracker), progress=progress)
