"""The keys of what commands print with `--json`, for docs/results.md. The tests check that commands print these."""

import pyarrow as pa

from extrapolate.results.columns import INT, REAL, TEXT, always, sometimes
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import COLUMN, NO_SHARED_SEED, THIS_RUN

TRUTH, TEXTS = pa.bool_(), pa.list_(TEXT)
_NAMES = (
    always("name", TEXT, "", "Its name, as commands take it."),
    always("display", TEXT, "", "Its name in tables."),
)
_ABOUT = (
    always("summary", TEXT, "", "One sentence on what it does."),
    always("text", TEXT, "", "Its whole description: formula, behaviour beyond L, arguments, source."),
    always(
        "arguments", pa.list_(pa.struct([("name", TEXT), ("kind", TEXT), ("default", TEXT)])), "",
        "Its arguments. `default` is `auto` if it follows from the model or from L.",
    ),
    always("source", TEXT, "", "The arXiv id, or another source of the formula."),
    always("caption", TEXT, "", "A note to print below every table with it; often an empty string."),
)  # fmt: skip
_CELL = always("cell", TEXT, "", "The name of the cell, and of its run.")
COMPARE = Described(
    "compare", "`extrapolate compare --json`", "protocol, length and pair of models",
    plain(
        always("protocol", TEXT, "", "Which tokens were scored with which context."),
        always("factor", REAL, "", "The evaluation length divided by L."),
        always("model", TEXT, "", "One model."),
        always("other", TEXT, "", "The other, `its control` or `the optimum`; with `--fail-if`, `RoPE, before`."),
        sometimes(
            "difference", REAL, "nats per target", "The loss of `model` minus the loss of `other`.",
            "they share no seed, or what was there before is gone",
        ),
        always("by_seed", pa.list_(REAL), "nats per target", "The difference of each pair of runs that share a seed."),
        sometimes("low", REAL, "nats per target", "The lower end of the interval.", "there are too few clusters"),
        sometimes("high", REAL, "nats per target", "The upper end of the interval.", "there are too few clusters"),
        sometimes("p", REAL, "", "The p value of the difference.", "there are too few clusters"),
        sometimes("p_corrected", REAL, "", "The p value after `--correct holm`.", "it is not corrected"),
        always(
            "verdict", TEXT, "", f"How `model` compares with `other`. {COLUMN}; or `{NO_SHARED_SEED}`. "
            f"Ends in `{THIS_RUN.strip()}` if a model has one seed.",
        ),
        sometimes("clusters", INT, "", "The number of clusters resampled.", "there is no difference"),
        always("cluster", TEXT, "", "What a cluster is: `documents` or `stretches`."),
        always("seeds", pa.list_(INT), "", "The seeds that both have."),
        always("n_seeds", INT, "", "Their number, in which an unknown seed counts as one."),
        sometimes(
            "needed_seeds", INT, "", "About how many seeds would decide a difference of this size.",
            "the verdict is not `undecided`, a model has one seed, or more than 100 would be needed",
        ),
        sometimes(
            "needed_clusters", INT, "", "About how many clusters that takes, at least `clusters`.",
            "the verdict is not `undecided`, or a model has one seed",
        ),
    ),
)  # fmt: skip
REPORT = Described(
    "report", "`extrapolate report --json`", "protocol, model and length",
    plain(
        always("protocol", TEXT, "", "Which tokens were scored with which context."),
        always("model", TEXT, "", "The model's name; runs that differ only in the seed are one model."),
        always("factor", REAL, "", "The evaluation length divided by L."),
        sometimes("loss", REAL, "nats per target", "The mean loss over seeds.", "nothing was measured at this length"),
        always("seeds", INT, "", "The number of seeds in the mean."),
        sometimes(
            "training_time", REAL, "ratio", "The training time divided by the baseline's.",
            "there is no baseline, the training time is not known, or training shared the machine or used another one",
        ),
        sometimes(
            "difference", REAL, "nats per target", "`loss` minus the control's on the same targets.", "`loss` is empty",
        ),
        sometimes("low", REAL, "nats per target", "The lower end of its 95 % interval.", "there are too few clusters"),
        sometimes("high", REAL, "nats per target", "The upper end of its 95 % interval.", "there are too few clusters"),
        sometimes(
            "verdict", TEXT, "", "How the model compares with its control, uncorrected: one of the words of `compare`.",
            "`loss` is empty",
        ),
    ),
    COMPARE,
)  # fmt: skip
STATUS = Described(
    "status", "`extrapolate status --json`, and at its end `extrapolate sweep --json`", "cell of the study",
    plain(
        _CELL,
        always(
            "status", TEXT, "",
            "`done`, `running`, `failed`, `diverged`, `passed over`, `trained`, `begun` or `left`.",
        ),
        always("tokens", INT, "tokens", "The tokens trained on so far."),
        sometimes("of", INT, "tokens", "The tokens to train on.", "it is not known yet"),
        sometimes("loss", REAL, "nats per target", "The last training loss.", "there is none yet"),
        sometimes("val_loss", REAL, "nats per target", "The last loss on the validation split.", "there is none yet"),
        sometimes("reason", TEXT, "", "Why it failed or diverged.", "it did not"),
    ),
)  # fmt: skip
DRY_RUN = Described(
    "dry-run", "`extrapolate sweep --dry-run --json`", "cell of the study",
    plain(
        _CELL,
        always("encoding", TEXT, "", "The encoding, as `--pe` takes it."),
        always("parameters", INT, "", "The number of trained parameters."),
        always("tokens", INT, "tokens", "The tokens to train on."),
        always("flops", REAL, "operations", "The floating-point operations of the training."),
        always("training_s", REAL, "seconds", "The estimated training time."),
        always("evaluation_s", REAL, "seconds", "The estimated evaluation time."),
    ),
    STATUS,
)  # fmt: skip
ESTIMATE = Described(
    "dry-run-evaluation", "`extrapolate eval-lengths --dry-run --json` and `extrapolate eval-tasks --dry-run --json`",
    "run, extension, precision, and protocol, probe or task",
    plain(
        always("run", TEXT, "", "The run; what is evaluated of half its budget is named so."),
        always("reads", TEXT, "", "The protocol, probe or task."),
        always("extension", TEXT, "", "The extension, as `--extend` takes it, or `as-trained`."),
        always("precision", TEXT, "", "The precision."),
        always("tokens", INT, "tokens", "The inputs that it computes; those shared with rows above count there."),
        always(
            "targets", INT, "",
            "Scored tokens of each length; of a probe, windows of each length and depth; of a task, questions.",
        ),
        sometimes("documents", INT, "", "The documents that the targets are in.", "it is a probe or a task"),
        always("seconds", REAL, "seconds", "The estimated time."),
        sometimes(
            "peak_mib", REAL, "MiB", "The estimated peak memory: on a CPU of the whole process.",
            "memory does not suffice for the longest windows, or the system does not report it",
        ),
    ),
    STATUS,
)  # fmt: skip
EXPORT = Described(
    "export", "`extrapolate export --json`", "folder written",
    plain(
        always("folder", TEXT, "", "The folder."),
        always("architecture", TEXT, "", "The class of `transformers`, or of the folder, that loads it."),
        always("remote_code", TRUTH, "", "Whether the folder holds that class and needs `trust_remote_code=True`."),
        always("use_cache", TRUTH, "", "Whether generation keeps the keys and values of earlier tokens."),
    ),
)  # fmt: skip
CHECK = Described(
    "check", "`extrapolate check --json`", "part of the check",
    plain(
        always("part", TEXT, "", "What was checked."),
        sometimes("wrong", TEXT, "", "What is wrong.", "nothing is"),
        always("seconds", REAL, "seconds", "How long it took."),
    ),
)  # fmt: skip
BENCH = Described(
    "bench", "`extrapolate bench --json`, with any of its options", "measurement",
    plain(
        always("what", TEXT, "", "What was measured: `training tiny`."),
        always("who", TEXT, "", "`extrapolate` or `floor`; with `--encodings`, which encoding."),
        always("mode", TEXT, "", "How: `bf16 compiled`."),
        always("tokens_per_s", REAL, "tokens per second", "The median speed."),
        sometimes("of_floor", REAL, "", "How many times as fast as the floor.", "with `--encodings`, or if disturbed"),
        sometimes("of_rope", REAL, "", "How many times as fast as RoPE.", "without `--encodings`"),
        always("peak_mib", REAL, "MiB", "The peak memory of its process."),
        always("disturbed", TRUTH, "", "Whether other programs took so much of the time that a ratio is missing."),
    ),
)  # fmt: skip
ENCODINGS = Described(
    "encodings", "`extrapolate encodings --json`", "encoding",
    plain(
        *_NAMES, always("group", TEXT, "", "Its family."), *_ABOUT,
        always("applies", TEXTS, "", "The extensions that apply."),
    ),
)  # fmt: skip
EXTENSIONS = Described(
    "extensions", "`extrapolate extensions --json`", "extension",
    plain(
        *_NAMES, always("group", TEXT, "", "What it changes."), *_ABOUT,
        always("applies", TEXTS, "", "The encodings that it applies to."),
    ),
    ENCODINGS,
)  # fmt: skip
COLUMNS = Described(
    "columns", "`extrapolate columns --json`", "column of a table",
    plain(
        always("table", TEXT, "", "The table."),
        always("group", TEXT, "", "The group of columns; an empty string if the table has no groups."),
        always("column", TEXT, "", "The name of the column."),
        always("type", TEXT, "", "The type: `text`, `number`, `whole number` or `time`."),
        always("unit", TEXT, "", "The unit, or an empty string."),
        always("meaning", TEXT, "", "What it means."),
        always("empty", TEXT, "", "When it is empty; an empty string if it never is."),
    ),
)  # fmt: skip
PRINTED = (COMPARE, REPORT, STATUS, DRY_RUN, ESTIMATE, EXPORT, CHECK, BENCH, ENCODINGS, EXTENSIONS, COLUMNS)
