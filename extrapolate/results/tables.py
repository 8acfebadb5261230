"""The tables that an evaluation writes: their columns, declared once as data, in groups."""

from dataclasses import replace

import pyarrow as pa

from extrapolate.evaluation import names
from extrapolate.results.columns import INT, LABEL, REAL, SPEC, TEXT, Column, Group, Table, always, named, sometimes
from extrapolate.results.metrics.base import ENDS
from extrapolate.results.metrics.base import columns as metric_columns
from extrapolate.results.speed import MOST_TAKEN

_NO_OPTIMUM = "the corpus is not a `synthetic:` one"
_IMPORTED = "the run was imported"


def _setting(*own: Column) -> Group:
    """What tells a row from the others; `own` are the columns that only one table has."""
    return Group(
        "setting", "what was evaluated, and how",
        (
            always("run", TEXT, "", "The name of the run's folder."),
            always("model", TEXT, "", "The encoding and what was applied to it, as tables show them: `RoPE + YaRN`."),
            always(
                "extension", TEXT, "",
                f"What was applied at inference, as `--extend` takes it. `{names.AS_TRAINED}`: nothing but the run's "
                f"own extension. `{names.WITHOUT_OWN}`: the run's own extension was left out.",
            ),
            *own,
            always("factor", REAL, "", "The evaluation length divided by the training length L (`seq_len`)."),
            always("length", INT, "tokens", "The evaluation length: the inputs in a window."),
            named("split", "The held-out split that was evaluated: `test` or `validation`."),
            always("step", INT, "optimiser steps", "The training step of the checkpoint; 0 where it was imported."),
            named("precision", "The precision of the evaluation: `fp32`, `bf16` or `int8`."),
            always(
                "targets_hash", TEXT, "", "Identifies the scored targets. Compare only rows whose hashes are equal."
            ),
        ),
    )  # fmt: skip


def _place(*own: Column) -> Group:
    document = always("document", TEXT, "", "The document's name in the corpus.")
    return Group("place", "where in its document and its window a target is", (document, *own))


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
    "protocol", "Which tokens were scored, with which context, as `--protocol` takes it: `windows`, "
    "`sliding:stride=16`.", SPEC,
)  # fmt: skip
_LOSSES = Group(
    "losses", "of the model, and what to compare it with",
    (
        sometimes("loss", REAL, "nats per target", "The mean negative log-likelihood of the targets.", ENDS),
        always(
            "control_loss", REAL, "nats per target",
            "The loss of the plain model on the same targets, its context cut back to between L/2 and L tokens.",
        ),
        sometimes(
            "optimum_loss", REAL, "nats per target", "The least loss that is possible with the row's windows.",
            f"{_NO_OPTIMUM}, or windows begin with a token that is not of the text",
        ),
    ),
)  # fmt: skip
_MISSING = Group(
    "missing", "why there may be no loss",
    (sometimes("reason", TEXT, "", "Why a row has no loss.", "there is one"),),
)  # fmt: skip
_COUNTS = "how much was scored"
_N_TARGETS = always("n_targets", INT, "targets", "How many tokens were scored.")
_N_BYTES = sometimes(
    "n_bytes", REAL, "bytes", "How many bytes of text the targets stand for.", "the tokenizer is lossy"
)

_MODEL = Group(
    "model", "which encoding, and what belongs to the run",
    (
        always("encoding", TEXT, "", "The encoding's name, as `--pe` takes it."),
        always("encoding_arguments", TEXT, "JSON", "All of the encoding's arguments, as resolved for this run."),
        always("display", TEXT, "", "The encoding's name as it is printed."),
        always("caption", TEXT, "", "What a table with this encoding must say about it; often an empty text."),
        always("seq_len", INT, "tokens", "The training length L, which factors count in."),
        always("trained_length", INT, "tokens", "The length of the training windows: not L where the run was tuned."),
        sometimes("layers", INT, "", "The number of the model's blocks.", "another library runs the model"),
        sometimes(
            "parameters", INT, "", "The number of the model's parameters; shared ones count once.",
            "another library runs the model, and it is no torch module",
        ),
        sometimes("origin", TEXT, "", "The name of the run that this one continues.", "the run continues no other"),
        sometimes(
            "own_extension", TEXT, "", "The extension that belongs to the run and is always applied.",
            "the run has none",
        ),
        sometimes(
            "extension_sha256", TEXT, "",
            "The SHA-256 of the user's own file that `extension` names; several are joined by `+`. The run keeps a "
            "copy, `extensions/<SHA-256>.py`.", "the extension is not of a user's own file",
        ),
        sometimes(
            "imported", TEXT, "", "Where an imported checkpoint, or a model of another library, came from.",
            "the run was trained by this program",
        ),
    ),
)  # fmt: skip
_TRAINING = Group(
    "training", "how the weights were made",
    (
        sometimes("tokens", INT, "tokens", "How many tokens the checkpoint was trained on.", _IMPORTED),
        sometimes("seed", INT, "", "The seed of the weights, the order and dropout.", _IMPORTED),
        sometimes("preset", TEXT, "", "The preset whose sizes the model has.", _IMPORTED),
        sometimes("training_precision", TEXT, "", "The precision of the training: `fp32` or `bf16`.", _IMPORTED),
        sometimes(
            "training_seconds", REAL, "seconds", "How long training took: the median step time times the steps.",
            "the run was imported, continues another, or shared the machine with others",
        ),
        sometimes(
            "training_taken", REAL, "share", "How much of the time in which the training wanted to compute other "
            f"programs took. Above {MOST_TAKEN:g}, how long it took is not known.",
            "the run was imported, or continues another, or the system does not tell",
        ),
        sometimes("training_version", TEXT, "", "The version of this program that trained the run.", _IMPORTED),
        sometimes(
            "training_commit", TEXT, "", "The commit that trained the run; `+` after it: with changes. An empty text "
            "where the program was not run from its repository.", _IMPORTED,
        ),
        sometimes("training_machine", TEXT, "", "The machine that trained the run.", _IMPORTED),
    ),
)  # fmt: skip
_COST = Group(
    "cost", "what the evaluation took",
    (
        sometimes(
            "tokens_per_s", REAL, "inputs per second", "The speed of the evaluation.",
            "every window came with a longer one that starts at its place, other work of a study ran beside, or "
            f"{ENDS}",
        ),
        sometimes(
            "peak_mib", REAL, "MiB",
            "The most memory that was held during the evaluation: by the whole process, or on the device for it.",
            f"the system does not tell, or {ENDS}",
        ),
    ),
)  # fmt: skip
_IDENTITY = Group(
    "identity", "hashes: equal ones stand for equal things",
    (
        always("config_hash", TEXT, "", "Identifies everything that decides the weights but the seed."),
        always(
            "setting_hash", TEXT, "", "Identifies everything that decides the weights but the encoding and the seed."
        ),
        always("corpus_hash", TEXT, "", "Identifies the corpus. Losses on different corpora cannot be compared."),
        always("weights_sha256", TEXT, "", "Identifies the weights that were evaluated."),
    ),
)  # fmt: skip
_PROVENANCE = Group(
    "provenance", "what evaluated, and when",
    (
        always("version", TEXT, "", "The version of this program that evaluated."),
        always("commit", TEXT, "", "The commit that evaluated, as `training_commit`."),
        always("machine", TEXT, "", "The machine that evaluated."),
        always("evaluated_at", pa.timestamp("s", tz="UTC"), "UTC", "When the evaluation of this row ended."),
    ),
)  # fmt: skip
_RUN = (_MODEL, _TRAINING, _COST, _IDENTITY, _PROVENANCE)

EVALS = Table(
    groups=(
        _setting(_PROTOCOL),
        Group(
            "windows", "how they lie, and how they begin",
            (
                sometimes(
                    "stride", INT, "tokens", "How far windows of N tokens move on.",
                    "the protocol's windows do not move by a stride",
                ),
                sometimes(
                    "bos_token", INT, "", "The number of the token that is every window's first input, in the place of "
                    "the text's own.", "windows begin with the text's own token",
                ),
            ),
        ),
        _LOSSES,
        _MISSING,
        Group(
            "plan", "whether the length matters in itself",
            (
                sometimes(
                    "plan_hash", TEXT, "",
                    "Identifies what computed the loss. Where two rows of a run and a checkpoint have the same value, "
                    "a token has the same loss in windows of both lengths that start at the same place.",
                    "the model looks at the window's length in itself, or the row has no loss",
                ),
            ),
        ),
        Group("metrics", "what else follows from the losses of the targets", metric_columns()),
        Group(
            "counts", _COUNTS,
            (_N_TARGETS, always("n_documents", INT, "documents", "How many documents they come from."), _N_BYTES),
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
                "The stretch of the document in which the window begins, counted from 0.",
            ),
            always(
                "position", INT, "tokens",
                "Where a bucket of inputs begins in its window. A target is in the bucket of the input before it.",
            ),
            always("bucket", INT, "tokens", "How many inputs a bucket has: L/2, unless asked otherwise."),
        ),
        _LOSSES,
        Group("counts", _COUNTS, (_N_TARGETS, _N_BYTES)),
    ),
    key=_key("protocol"),  # all rows of a setting: with other buckets, none of the old ones is left beside the new
)  # fmt: skip

EVAL_TARGETS = Table(
    groups=(
        _as_labels(_setting(_PROTOCOL)),
        _as_labels(
            _place(
                always("place", INT, "tokens", "The target's place in the document, counted from 0."),
                always("position", INT, "tokens", "The place in its window of the input before it, counted from 0."),
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
            always("depth", REAL, "", "Where the block lies: at 0 farthest from the question, at 1 next to it."),
        ),
        Group(
            "accuracies", "of the model, and what to compare it with",
            (
                sometimes(
                    "accuracy", REAL, "share", "The share of windows that are right; of a probe whose answers count "
                    "one by one, the share of answers.", ENDS,
                ),
                sometimes("low", REAL, "share", "The lower end of Wilson's 95 % interval of the accuracy.", ENDS),
                sometimes("high", REAL, "share", "The upper end of the same interval.", ENDS),
                always(
                    "control_accuracy", REAL, "share",
                    "The accuracy of the plain model that sees the last L tokens alone.",
                ),
                always("chance", REAL, "share", "The accuracy of an answer that is drawn blindly."),
            ),
        ),
        Group(
            "losses", "of the answers",
            (
                sometimes("loss", REAL, "nats per answer", "The mean negative log-likelihood of the answers.", ENDS),
                always(
                    "control_loss", REAL, "nats per answer",
                    "The loss of the plain model that sees the last L tokens alone.",
                ),
            ),
        ),
        _MISSING,
        Group(
            "counts", _COUNTS,
            (
                always("n_trials", INT, "windows", "How many windows were asked."),
                always("n_answers", INT, "tokens", "How many answers they have."),
            ),
        ),
        *_RUN,
    ),
    key=(*_key("probe"), "depth"),
    value="loss",
)  # fmt: skip

_ASKED = _setting(
    always("task", TEXT, "", "The task, or the group of tasks, as lm-eval calls it."),
    always("metric", TEXT, "", "The metric, as lm-eval calls it: `acc`, `acc_norm`."),
    always("filter", TEXT, "", "What lm-eval did with the answers before it scored them; `none` where nothing."),
    always("shots", INT, "examples", "How many examples with answers stood before each question."),
)
TASKS = Table(
    groups=(
        # What is asked comes with the task: it is of no corpus, and of no split of one.
        _without(_ASKED, "split"),
        Group(
            "score", "what was found",
            (
                always("value", REAL, "", "The metric's value: of an accuracy, the share of questions that are right."),
                sometimes("stderr", REAL, "", "Its standard error over questions.", "lm-eval gives none"),
            ),
        ),
        Group(
            "counts", "how much was asked",
            (
                always("n_questions", INT, "questions", "How many questions were asked."),
                always(
                    "n_cut", INT, "questions",
                    "How many of them were longer than `length`, so that their first tokens were cut off.",
                ),
            ),
        ),
        Group(
            "task", "which edition of the task",
            (
                sometimes(
                    "group", TEXT, "", "The group that the task was asked in.",
                    "it was asked by itself, or the group has no score",
                ),
                sometimes("task_version", TEXT, "", "The version that the task says.", "it says none"),
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
    named("quantity", "Which quantity of the measurement: docs/measurements.md explains each, and its unit."),
    sometimes("layer", INT, "", "The layer, counted from 0.", "the quantity is of the whole model"),
    sometimes("head", INT, "", "The head, counted from 0.", "the quantity is of the whole layer or model"),
    sometimes(
        "at", REAL, "",
        "Where the value is: a distance, a length or the number of a frequency, as the measurement says.",
        "the quantity has one value for each head, layer or model",
    ),
)  # fmt: skip
INSPECTIONS = Table(
    groups=(
        _INSPECTED,
        Group(
            "values", "what was found",
            (
                sometimes(
                    "value", REAL, "", "The quantity; a mean over windows where each window has one.",
                    "`reason` says why",
                ),
                sometimes(
                    "error", REAL, "", "The standard error of that mean, by the spread over windows.",
                    "there is one window, or the quantity is not a mean over windows",
                ),
            ),
        ),
        Group(
            "missing", "why there may be no value",
            (sometimes("reason", TEXT, "", "Why there is no value.", "there is one"),),
        ),
        Group(
            "counts", "how much was looked at",
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
