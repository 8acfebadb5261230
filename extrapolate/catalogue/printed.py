"""What commands print with `--json`, a row a line: the columns of each, declared once, and docs/json.md."""

import pyarrow as pa

from extrapolate.catalogue.tables import column_lines
from extrapolate.results.columns import INT, REAL, TEXT, always, sometimes
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import COLUMN, NO_SHARED_SEED, THIS_RUN

TRUTH, TEXTS = pa.bool_(), pa.list_(TEXT)
_NAMES = (
    always("name", TEXT, "", "Its name, as commands take it."),
    always("display", TEXT, "", "Its name in tables."),
)
_ABOUT = (
    always("summary", TEXT, "", "What it does, in a sentence."),
    always("text", TEXT, "", "All that is said of it: formula, what happens beyond L, arguments, source."),
    always(
        "arguments", pa.list_(pa.struct([("name", TEXT), ("kind", TEXT), ("default", TEXT)])), "",
        "Its arguments. `default` is `auto` where it follows from the model or from L.",
    ),
    always("source", TEXT, "", "The arXiv id, or what else the formula comes from."),
    always("caption", TEXT, "", "What is said below every table that shows it; often nothing, which is an empty text."),
)  # fmt: skip
_CELL = always("cell", TEXT, "", "The name of the cell, and of its run.")
COMPARE = Described(
    "compare", "`extrapolate compare --json`", "a protocol, a length and a pair of models",
    plain(
        always("protocol", TEXT, "", "Which tokens were scored, with which context."),
        always("factor", REAL, "", "The evaluation length divided by L."),
        always("model", TEXT, "", "The one model."),
        always("other", TEXT, "", "The other one; or `its control`, or `the optimum`."),
        sometimes(
            "difference", REAL, "nats per target", "The loss of `model` minus the loss of `other`.",
            "they share no seed",
        ),
        always("by_seed", pa.list_(REAL), "nats per target", "The difference of each pair of runs with one seed."),
        sometimes("low", REAL, "nats per target", "The lower end of the interval.", "it has too few clusters"),
        sometimes("high", REAL, "nats per target", "The upper end of the interval.", "it has too few clusters"),
        sometimes("p", REAL, "", "The p value of the difference.", "it has too few clusters"),
        sometimes("p_corrected", REAL, "", "The p value after `--correct holm`.", "it is not corrected"),
        always(
            "verdict", TEXT, "", f"What `model` is beside `other`. {COLUMN}; or `{NO_SHARED_SEED}`. It ends in"
            f"`{THIS_RUN}` if a model has one seed.",
        ),
        sometimes("clusters", INT, "", "How many clusters were resampled.", "there is no difference"),
        always("cluster", TEXT, "", "What a cluster is: `documents` or `stretches`."),
        always("seeds", pa.list_(INT), "", "The seeds that both have."),
        always("n_seeds", INT, "", "How many they are; an unknown seed is one."),
        sometimes(
            "needed_seeds", INT, "", "About how many seeds would decide a difference of this size.",
            "it is decided, a model has one seed, or it would take more than 100",
        ),
        sometimes(
            "needed_clusters", INT, "", "About how many clusters that takes: `clusters`, or more of them.",
            "it is decided, or a model has one seed",
        ),
    ),
)  # fmt: skip
REPORT = Described(
    "report", "`extrapolate report --json`", "a protocol, a model and a length",
    plain(
        always("protocol", TEXT, "", "Which tokens were scored, with which context."),
        always("model", TEXT, "", "The model's name. Runs that differ in the seed alone are one model."),
        always("factor", REAL, "", "The evaluation length divided by L."),
        sometimes("loss", REAL, "nats per target", "The mean loss over seeds.", "the encoding ends before this length"),
        always("seeds", INT, "", "How many seeds the mean is over."),
        sometimes(
            "training_time", REAL, "ratio", "The training time divided by the baseline's.",
            "there is no baseline, the model was trained on another machine or beside other programs, or its "
            "training time is not known",
        ),
        sometimes(
            "difference", REAL, "nats per target", "`loss` minus the control's on its targets.", "`loss` is empty",
        ),
        sometimes("low", REAL, "nats per target", "The lower end of its 95 % interval.", "it has too few clusters"),
        sometimes("high", REAL, "nats per target", "The upper end of its 95 % interval.", "it has too few clusters"),
        sometimes(
            "verdict", TEXT, "", f"What the model is beside its control, without a correction. {COLUMN}. It ends in"
            f"`{THIS_RUN}` if the model has one seed.", "`loss` is empty",
        ),
    ),
)  # fmt: skip
STATUS = Described(
    "status", "`extrapolate status --json`, and at its end `extrapolate sweep --json`", "a cell of the study",
    plain(
        _CELL,
        always(
            "status", TEXT, "",
            "`done`, `running`, `failed`, `diverged`, `passed over`, `trained`, `begun` or `left`.",
        ),
        always("tokens", INT, "tokens", "How many tokens it was trained on so far."),
        sometimes("of", INT, "tokens", "How many they will be.", "that is not known yet"),
        sometimes("loss", REAL, "nats per target", "The last training loss.", "there is none yet"),
        sometimes("val_loss", REAL, "nats per target", "The last loss on the validation split.", "there is none yet"),
        sometimes("reason", TEXT, "", "Why it failed or diverged.", "it did not"),
    ),
)  # fmt: skip
DRY_RUN = Described(
    "dry-run", "`extrapolate sweep --dry-run --json`", "a cell of the study",
    plain(
        _CELL,
        always("encoding", TEXT, "", "The encoding, as `--pe` takes it."),
        always("parameters", INT, "", "The number of trained parameters."),
        always("tokens", INT, "tokens", "How many tokens it is trained on."),
        always("flops", REAL, "operations", "Floating point operations of the training."),
        always("training_s", REAL, "seconds", "How long the training would take."),
        always("evaluation_s", REAL, "seconds", "How long the evaluation would take."),
        always("peak_mib", REAL, "MiB", "The most memory that its process would hold."),
    ),
)  # fmt: skip
EXPORT = Described(
    "export", "`extrapolate export --json`", "the folder that was written",
    plain(
        always("folder", TEXT, "", "The folder."),
        always("architecture", TEXT, "", "The class of `transformers`, or of the folder, that loads it."),
        always("remote_code", TRUTH, "", "The folder holds that class: it is loaded with `trust_remote_code=True`."),
        always("use_cache", TRUTH, "", "What was computed of earlier tokens is kept while it generates."),
    ),
)  # fmt: skip
CHECK = Described(
    "check", "`extrapolate check --json`", "a part of the check",
    plain(
        always("part", TEXT, "", "What was checked."),
        sometimes("wrong", TEXT, "", "What is wrong.", "nothing is"),
        always("seconds", REAL, "seconds", "How long it took."),
    ),
)  # fmt: skip
BENCH = Described(
    "bench", "`extrapolate bench --json`, with any of its options", "a measurement",
    plain(
        always("what", TEXT, "", "What was measured: `training tiny`."),
        always("who", TEXT, "", "Which program; with `--encodings`, which encoding."),
        always("mode", TEXT, "", "How: `bf16 compiled`."),
        always("speed", REAL, "as in `unit`", "The median speed."),
        always("unit", TEXT, "", "`tokens/s`, `MB/s`, or `s`, where less is better."),
        sometimes("of_floor", REAL, "", "How many times as fast as the floor it is.", "there is no floor"),
        sometimes("of_peer", REAL, "", "How many times as fast as the peer it is.", "there is no peer"),
        sometimes("busy_speed", REAL, "as in `unit`", "The same beside busy programs.", "`--busy` is 0"),
        sometimes("peak_mib", REAL, "MiB", "The most memory that its process held.", "it is not measured"),
        always("disturbed", TRUTH, "", "Other programs took part of the time, so that a ratio is missing."),
    ),
)  # fmt: skip
DOCTOR = Described(
    "doctor", "`extrapolate doctor --json`", "a part of the machine, or an extra of this program",
    plain(
        always("part", TEXT, "", "What was looked at: `cores`, `bf16`, `extra ray`."),
        always("status", TEXT, "", "`ok`, `slow`, `low` or `missing`."),
        sometimes("value", REAL, "as in `unit`", "How much of it there is.", "it is no number"),
        sometimes("unit", TEXT, "", "`cores`, `threads`, `GiB`, `s`, or `times fp32`.", "there is no value"),
        always("found", TEXT, "", "What was found."),
        sometimes("advice", TEXT, "", "What to do about it.", "there is nothing to do"),
    ),
)  # fmt: skip
ENCODINGS = Described(
    "encodings", "`extrapolate encodings --json`", "an encoding",
    plain(
        *_NAMES, always("group", TEXT, "", "Its family."), *_ABOUT,
        always("applies", TEXTS, "", "The extensions that apply."),
    ),
)  # fmt: skip
EXTENSIONS = Described(
    "extensions", "`extrapolate extensions --json`", "an extension",
    plain(
        *_NAMES, always("group", TEXT, "", "What it changes."), *_ABOUT,
        always("applies", TEXTS, "", "The encodings that it applies to."),
    ),
)  # fmt: skip
COLUMNS = Described(
    "columns", "`extrapolate columns --json`", "a column of a table",
    plain(
        always("table", TEXT, "", "The table."),
        always("group", TEXT, "", "The group of columns; an empty text in a table of few columns."),
        always("column", TEXT, "", "The name of the column."),
        always("type", TEXT, "", "What a value is: `text`, `number`, `whole number` or `time`."),
        always("unit", TEXT, "", "The unit; an empty text where there is none."),
        always("meaning", TEXT, "", "What it holds."),
        always("empty", TEXT, "", "Where it is empty; an empty text where it never is."),
    ),
)  # fmt: skip
PRINTED = (COMPARE, REPORT, STATUS, DRY_RUN, EXPORT, CHECK, DOCTOR, BENCH, ENCODINGS, EXTENSIONS, COLUMNS)

INTRODUCTION = """\
# What commands print with --json

Made from the code by `make docs`. With `--json` a command prints its results on stdout as JSON Lines: each line is one
object, and all objects of one command have the same keys. Messages go to stderr, as always. Nothing in these lines is
coloured or cut.

A value that is missing is `null`. JSON has no infinite numbers: they are the texts `"inf"` and `"-inf"`, and a loss
that is not a number is `"nan"`. A time is text, such as `"2026-11-22 18:00:00+00:00"`.

## eval-lengths

`extrapolate eval-lengths --json`. One line stands for a run, an extension, a protocol and a length. Its keys are the
columns of [evals](results.md#evals). With `--probes`, more lines follow, one for each probe, length and depth. Their
keys are the columns of [eval_probes](results.md#eval_probes).

## eval-tasks

`extrapolate eval-tasks --json`. One line stands for a run, an extension, and a metric of a task. Its keys are the
columns of [eval_tasks](results.md#eval_tasks).

## inspect

`extrapolate inspect --json`. One line stands for a run, an extension, a length, and a quantity of a measurement at one
layer, head and place. Its keys are the columns of [inspections](results.md#inspections).
"""


def json_page() -> str:
    """docs/json.md."""
    lines = [INTRODUCTION]
    for one in PRINTED:
        lines += [f"## {one.name}", "", f"{one.files}. One line stands for {one.row}.", ""]
        lines += [*column_lines(one.columns), ""]
    return "\n".join(lines)
