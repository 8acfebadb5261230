"""The tables that evaluations write."""

import pyarrow as pa

from extrapolate import names
from extrapolate.results.columns import INT, REAL, TEXT, Group, Table, always, sometimes
from extrapolate.results.groups import (
    BEFORE,
    COUNTS,
    IDENTITY,
    KEY_LOSSES,
    KEY_TOKENS,
    LOSSES,
    MISSING,
    MODEL,
    N_BYTES,
    N_TARGETS,
    NO_OTHERS,
    PROTOCOL,
    PROVENANCE,
    RUN,
    SETTINGS,
    TRAINING,
    as_labels,
    key,
    place,
    setting,
    without,
)  # fmt: skip
from extrapolate.results.metrics.base import ENDS
from extrapolate.results.metrics.base import columns as metric_columns

EVALS = Table(
    groups=(
        setting(PROTOCOL),
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
        LOSSES,
        MISSING,
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
            "key tokens", KEY_TOKENS,
            (
                sometimes(
                    "key_context", INT, "tokens", "How many preceding tokens a key token and its copy share.",
                    f"the optimum tells which targets are key tokens, or {BEFORE}",
                ),
                sometimes(
                    "key_within", INT, "tokens", "The longest length, in whose windows key tokens were looked for.",
                    BEFORE,
                ),
                *KEY_LOSSES,
            ),
        ),
        Group(
            "counts", COUNTS,
            (N_TARGETS, always("n_documents", INT, "documents", "How many documents they are from."), N_BYTES),
        ),
        *RUN,
    ),
    key=key("protocol"),
    by="protocol",
)  # fmt: skip

EVAL_DOCUMENTS = Table(
    groups=(
        setting(PROTOCOL),
        place(
            always(
                "block", INT, "stretches of 16 L tokens",
                "The stretch of the document in which the window begins, from 0.",
            ),
            always(
                "position", INT, "tokens",
                "The start of a bucket of inputs in the window; a target belongs to the bucket of the input before it.",
            ),
            always("bucket", INT, "tokens", "The number of inputs in a bucket, L/2."),
        ),
        LOSSES,
        Group("key tokens", KEY_TOKENS, KEY_LOSSES),
        Group("counts", COUNTS, (N_TARGETS, N_BYTES)),
    ),
    key=key("protocol"),  # of all rows of a setting, which are replaced together
    by="protocol",
    folder="documents",
)  # fmt: skip

EVAL_TARGETS = Table(
    groups=(
        as_labels(setting(PROTOCOL)),
        as_labels(
            place(
                always("place", INT, "tokens", "The target's index in the document, from 0."),
                always("position", INT, "tokens", "The index in its window of the input before it, from 0."),
            )
        ),
        Group(
            "losses", "of the model",
            (always("loss", pa.float32(), "nats", "The negative log-likelihood of the target."),),
        ),
    ),
    key=key("protocol"),
    by="protocol",
    folder="targets",
)  # fmt: skip

PROBES = Table(
    groups=(
        setting(
            always("probe", TEXT, "", "The probe, as `--probes` takes it."),
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
                    f"{ENDS}, or {NO_OTHERS}",
                ),
                sometimes(
                    "margin_stderr", REAL, "nats per answer", "Its standard error over windows.",
                    f"{ENDS}, or fewer than two windows have other candidates",
                ),
                sometimes(
                    "control_margin", REAL, "nats per answer",
                    "The margin of the plain model if it sees only the last L tokens.", NO_OTHERS,
                ),
                sometimes(
                    "choice", REAL, "share", "The share of answers that are likelier than every other candidate.",
                    f"{ENDS}, or {NO_OTHERS}",
                ),
                sometimes(
                    "choice_chance", REAL, "share", "The share of random guessing among the candidates.", NO_OTHERS
                ),
            ),
        ),
        MISSING,
        Group(
            "counts", COUNTS,
            (
                always("n_trials", INT, "windows", "The number of windows."),
                always("n_answers", INT, "tokens", "The number of answers in them."),
            ),
        ),
        *RUN,
    ),
    key=(*key("probe"), "depth"),
    by="probe",
    folder="probes",
)  # fmt: skip

_ASKED = setting(
    always("task", TEXT, "", "The task or group of tasks, by lm-eval's name."),
    always("metric", TEXT, "", "The metric, by lm-eval's name: `acc`, `acc_norm`."),
    always("filter", TEXT, "", "The filter that lm-eval applied to the answers before scoring, or `none`."),
    always("shots", INT, "examples", "How many solved examples precede each question."),
)
TASKS = Table(
    groups=(
        # Tasks bring their own questions, so there is no corpus and no split.
        without(_ASKED, "split"),
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
                sometimes(
                    "members", TEXT, "", "A group's tasks, each with its `targets_hash`: `piqa=4f1c... arc_easy=...`.",
                    "it is a single task",
                ),
                sometimes("task_version", TEXT, "", "The task's own version.", "it has none"),
                always("lm_eval_version", TEXT, "", "The version of lm-eval."),
            ),
        ),
        MODEL, TRAINING, SETTINGS, without(IDENTITY, "corpus_hash"), PROVENANCE,
    ),
    key=("extension", "task", "shots", "length", "step", "precision"),  # of all its metrics
    by="task",
    folder="tasks",
)  # fmt: skip

_INSPECTED = setting(
    always("measurement", TEXT, "", "What was measured, as `--measure` takes it."),
    always(
        "quantity", TEXT, "", "The quantity of the measurement: docs/inspection.md defines each, with its unit."
    ),
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
        MODEL, TRAINING, SETTINGS, IDENTITY, PROVENANCE,
    ),
    key=(
        "extension", "measurement", "quantity", "layer", "head", "at", "factor", "split", "step", "precision",
    ),
    by="measurement",
    folder="inspections",
)  # fmt: skip

# The tables of runs by their file in a folder of whole tables, such as a report's; documents' rows belong to EVALS.
KEPT = {
    names.TEXT_TABLE: EVALS, names.PROBES_TABLE: PROBES, names.TASKS_TABLE: TASKS,
    names.INSPECTIONS_TABLE: INSPECTIONS,
}  # fmt: skip
