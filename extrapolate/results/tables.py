"""The tables that an evaluation writes: their columns, declared once as data, in groups."""

from dataclasses import replace

import pyarrow as pa

from extrapolate import names
from extrapolate.results.columns import INT, LABEL, REAL, SPEC, TEXT, Column, Group, Table, always, named, sometimes
from extrapolate.results.metrics.base import ENDS
from extrapolate.results.metrics.base import columns as metric_columns
from extrapolate.results.speed import MOST_TAKEN

_NO_OPTIMUM = "the corpus is not `synthetic:`"
_IMPORTED = "the run was imported"
_NO_OTHERS = "there are no other candidates"


def _setting(*own: Column) -> Group:
    """What tells a row from the others; `own` are the columns that only one table has."""
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
            named("split", "The held-out split that was evaluated: `test` or `validation`."),
            always("step", INT, "optimiser steps", "The training step of the checkpoint; 0 if it was imported."),
            named("precision", "The precision of the evaluation: `fp32`, `bf16` or `int8`."),
            always(
                "targets_hash", TEXT, "", "Identifies the scored targets; compare only rows in which it is equal."
            ),
        ),
    )  # fmt: skip


def _place(*own: Column) -> Group:
    document = always("document", TEXT, "", "The document's name in the corpus.")
    return Group("place", "where a target is in its document and window", (document, *own))


def _without(group: Group, name: str) -> Group:
    """A group without one of its columns."""
    return replace(group, columns=tuple(column for column in group.columns if column.name != name))


def _as_labels(group: Group) -> Group:
    """A group whose texts are labels."""
    columns = tuple(replace(one, type=LABEL) if one.type == TEXT else one for one in group.columns)
    return replace(group, columns=columns)


def _key(own: str) -> tuple[str, ...]:
    return ("run", "extension", own, "factor", "split", "step", "precision", "targets_hash")


_PROTOCOL = named(
    "protocol", "Which tokens were scored with which context, as `--protocol` takes it: `sliding:stride=16`.", SPEC,
)  # fmt: skip
_LOSSES = Group(
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
_BEFORE = "an earlier version, which had no key tokens, evaluated the row"
_NO_KEY = "there are none of them"
_KEY_LOSSES = (
    sometimes("n_key", INT, "targets", "How many of the targets are key tokens.", _BEFORE),
    sometimes("key_loss", REAL, "nats per target", "The mean loss of the key tokens.", f"{ENDS}, or {_NO_KEY}"),
    sometimes("key_control_loss", REAL, "nats per target", "The control's mean loss on the key tokens.", _NO_KEY),
    sometimes(
        "key_optimum_loss", REAL, "nats per target", "The lowest loss possible on the key tokens.",
        f"`optimum_loss` is empty, or {_NO_KEY}",
    ),
)  # fmt: skip
_KEY_TOKENS = "of the targets that need what lies more than L tokens back (docs/protocols.md)"
_MISSING = Group(
    "missing", "why there is no loss",
    (sometimes("reason", TEXT, "", "Why a row has no loss.", "there is one"),),
)  # fmt: skip
_COUNTS = "how much was scored"
_N_TARGETS = always("n_targets", INT, "targets", "How many tokens were scored.")
_N_BYTES = sometimes("n_bytes", REAL, "bytes", "The bytes of text that the targets cover.", "the tokenizer is lossy")

_MODEL = Group(
    "model", "the encoding and the run",
    (
        always("encoding", TEXT, "", "The encoding's name, as `--pe` takes it."),
        always("encoding_arguments", TEXT, "JSON", "All arguments of the encoding, as resolved for this run."),
        always("display", TEXT, "", "The encoding's name in tables."),
        always("caption", TEXT, "", "A note to print below every table with this encoding; often an empty string."),
        always("seq_len", INT, "tokens", "The training length L, the unit of `factor`."),
        always("trained_length", INT, "tokens", "The length of the training windows; not L if the run was tuned."),
        sometimes("layers", INT, "", "The number of blocks.", "another library runs the model"),
        sometimes(
            "parameters", INT, "", "The number of parameters; shared ones count once.",
            "another library runs the model and it is not a torch module",
        ),
        sometimes("origin", TEXT, "", "The name of the run that this one continues.", "there is none"),
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
_TRAINING = Group(
    "training", "how the weights were made",
    (
        sometimes("tokens", INT, "tokens", "How many tokens the checkpoint was trained on.", _IMPORTED),
        sometimes("seed", INT, "", "The seed of the weights, the data order and dropout.", _IMPORTED),
        sometimes("preset", TEXT, "", "The preset whose sizes the model has.", _IMPORTED),
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
_IDENTITY = Group(
    "identity", "hashes, equal for equal things",
    (
        always("config_hash", TEXT, "", "Identifies everything that decides the weights, without the seed."),
        always("setting_hash", TEXT, "", "Identifies everything that decides the weights, without encoding and seed."),
        always("corpus_hash", TEXT, "", "Identifies the corpus; losses on different corpora cannot be compared."),
        always("weights_sha256", TEXT, "", "Identifies the weights that were evaluated."),
    ),
)  # fmt: skip
_PROVENANCE = Group(
    "provenance", "the version and machine that evaluated, and when",
    (
        always("version", TEXT, "", "The version of extrapolate that evaluated the row."),
        always("commit", TEXT, "", "The commit that evaluated the row, as `training_commit`."),
        always("machine", TEXT, "", "The machine that evaluated the row."),
        always("evaluated_at", pa.timestamp("s", tz="UTC"), "UTC", "When the evaluation of this row ended."),
    ),
)  # fmt: skip
_RUN = (_MODEL, _TRAINING, _COST, _IDENTITY, _PROVENANCE)

EVALS = Table(
    groups=(
        _setting(_PROTOCOL),
        Group(
            "windows", "how they are placed, and how they begin",
            (
                sometimes(
                    "stride", INT, "tokens", "How far each window moves past the one before.",
                    "the protocol has no stride",
                ),
                sometimes(
                    "bos_token", INT, "", "The id of the token that replaces the first input of every window.",
                    "windows begin with the text's own token",
                ),
            ),
        ),
        _LOSSES,
        _MISSING,
        Group(
            "plan", "whether the loss depends on the length itself",
            (
                sometimes(
                    "plan_hash", TEXT, "",
                    "Identifies what computed the loss. If two rows of a checkpoint share it, a token has the same "
                    "loss in windows of both lengths that start at the same place.",
                    "the model uses the window's length itself, or there is no loss",
                ),
            ),
        ),
        Group("metrics", "other figures from the losses of the targets", metric_columns()),
        Group(
            "key tokens", _KEY_TOKENS,
            (
                sometimes(
                    "key_context", INT, "tokens", "How many tokens before a key token its copy beyond L repeats.",
                    f"the optimum tells which targets are key tokens, or {_BEFORE}",
                ),
                sometimes(
                    "key_within", INT, "tokens", "The longest length, in whose windows key tokens were looked for.",
                    _BEFORE,
                ),
                *_KEY_LOSSES,
            ),
        ),
        Group(
            "counts", _COUNTS,
            (_N_TARGETS, always("n_documents", INT, "documents", "How many documents they are from."), _N_BYTES),
        ),
        *_RUN,
    ),
    key=_key("protocol"),
    value="loss",
)  # fmt: skip

EVAL_DOCUMENTS = Table(
    groups=(
        _setting(_PROTOCOL),
        _place(
            always(
                "block", INT, "stretches of 16 L tokens",
                "The stretch of the document in which the window begins, from 0.",
            ),
            always(
                "position", INT, "tokens",
                "The start of a bucket of inputs in the window; a target belongs to the bucket of the input before it.",
            ),
            always("bucket", INT, "tokens", "The number of inputs in a bucket, L/2 by default."),
        ),
        _LOSSES,
        Group("key tokens", _KEY_TOKENS, _KEY_LOSSES),
        Group("counts", _COUNTS, (_N_TARGETS, _N_BYTES)),
    ),
    key=_key("protocol"),  # all rows of a setting: with other buckets, none of the old ones is left beside the new
)  # fmt: skip

EVAL_TARGETS = Table(
    groups=(
        _as_labels(_setting(_PROTOCOL)),
        _as_labels(
            _place(
                always("place", INT, "tokens", "The target's index in the document, from 0."),
                always("position", INT, "tokens", "The index in its window of the input before it, from 0."),
            )
        ),
        Group(
            "losses", "of the model",
            (always("loss", pa.float32(), "nats", "The negative log-likelihood of the target."),),
        ),
    ),
    key=_key("protocol"),
)  # fmt: skip

PROBES = Table(
    groups=(
        _setting(
            named("probe", "The probe, as `--probes` takes it.", SPEC),
            always("depth", REAL, "", "Where the block is: 0 is farthest from the question, 1 next to it."),
        ),
        Group(
            "accuracies", "of the model, and to compare it with",
            (
                sometimes(
                    "accuracy", REAL, "share", "The share of windows answered correctly, or of answers if the probe "
                    "counts each.", ENDS,
                ),
                sometimes("low", REAL, "share", "The lower end of Wilson's 95 % interval of the accuracy.", ENDS),
                sometimes("high", REAL, "share", "The upper end of the same interval.", ENDS),
                always(
                    "control_accuracy", REAL, "share",
                    "The accuracy of the plain model if it sees only the last L tokens.",
                ),
                always("chance", REAL, "share", "The accuracy of random guessing."),
            ),
        ),
        Group(
            "losses", "of the answers",
            (
                sometimes("loss", REAL, "nats per answer", "The mean negative log-likelihood of the answers.", ENDS),
                always(
                    "control_loss", REAL, "nats per answer",
                    "The loss of the plain model if it sees only the last L tokens.",
                ),
            ),
        ),
        Group(
            "candidates", "the answer against the other tokens that it might be: docs/probes.md names them",
            (
                sometimes(
                    "margin", REAL, "nats per answer", "The mean negative log-likelihood of the other candidates less "
                    "that of the answer, the mean over windows; 0 on average if the model cannot tell them apart.",
                    f"{ENDS}, or {_NO_OTHERS}",
                ),
                sometimes(
                    "margin_stderr", REAL, "nats per answer", "Its standard error over windows.",
                    f"{ENDS}, or fewer than two windows have other candidates",
                ),
                sometimes(
                    "control_margin", REAL, "nats per answer",
                    "The margin of the plain model if it sees only the last L tokens.", _NO_OTHERS,
                ),
                sometimes(
                    "choice", REAL, "share", "The share of answers that are likelier than every other candidate.",
                    f"{ENDS}, or {_NO_OTHERS}",
                ),
                sometimes(
                    "choice_chance", REAL, "share", "The share of random guessing among the candidates.", _NO_OTHERS
                ),
            ),
        ),
        _MISSING,
        Group(
            "counts", _COUNTS,
            (
                always("n_trials", INT, "windows", "The number of windows."),
                always("n_answers", INT, "tokens", "The number of answers in them."),
            ),
        ),
        *_RUN,
    ),
    key=(*_key("probe"), "depth"),
    value="loss",
)  # fmt: skip

_ASKED = _setting(
    always("task", TEXT, "", "The task or group of tasks, by lm-eval's name."),
    always("metric", TEXT, "", "The metric, by lm-eval's name: `acc`, `acc_norm`."),
    always("filter", TEXT, "", "The filter that lm-eval applied to the answers before scoring, or `none`."),
    always("shots", INT, "examples", "How many solved examples precede each question."),
)
TASKS = Table(
    groups=(
        # The questions come with the task: there is no corpus, and no split of one.
        _without(_ASKED, "split"),
        Group(
            "score", "what was found",
            (
                always("value", REAL, "", "The metric's value; an accuracy is a share of the questions."),
                sometimes("stderr", REAL, "", "Its standard error over questions.", "lm-eval reports none"),
            ),
        ),
        Group(
            "counts", "how many questions were asked",
            (
                always("n_questions", INT, "questions", "How many questions were asked."),
                always(
                    "n_cut", INT, "questions",
                    "How many of them exceeded `length` and lost their first tokens.",
                ),
            ),
        ),
        Group(
            "task", "which edition of the task",
            (
                sometimes(
                    "group", TEXT, "", "The group through which the task was requested.",
                    "it was requested by itself, or the group has no score",
                ),
                sometimes("task_version", TEXT, "", "The task's own version.", "it has none"),
                always("lm_eval_version", TEXT, "", "The version of lm-eval."),
            ),
        ),
        _MODEL, _TRAINING, _without(_IDENTITY, "corpus_hash"), _PROVENANCE,
    ),
    key=("run", "extension", "task", "metric", "filter", "shots", "length", "step", "precision"),
    value="value",
)  # fmt: skip

_INSPECTED = _setting(
    named("measurement", "What was measured, as `--measure` takes it."),
    named("quantity", "The quantity of the measurement: docs/inspection.md defines each, with its unit."),
    sometimes("layer", INT, "", "The layer, from 0.", "the quantity is of the whole model"),
    sometimes("head", INT, "", "The head, from 0.", "the quantity is of the whole layer or model"),
    sometimes(
        "at", REAL, "",
        "A distance, a length or the index of a frequency, depending on the measurement.",
        "there is one value per head, layer or model",
    ),
)  # fmt: skip
INSPECTIONS = Table(
    groups=(
        _INSPECTED,
        Group(
            "values", "what was found",
            (
                sometimes(
                    "value", REAL, "", "The quantity, averaged over windows if each has its own.",
                    "`reason` explains it",
                ),
                sometimes(
                    "error", REAL, "", "The standard error of that mean.",
                    "there is one window, or the quantity is not a mean over windows",
                ),
            ),
        ),
        Group(
            "missing", "why there is no value",
            (sometimes("reason", TEXT, "", "Why there is no value.", "there is one"),),
        ),
        Group(
            "counts", "how much was read",
            (always("n_windows", INT, "windows", "How many windows were read."),),
        ),
        _MODEL, _TRAINING, _IDENTITY, _PROVENANCE,
    ),
    key=(
        "run", "extension", "measurement", "quantity", "layer", "head", "at", "factor", "split", "step", "precision",
    ),
    value="value",
)  # fmt: skip

# What a run's folder keeps beside the rows of documents, which belong to those of EVALS.
KEPT = {
    names.TEXT_TABLE: EVALS, names.PROBES_TABLE: PROBES, names.TASKS_TABLE: TASKS,
    names.INSPECTIONS_TABLE: INSPECTIONS,
}  # fmt: skip
