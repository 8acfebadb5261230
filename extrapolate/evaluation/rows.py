"""The rows of EVALS, EVAL_DOCUMENTS and EVAL_TARGETS (see `results.tables`).

Shapes: N targets, in the order of `Targets`.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from extrapolate.data.store import Split
from extrapolate.encodings.plan import Plan
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import MEMORY
from extrapolate.evaluation.plans import AppliedExtensions
from extrapolate.evaluation.targets import Targets, sums_by
from extrapolate.evaluation.window_losses import Measured
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.model.config import COMBINED, ModelConfig
from extrapolate.model.language_model import LanguageModel
from extrapolate.results.columns import LABEL
from extrapolate.results.metrics.base import Scored
from extrapolate.results.metrics.base import values as metric_values
from extrapolate.results.tables import EVAL_DOCUMENTS, EVAL_TARGETS
from extrapolate.runs import provenance
from extrapolate.runs.config import ForeignConfig, ImportedConfig, RunConfig, TrainedConfig, short_hash
from extrapolate.runs.presets import PRESETS
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.runs.weights import Checkpoint
from extrapolate.version import __version__

# Documents have a row for every stretch of this many L, by the start of a target's window. If there are few documents,
# the stretches take their place in statistics. A window lies in one stretch, which so has all its positions.
BLOCK_FACTOR = 16
# Within a stretch, documents have a row for every bucket of L / POSITION_SHARE positions in the window: losses by
# position are sums of these rows.
POSITION_SHARE = 2
# The columns of settings of the training whose names are taken. `seq_len` is `trained_length`.
COLUMNS = {
    "tokens": "budget", "precision": "training_precision", "probes": "training_probes", "device": "training_device",
    "compile": "compiled",
}  # fmt: skip


@dataclass(frozen=True)
class TargetsAtLength:
    """Every target of a protocol at one length, [N]. index_N: the index of its last input in the window.

    window_N: the number of its window. optimum_N: the lowest possible loss, nats; None if unknown. key_N: whether it is
    a key token, see `key_tokens`.
    """

    targets: Targets
    control_N: np.ndarray
    index_N: np.ndarray
    window_N: np.ndarray
    optimum_N: np.ndarray | None
    key_N: np.ndarray

    def row(self, setting: dict[str, Any], measured: Measured | None) -> dict[str, Any]:
        """The row of EVALS; without a loss if nothing was measured."""
        n_targets, targets = len(self.control_N), self.targets
        scored = None
        if measured is not None:
            scored = Scored(
                measured.loss_N, self.control_N, self.optimum_N, targets.bytes_N, targets.document_N, self.index_N,
                self.window_N,
            )  # fmt: skip
        return setting | {
            "loss": None if scored is None else scored.mean,
            "control_loss": float(self.control_N.sum(dtype=np.float64)) / n_targets,
            "optimum_loss": None if self.optimum_N is None else float(self.optimum_N.sum()) / n_targets,
            **metric_values(scored),
            **self._of_key(measured),
            "n_targets": n_targets,
            "n_documents": len(np.unique(targets.document_N)),
            "n_bytes": _known(targets.bytes_N.sum()),
            "tokens_per_s": None if measured is None or not measured.inputs else measured.inputs / measured.seconds,
            "peak_mib": None if measured is None else measured.peak_mib,
            "evaluated_at": datetime.now(UTC).replace(microsecond=0),
        }

    def document_rows(self, setting: dict[str, Any], measured: Measured | None, split: Split) -> list[dict[str, Any]]:
        """The rows of EVAL_DOCUMENTS."""
        seq_len = setting["seq_len"]
        width = max(1, seq_len // POSITION_SHARE)
        targets = self.targets
        losses = self._losses(measured)
        of_key = {f"key_{name}": np.where(self.key_N, value_N, 0) for name, value_N in losses.items()}
        values = {**losses, **of_key, "n_key": self.key_N, "n_bytes": targets.bytes_N}
        start_N = targets.place_N - 1 - self.index_N
        block_N = np.maximum(start_N, 0) // (BLOCK_FACTOR * seq_len)
        sums = sums_by([targets.document_N, block_N, self.index_N // width], values)
        shared = {column.name: setting[column.name] for column in EVAL_DOCUMENTS.columns if column.name in setting}
        n_targets, n_key = sums["n_targets"], sums["n_key"].astype(int)
        means = {name: (sums[name] / n_targets).tolist() for name in losses}
        key_means = {name: (sums[name] / np.maximum(n_key, 1)).tolist() for name in of_key}
        return [
            shared
            | {name: mean[i] for name, mean in means.items()}
            | {name: mean[i] if n_key[i] else None for name, mean in key_means.items()}
            | {
                "document": split.ids[document],
                "block": block,
                "position": place * width,
                "bucket": width,
                "n_targets": int(n_targets[i]),
                "n_key": int(n_key[i]),
                "n_bytes": _known(sums["n_bytes"][i]),
            }
            for i, (document, block, place) in enumerate(
                zip(sums["key 0"].tolist(), sums["key 1"].tolist(), sums["key 2"].tolist(), strict=True)
            )
        ]

    def _losses(self, measured: Measured | None) -> dict[str, np.ndarray]:
        """The known losses of every target, nats, by column."""
        found = {"control_loss": self.control_N}
        if measured is not None:
            found["loss"] = measured.loss_N
        if self.optimum_N is not None:
            found["optimum_loss"] = self.optimum_N
        return found

    def _of_key(self, measured: Measured | None) -> dict[str, float | None]:
        """The number of key tokens, and their mean losses."""
        count = int(self.key_N.sum())
        found: dict[str, float | None] = {
            "n_key": count,
            **dict.fromkeys(("key_loss", "key_control_loss", "key_optimum_loss")),
        }
        for name, value_N in self._losses(measured).items() if count else ():
            found[f"key_{name}"] = float(value_N[self.key_N].mean(dtype=np.float64))
        return found

    def target_rows(self, setting: dict[str, Any], measured: Measured, split: Split) -> pa.Table:
        """The rows of EVAL_TARGETS, as columns."""
        targets, count = self.targets, len(self.control_N)
        documents = pa.DictionaryArray.from_arrays(pa.array(targets.document_N, pa.int32()), pa.array(split.ids))
        found = {
            "document": documents, "place": targets.place_N, "position": self.index_N, "loss": measured.loss_N
        }  # fmt: skip
        return pa.table(
            [
                pa.array(found[field.name], field.type) if field.name in found
                else pa.repeat(setting[field.name], count).dictionary_encode() if field.type == LABEL
                else pa.repeat(pa.scalar(setting[field.name], field.type), count)
                for field in EVAL_TARGETS.schema()
            ],
            schema=EVAL_TARGETS.schema(),
        )  # fmt: skip


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def missing_reason(measured: object, model: LanguageModel, length: int, plan: Plan | None) -> str | None:
    """Why nothing was measured at a length, tokens; None if something was. `plan` is None if none was found."""
    if measured is not None:
        return None
    if plan is None or model.defined_at(length, plan):
        return MEMORY
    return f"the encoding is not defined at {length} tokens"


def plan_hash(plan: Plan, prefixes_agree: bool, bos: int | None) -> str | None:
    """Identifies a plan and the token of `bos`, if any: equal hashes give equal losses.

    None if the model looks at a window's length itself.
    """
    if not prefixes_agree:
        return None
    return short_hash({"plan": repr(plan)} | ({} if bos is None else {"bos": bos}))


def label_of(
    config: RunConfig, model: LanguageModel, stack: ExtensionStack | None, taken_off: ExtensionStack | None = None
) -> str:
    """The name in tables: `RoPE + YaRN`, `RoPE + PI(4), tuned at 256`, `NoPE, from RoPE`, `RoPE by AdamW`.

    stack: what is applied, including the run's own extension unless that is `taken_off`.
    """
    given = config.label if isinstance(config, TrainedConfig) else None
    name = given or (config.imported.name if isinstance(config, ImportedConfig) else model.label())
    extended = f" + {stack.label()}" if stack else ""
    if not isinstance(config, TrainedConfig):
        return f"{name}{extended}" + (f", {taken_off.label()} taken off" if taken_off else "")
    origin = config.origin
    if origin is None:
        preset = PRESETS.get(config.preset, {}).get("training", {})
        optimizer = config.training.optimizer
        if given is None and optimizer != preset.get("optimizer", TrainingConfig.model_fields["optimizer"].default):
            name += " by " + {"muon": "Muon", "adamw": "AdamW"}[optimizer]
        return f"{name}{extended}"
    label = f"{name}{extended}"
    if config.trained_length != origin.seq_len or origin.label == name:
        label += f", tuned at {config.trained_length}"
    if taken_off:
        label += f" with {taken_off.label()}, taken off"
    return label if origin.label == name else f"{label}, from {origin.label}"


def of_extension(run: AnyRun, model: LanguageModel, name: str, applied: AppliedExtensions) -> dict[str, Any]:
    """What the rows of an extension share besides `common`. name: the extension's in tables."""
    label = label_of(run.config, model, applied.joined(), applied.taken_off)
    return {"extension": name, "model": label, "extension_sha256": applied.sha256()}


def common(
    run: AnyRun, model: LanguageModel, checkpoint: Checkpoint, precision: str, split: str, corpus_hash: str
) -> dict[str, Any]:
    """What all rows of a run, checkpoint and precision share."""
    config = run.config
    setting = {name: section for name, section in config.decisive().items() if name != "encoding"}
    if isinstance(config, TrainedConfig):  # its label names what is combined with the encoding
        setting["model"] |= {name: ModelConfig.usual(name) for name in COMBINED}
    return {
        "run": run.name,
        "split": split,
        "step": checkpoint.step,
        "precision": precision,
        "encoding": config.encoding.name,
        "encoding_arguments": json.dumps(config.encoding.arguments),
        "display": model.encoding.display,
        "caption": model.encoding.caption,
        "seq_len": config.seq_len,
        "trained_length": config.trained_length,
        "imported": _imported_from(config),
        **_settings(config),
        "parameters": model.parameter_count(),
        "own_extension": config.extension,
        "config_hash": config.config_hash(),
        "setting_hash": short_hash(setting),
        "corpus_hash": corpus_hash,
        "weights_sha256": checkpoint.sha256,
        **_training(run, checkpoint),
        "version": __version__,
        "commit": provenance.commit(),
        "machine": provenance.machine(),
    }


def _settings(config: RunConfig) -> dict[str, Any]:
    """The columns of every setting of the model and of its training; None if it is not known."""
    model = config.model.model_dump() if isinstance(config, TrainedConfig | ImportedConfig) else {}
    training = config.training.model_dump() if isinstance(config, TrainedConfig) else {}
    return {name: model.get(name) for name in ModelConfig.model_fields} | {
        COLUMNS.get(name, name): training.get(name) for name in TrainingConfig.model_fields if name != "seq_len"
    }


def _imported_from(config: RunConfig) -> str | None:
    if isinstance(config, ForeignConfig):
        return config.foreign.source
    return config.imported.source if isinstance(config, ImportedConfig) else None


def _training(run: AnyRun, checkpoint: Checkpoint) -> dict[str, Any]:
    """How the weights were trained: all None if that happened elsewhere."""
    config, provenance = run.config, run.provenance
    if not isinstance(config, TrainedConfig):
        names = (
            "origin", "origin_sha256", "preset", "training_corpus", "training_seconds", "training_taken", "tokens",
            "annealed", "training_version", "training_commit", "training_machine",
        )  # fmt: skip
        return dict.fromkeys(names)
    return {
        "origin": None if config.origin is None else config.origin.run,
        "origin_sha256": None if config.origin is None else config.origin.weights_sha256,
        "preset": config.preset,
        "training_corpus": config.data.corpus_hash,
        # A tuned run only knows the time of its tuning, which would mislead beside a whole training.
        "training_seconds": None if config.origin else run.training_seconds(),
        "training_taken": None if config.origin else run.training_taken(),
        "tokens": checkpoint.tokens,
        "annealed": checkpoint.annealed,
        "training_version": str(provenance.get("version", "")),
        "training_commit": str(provenance.get("commit", "")),
        "training_machine": str(provenance.get("machine", "")),
    }
