"""Groups of columns that several tables of an evaluation share."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from extrapolate import names
from extrapolate.model.config import ModelConfig
from extrapolate.results.columns import INT, LABEL, REAL, TEXT, Column, Group, always, sometimes
from extrapolate.results.metrics.base import ENDS
from extrapolate.results.speed import MOST_TAKEN
from extrapolate.specs.settings import Flag

_NO_OPTIMUM = "the corpus is not `synthetic:`"
_IMPORTED = "the run was imported"
_FOREIGN = "another library runs the model"
NO_OTHERS = "there are no other candidates"


def setting(*own: Column) -> Group:
    """The columns that identify a row; `own` are those of one table only."""
    return Group(
        "setting", "what was evaluated, and how",
        (
            always("run", TEXT, "", "The name of the run's folder."),
            always("model", TEXT, "", "The encoding and what is applied to it, as in tables: `RoPE + YaRN`."),
            always(
                "extension", TEXT, "",
                f"What was applied at inference, as `--extend` takes it. `{names.AS_TRAINED}`: nothing but the run's "
                f"own extension, if it has one; `{names.WITHOUT_OWN}`: not even that.",
            ),
            *own,
            always("factor", REAL, "", "The evaluation length divided by the training length L (`seq_len`)."),
            always("length", INT, "tokens", "The evaluation length: the inputs in a window."),
            always("split", TEXT, "", "The held-out split that was evaluated: `test` or `validation`."),
            always("step", INT, "optimiser steps", "The training step of the checkpoint; 0 if it was imported."),
            always("precision", TEXT, "", "The precision of the evaluation: `fp32`, `bf16` or `int8`."),
            always(
                "targets_hash", TEXT, "", "Identifies the scored targets; compare only rows in which it is equal."
            ),
        ),
    )  # fmt: skip


def place(*own: Column) -> Group:
    document = always("document", TEXT, "", "The document's name in the corpus.")
    return Group("place", "where a target is in its document and window", (document, *own))


def without(group: Group, name: str) -> Group:
    """The group without one of its columns."""
    return replace(group, columns=tuple(column for column in group.columns if column.name != name))


def as_labels(group: Group) -> Group:
    """The group with its texts as labels."""
    columns = tuple(replace(one, type=LABEL) if one.type == TEXT else one for one in group.columns)
    return replace(group, columns=columns)


def key(own: str) -> tuple[str, ...]:
    return ("extension", own, "factor", "split", "step", "precision", "targets_hash")


PROTOCOL = always(
    "protocol", TEXT, "", "Which tokens were scored with which context, as `--protocol` takes it: `sliding:stride=16`."
)
LOSSES = Group(
    "losses", "of the model, and to compare it with",
    (
        sometimes("loss", REAL, "nats per target", "The mean negative log-likelihood of the targets.", ENDS),
        always(
            "control_loss", REAL, "nats per target",
            "The plain model's loss on the same targets, with its context cut to between L/2 and L tokens.",
        ),
        sometimes(
            "optimum_loss", REAL, "nats per target", "The lowest loss possible with the row's windows.",
            f"{_NO_OPTIMUM}, or `bos_token` is set",
        ),
    ),
)  # fmt: skip
BEFORE = "an earlier version, which had no key tokens, evaluated the row"
_NO_KEY = "there are none of them"
KEY_LOSSES = (
    sometimes("n_key", INT, "targets", "How many of the targets are key tokens.", BEFORE),
    sometimes("key_loss", REAL, "nats per target", "The mean loss of the key tokens.", f"{ENDS}, or {_NO_KEY}"),
    sometimes("key_control_loss", REAL, "nats per target", "The control's mean loss on the key tokens.", _NO_KEY),
    sometimes(
        "key_optimum_loss", REAL, "nats per target", "The lowest loss possible on the key tokens.",
        f"`optimum_loss` is empty, or {_NO_KEY}",
    ),
)  # fmt: skip
KEY_TOKENS = "of the targets that need what lies more than L tokens back (docs/protocols.md)"
MISSING = Group(
    "missing", "why there is no loss",
    (sometimes("reason", TEXT, "", "Why a row has no loss.", "there is one"),),
)  # fmt: skip
COUNTS = "how much was scored"
N_TARGETS = always("n_targets", INT, "targets", "How many tokens were scored.")
N_BYTES = sometimes("n_bytes", REAL, "bytes", "The bytes of text that the targets cover.", "the tokenizer is lossy")

MODEL = Group(
    "model", "the encoding and the run",
    (
        always("encoding", TEXT, "", "The encoding's name, as `--pe` takes it."),
        always("encoding_arguments", TEXT, "JSON", "All arguments of the encoding, as resolved for this run."),
        always("display", TEXT, "", "The encoding's name in tables."),
        always("caption", TEXT, "", "A note to print below every table with this encoding; often an empty string."),
        always("seq_len", INT, "tokens", "The training length L, the unit of `factor`."),
        always("trained_length", INT, "tokens", "The length of the training windows; not L if the run was tuned."),
        sometimes("layers", INT, "", "The number of blocks.", _FOREIGN),
        sometimes(
            "parameters", INT, "", "The number of parameters; shared ones count once.",
            "another library runs the model and it is not a torch module",
        ),
        sometimes("origin", TEXT, "", "The name of the run that this one continues.", "there is none"),
        sometimes("origin_sha256", TEXT, "", "The SHA-256 of the weights that it continues.", "there is none"),
        sometimes(
            "own_extension", TEXT, "", "The extension that belongs to the run and is always applied.",
            "there is none",
        ),
        sometimes(
            "extension_sha256", TEXT, "",
            "The SHA-256 of the Python file that `extension` names; several are joined by `+`. The run keeps a copy, "
            "`extensions/<SHA-256>.py`.", "`extension` names no file",
        ),
        sometimes(
            "imported", TEXT, "", "Where a checkpoint or a model of another library came from.",
            "extrapolate trained the run",
        ),
    ),
)  # fmt: skip
TRAINING = Group(
    "training", "how the weights were made",
    (
        sometimes("tokens", INT, "tokens", "How many tokens the checkpoint was trained on.", _IMPORTED),
        sometimes(
            "annealed", pa.bool_(), "", "Whether the learning rate had fallen to its end: not for `--keep-every`.",
            f"{_IMPORTED}, or an earlier version evaluated it",
        ),
        sometimes("seed", INT, "", "The seed of the weights, the data order and dropout.", _IMPORTED),
        sometimes("preset", TEXT, "", "The preset whose sizes the model has.", _IMPORTED),
        sometimes("training_corpus", TEXT, "", "The `corpus_hash` of the text that the run was trained on.", _IMPORTED),
        sometimes("training_precision", TEXT, "", "The precision of the training: `fp32` or `bf16`.", _IMPORTED),
        sometimes(
            "training_seconds", REAL, "seconds", "The training time: the median step time times the number of steps.",
            "the run was imported, continues another, or shared the machine",
        ),
        sometimes(
            "training_taken", REAL, "share", "The share of the training time spent waiting for other "
            f"programs. Above {MOST_TAKEN:g}, the training time counts as unknown.",
            "the run was imported or continues another, or the system does not report it",
        ),
        sometimes("training_version", TEXT, "", "The version of extrapolate that trained the run.", _IMPORTED),
        sometimes(
            "training_commit", TEXT, "", "The commit that trained the run, with `+` if there were changes; an empty "
            "string outside a repository.", _IMPORTED,
        ),
        sometimes("training_machine", TEXT, "", "The machine that trained the run.", _IMPORTED),
    ),
)  # fmt: skip


def _of_models() -> list[Column]:
    """A column for every setting of a model, as it is declared; MODEL has its layers."""
    types: dict[Any, pa.DataType] = {int: INT, float: REAL, bool: pa.bool_()}
    found = []
    for name, field in ModelConfig.model_fields.items():
        said = field.description or next(one.help for one in field.metadata if isinstance(one, Flag))
        meaning = said.partition(", in place")[0]
        found.append(
            sometimes(name, types.get(field.annotation, TEXT), "", f"{meaning[0].upper()}{meaning[1:]}.", _FOREIGN)
        )
    return [one for one in found if one.name != "layers"]


SETTINGS = Group(
    "settings", "how the model was built and trained: every setting, as resolved",
    (
        sometimes("budget", INT, "tokens", "The tokens of the whole training.", _IMPORTED),
        sometimes("batch_tokens", INT, "tokens", "The tokens of an optimiser step.", _IMPORTED),
        sometimes("optimizer", TEXT, "", "`muon` (for the blocks' matrices) or `adamw` (for all).", _IMPORTED),
        sometimes("lr", REAL, "", "The peak learning rate.", _IMPORTED),
        sometimes("min_lr_ratio", REAL, "", "The learning rate at the end, as a share of the peak.", _IMPORTED),
        sometimes("warmup_ratio", REAL, "", "The share of the steps in which the rate rises to its peak.", _IMPORTED),
        sometimes("weight_decay", REAL, "", "The decay of the weights.", _IMPORTED),
        sometimes("beta1", REAL, "", "AdamW's decay of the mean of gradients.", _IMPORTED),
        sometimes("beta2", REAL, "", "AdamW's decay of the mean of their squares.", _IMPORTED),
        sometimes("clip", REAL, "", "The largest norm of a step's gradient.", _IMPORTED),
        sometimes(
            "training_probes", TEXT, "", "The share of training windows with each probe, as `--probes` takes it.",
            f"{_IMPORTED}, or all windows were text",
        ),
        sometimes("micro_batch_tokens", INT, "tokens", "The tokens of a forward pass of the training.", _IMPORTED),
        sometimes("training_device", TEXT, "", "The device of the training: `cpu` or `cuda`.", _IMPORTED),
        sometimes("compiled", pa.bool_(), "", "Whether the training used torch.compile.", _IMPORTED),
        *_of_models(),
    ),
)  # fmt: skip
_COST = Group(
    "cost", "what the evaluation took",
    (
        sometimes(
            "tokens_per_s", REAL, "inputs per second", "The speed of the evaluation.",
            f"every window was part of a longer one, other cells of a study ran at the same time, or {ENDS}",
        ),
        sometimes(
            "peak_mib", REAL, "MiB",
            "The peak memory of the evaluation: of the whole process, or on the device.",
            f"the system does not report it, or {ENDS}",
        ),
    ),
)  # fmt: skip
IDENTITY = Group(
    "identity", "hashes, equal for equal things",
    (
        always("config_hash", TEXT, "", "Identifies everything that decides the weights, without the seed."),
        always(
            "setting_hash", TEXT, "",
            "Identifies what decides the weights, except the encoding, what a model's name adds to it, and the seed.",
        ),
        always("corpus_hash", TEXT, "", "Identifies the corpus; losses on different corpora cannot be compared."),
        always("weights_sha256", TEXT, "", "Identifies the weights that were evaluated."),
    ),
)  # fmt: skip
PROVENANCE = Group(
    "provenance", "the version and machine that evaluated, and when",
    (
        always("version", TEXT, "", "The version of extrapolate that evaluated the row."),
        always("commit", TEXT, "", "The commit that evaluated the row, as `training_commit`."),
        always("machine", TEXT, "", "The machine that evaluated the row."),
        always("evaluated_at", pa.timestamp("s", tz="UTC"), "UTC", "When the evaluation of this row ended."),
    ),
)  # fmt: skip
RUN = (MODEL, TRAINING, SETTINGS, _COST, IDENTITY, PROVENANCE)
